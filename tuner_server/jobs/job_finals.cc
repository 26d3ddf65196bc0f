// The part of JobCore that measures winners again when the search has ended: of many the fastest
// is partly luck, or a lie. Finals do not count as trials of the budget.
#include <utility>

#include "tuner_server/jobs/job_core.h"

namespace tilewright::jobs {
namespace {

constexpr int kFinalsOfProgram = 2;  // if the first one says nothing: its device was lost
constexpr int kFinalsOfTask = 6;     // each time that one is refuted, another program wins

}  // namespace

// The program of the task that must be measured again; null: none.
const log::TrialRow* JobCore::NextFinal(TaskState* task) {
  const log::MeasuredTrial* winner = task->contenders.Unconfirmed();
  if (winner == nullptr) return nullptr;
  int known = 0;
  for (const auto& [hash, count] : task->finals) known += count;
  if (known >= kFinalsOfTask || task->finals[winner->trial.program_hash] >= kFinalsOfProgram) {
    return nullptr;
  }
  return &winner->trial;
}

// Adds a final for each winner that was measured once. False: there is none.
absl::StatusOr<bool> JobCore::PumpFinals() {
  if (!parts_.finals || ended_ == 0) return false;  // what other jobs measured is theirs to confirm
  if (!open_.empty()) return true;                  // who the winners are is not known yet
  log::NewBatch batch;
  for (TaskState& task : tasks_) {
    if (NextFinal(&task) == nullptr) continue;
    TW_ASSIGN(const bool mine, Claim(&task));
    if (!mine) continue;  // it is confirmed by the job that is at work on it
    const log::TrialRow* winner = NextFinal(&task);  // after the news that a claim brings
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
