#include "tuner_server/log/schedule_rule.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tilewright::log {
namespace {

constexpr double kMinNoise = 0.01, kMaxNoise = 0.1;
constexpr size_t kKept = 32;  // programs that were measured once, the fastest

// The share by which `slower` can be slower than `faster` though nothing differs.
double Noise(const RecordRow& faster, const RecordRow& slower) {
  return std::clamp(faster.ci_rel + slower.ci_rel, kMinNoise, kMaxNoise);
}

bool Beats(const RecordRow& a, const RecordRow& b) {
  return a.median < b.median * (1 - Noise(a, b));
}

// The row whose time is its program's: the median, of an even number the faster one of the middle
// unless they differ by more than noise.
const MeasuredTrial& Middle(const std::vector<MeasuredTrial>& rows) {
  const MeasuredTrial& faster = rows[(rows.size() - 1) / 2];
  const MeasuredTrial& slower = rows[rows.size() / 2];
  return Beats(faster.record, slower.record) ? slower : faster;
}

bool Judged(const RecordRow& record) {
  return record.valid && record.outcome != Outcome::kDeviceLost &&
         record.outcome != Outcome::kCancelled;
}

}  // namespace

bool Refutes(const TrialRow& trial, const RecordRow& record) {
  if (record.outcome == Outcome::kOk || !Judged(record)) return false;
  return record.outcome == Outcome::kWrongResult || trial.generated_by == kFinal;
}

void Contenders::Add(TrialRow trial, RecordRow record) {
  const bool refutes = Refutes(trial, record);
  if (!refutes && !record.usable()) return;
  Program& program = programs_[trial.program_hash];
  program.refuted = program.refuted || refutes;
  if (!record.usable()) return;
  program.is_default = program.is_default || trial.is_default;
  trial.features.clear();  // large, and of no use here
  trial.work_spec.clear();
  const auto later = std::upper_bound(
      program.rows.begin(), program.rows.end(), record.median,
      [](double median, const MeasuredTrial& row) { return median < row.record.median; });
  program.rows.insert(later, {std::move(trial), std::move(record)});
  if (program.rows.size() == 1 && ++single_ >= 2 * kKept) Forget();
}

// Drops the slowest of the programs that were measured once.
void Contenders::Forget() {
  const auto single = [](const Program& program) {
    return program.rows.size() == 1 && !program.is_default && !program.refuted;
  };
  std::vector<double> times;
  for (const auto& [hash, program] : programs_) {
    if (single(program)) times.push_back(program.rows[0].record.median);
  }
  single_ = times.size();
  if (times.size() <= kKept) return;
  std::nth_element(times.begin(), times.begin() + kKept, times.end());
  const double limit = times[kKept];
  std::erase_if(programs_, [&](const auto& one) {
    return single(one.second) && one.second.rows[0].record.median > limit;
  });
  single_ = kKept;
}

const Contenders::Program* Contenders::Chosen() const {
  const Program *best = nullptr, *standard = nullptr;
  const auto key = [](const Program& program) {
    const RecordRow& record = Middle(program.rows).record;
    return std::tie(record.median, record.measurement_id);
  };
  for (const auto& [hash, program] : programs_) {
    if (program.refuted || program.rows.empty()) continue;
    if (best == nullptr || key(program) < key(*best)) best = &program;
    if (!program.is_default) continue;
    if (standard == nullptr || key(program) < key(*standard)) standard = &program;
  }
  if (standard == nullptr || Beats(Middle(best->rows).record, Middle(standard->rows).record)) {
    return best;
  }
  return standard;
}

const MeasuredTrial* Contenders::Choice() const {
  const Program* chosen = Chosen();
  return chosen == nullptr ? nullptr : &Middle(chosen->rows);
}

const MeasuredTrial* Contenders::Unconfirmed() const {
  const Program* chosen = Chosen();
  if (chosen == nullptr || chosen->is_default || chosen->rows.size() > 1) return nullptr;
  return &chosen->rows[0];
}

}  // namespace tilewright::log
