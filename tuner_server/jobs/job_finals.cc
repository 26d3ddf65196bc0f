// The part of JobCore that measures winners again when the search has ended: of many the fastest
// is partly luck, or a lie. Finals do not count as trials of the budget.
#include <utility>

#include "tuner_server/jobs/job_core.h"

namespace tilewright::jobs {

// The program of the task that must be measured again; null: none.
const log::TrialRow* JobCore::NextFinal(const TaskState& task) {
  if (task.finals >= log::kFinalsOfTask) return nullptr;
  const log::MeasuredTrial* winner = task.contenders.Unconfirmed();
  return winner == nullptr ? nullptr : &winner->trial;
}

// Adds a final for each winner that was measured once, by this job or by another. False: there is
// none. A task that another job is at work on is no exception: that job may search for hours.
absl::StatusOr<bool> JobCore::PumpFinals() {
  if (!parts_.finals) return false;
  if (!open_.empty()) return true;  // who the winners are is not known yet
  log::NewBatch batch;
  for (TaskState& task : tasks_) {
    if (NextFinal(task) == nullptr) continue;
    TW_ASSIGN(const bool mine, Claim(&task));
    if (!mine) TW_TRY(TakeNews(&task));
    const log::TrialRow* winner = NextFinal(task);  // after the news
    if (winner == nullptr) continue;
    log::TrialRow trial;
    trial.job = job_.id;
    trial.task = task.row.name;
    trial.steps = winner->steps;
    trial.program_hash = winner->program_hash;
    trial.generated_by = log::kFinal;
    trial.proposed_by = log::kFinal;
    trial.point = winner->point;
    trial.created_us = env_.clock->WallMicros();
    batch.trials.push_back(std::move(trial));
  }
  if (batch.trials.empty()) return false;
  TW_TRY(AddTrials(std::move(batch)));
  return true;
}

}  // namespace tilewright::jobs
