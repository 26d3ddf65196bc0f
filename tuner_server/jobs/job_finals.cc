// The part of JobCore that measures front-runners again, in turns, when the budget comes to its
// end.
#include <algorithm>
#include <utility>

#include "tuner_server/jobs/job_core.h"

namespace tilewright::jobs {
namespace {

// The two fastest programs of a task are measured again when they are so near each other: above,
// the order of two measurements is hardly ever wrong.
constexpr double kNear = 0.03;
constexpr int64_t kTurns = 4;            // A B B A: what drifts meanwhile harms both alike
constexpr int64_t kBudgetPerFinals = 8;  // of so many trials one may be a final

}  // namespace

// How many of the last trials are kept for finals.
int64_t JobCore::FinalsReserve() const {
  const int64_t budget = spec_.budget().max_trials();
  if (!parts_.finals || finals_over_ || budget <= 0) return 0;
  for (const TaskState& task : tasks_) {
    if (task.finals) return 0;
  }
  const auto tasks = static_cast<int64_t>(tasks_.size());
  return std::min(budget / kBudgetPerFinals, kTurns * tasks) / kTurns * kTurns;
}

// Adds the finals of the tasks with the largest shares of time once all else has ended, once in a
// job: the log says which tasks had theirs. True: there is nothing to ask the search for now.
absl::StatusOr<bool> JobCore::PumpFinals(int64_t left) {
  if (left > FinalsReserve()) return false;
  if (!open_.empty()) return true;  // who the front-runners are is not known yet
  std::vector<std::pair<double, TaskState*>> order;
  for (TaskState& task : tasks_) {
    if (!task.contenders.FrontRunners(kNear).empty()) {
      order.emplace_back(-task.view.weight * task.best.median, &task);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  log::NewBatch batch;
  for (const auto& [share, task] : order) {
    if (left - static_cast<int64_t>(batch.trials.size()) < kTurns) break;
    TW_ASSIGN(const bool mine, Claim(task));
    if (!mine) continue;
    const auto front = task->contenders.FrontRunners(kNear);
    for (const size_t turn : {0, 1, 1, 0}) {
      const log::TrialRow& known = front[turn]->trial;
      log::TrialRow trial;
      trial.job = job_.id;
      trial.task = task->row.name;
      trial.steps = known.steps;
      trial.program_hash = known.program_hash;
      trial.generated_by = log::kFinal;
      trial.proposed_by = log::kFinal;
      trial.point = known.point;
      trial.created_us = env_.clock->WallMicros();
      batch.trials.push_back(std::move(trial));
    }
  }
  finals_over_ = true;  // what is left of the reserve is the search's
  if (batch.trials.empty()) return false;
  TW_TRY(AddTrials(std::move(batch)));
  return true;
}

}  // namespace tilewright::jobs
