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

bool Contenders::Program::out() const {
  if (rows.empty() || wrong || failed_finals >= kFinalsOfProgram) return true;
  return !confirmed() && failed_finals + silent_finals >= kFinalsOfProgram;
}

void Contenders::Add(TrialRow trial, RecordRow record) {
  const bool failed = Judged(record) && record.outcome != Outcome::kOk;
  const bool wrong = failed && record.outcome == Outcome::kWrongResult;
  const bool final = trial.generated_by == kFinal;
  if (final && ++finals_[trial.job] >= kFinalsOfTask) gave_up_ = true;
  if (!wrong && !final && !record.usable()) return;
  Program& program = programs_[trial.program_hash];
  program.wrong = program.wrong || wrong;
  if (!record.usable()) {
    if (final) ++(failed ? program.failed_finals : program.silent_finals);
    return;
  }
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
    const bool in_finals = program.failed_finals + program.silent_finals > 0;
    return program.rows.size() == 1 && !program.is_default && !program.wrong && !in_finals;
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

const Contenders::Program* Contenders::Best(bool confirmed_only) const {
  const Program *best = nullptr, *standard = nullptr;
  const auto key = [](const Program& program) {
    const RecordRow& record = Middle(program.rows).record;
    return std::tie(record.median, record.measurement_id);
  };
  for (const auto& [hash, program] : programs_) {
    if (program.out() || (confirmed_only && !program.confirmed())) continue;
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
  const Program* chosen = Best(/*confirmed_only=*/gave_up_);
  return chosen == nullptr ? nullptr : &Middle(chosen->rows);
}

const MeasuredTrial* Contenders::Leader() const {
  const Program* leader = Best(/*confirmed_only=*/false);
  return leader == nullptr ? nullptr : &Middle(leader->rows);
}

const MeasuredTrial* Contenders::Unconfirmed() const {
  const Program* leader = Best(/*confirmed_only=*/false);
  return leader == nullptr || leader->confirmed() ? nullptr : &leader->rows[0];
}

}  // namespace tilewright::log
