#include "tuner_server/log/schedule_rule.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace tilewright::log {
namespace {

constexpr double kMinNoise = 0.01, kMaxNoise = 0.1;
constexpr size_t kKept = 32;  // rows besides defaults and finals, the fastest
constexpr int kFinals = 2;    // of a program, from which on they count

bool Faster(const MeasuredTrial* a, const MeasuredTrial* b) {
  return a->record.median < b->record.median;
}

}  // namespace

void Contenders::Add(TrialRow trial, RecordRow record) {
  const double median = record.median;
  if (fastest_ == 0 || median < fastest_) fastest_ = median;
  trial.features.clear();  // large, and of no use here
  trial.work_spec.clear();
  rows_.push_back({std::move(trial), std::move(record)});
  if (rows_.size() < 2 * kKept) return;
  std::stable_sort(rows_.begin(), rows_.end(), [](const MeasuredTrial& a, const MeasuredTrial& b) {
    return a.record.median < b.record.median;
  });
  size_t kept = 0;
  std::erase_if(rows_, [&](const MeasuredTrial& row) {
    if (row.trial.is_default || row.trial.generated_by == kFinal) return false;
    return ++kept > kKept || row.record.median * (1 - kMaxNoise) > fastest_;
  });
}

// Each program once, the fastest first.
std::vector<Contenders::Program> Contenders::Programs() const {
  std::map<std::string, std::vector<const MeasuredTrial*>> by_program;
  for (const MeasuredTrial& row : rows_) by_program[row.trial.program_hash].push_back(&row);
  std::vector<Program> programs;
  for (auto& [hash, rows] : by_program) {
    Program program;
    std::stable_sort(rows.begin(), rows.end(), Faster);
    program.row = rows.front();
    std::vector<const MeasuredTrial*> finals;
    for (const MeasuredTrial* row : rows) {
      program.is_default = program.is_default || row->trial.is_default;
      if (row->trial.generated_by == kFinal) finals.push_back(row);
    }
    program.finals = static_cast<int>(finals.size());
    if (program.finals >= kFinals) program.row = finals[(finals.size() - 1) / 2];
    programs.push_back(program);
  }
  std::sort(programs.begin(), programs.end(), [](const Program& a, const Program& b) {
    return std::tie(a.row->record.median, a.row->record.measurement_id) <
           std::tie(b.row->record.median, b.row->record.measurement_id);
  });
  return programs;
}

const MeasuredTrial* Contenders::Choice() const {
  const std::vector<Program> programs = Programs();
  if (programs.empty()) return nullptr;
  const Program& best = programs.front();
  for (const Program& program : programs) {
    if (!program.is_default) continue;
    if (program.finals >= kFinals && best.finals >= kFinals) return best.row;
    const double noise =
        std::clamp(program.row->record.ci_rel + best.row->record.ci_rel, kMinNoise, kMaxNoise);
    const bool beaten = best.row->record.median < program.row->record.median * (1 - noise);
    return beaten ? best.row : program.row;
  }
  return best.row;
}

std::vector<const MeasuredTrial*> Contenders::FrontRunners(double share) const {
  const std::vector<Program> programs = Programs();
  if (programs.size() < 2 || programs[0].finals > 0 || programs[1].finals > 0) return {};
  const double limit = programs[0].row->record.median * (1 + share);
  if (programs[1].row->record.median > limit) return {};
  return {programs[0].row, programs[1].row};
}

}  // namespace tilewright::log
