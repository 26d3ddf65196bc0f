// The part of JobCore that goes on from what other jobs measured.
#include "tuner_server/jobs/job_recall.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/jobs/job_relatives.h"
#include "tuner_server/jobs/recalled_records.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {

std::string ClaimName(const log::JobRow& job, const v1::Job& spec, const std::string& task_hash) {
  return support::StrCat(job.target, "|", job.toolchain, "|", spec.pool(), "|", task_hash);
}

absl::Status RestoreClaims(log::TuningLog* log, TaskClaims* claims, int64_t now_ns) {
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();
  TW_ASSIGN(const std::vector<log::JobRow> open, log->ListJobs({.limit = kAll, .open_only = true}));
  for (const log::JobRow& job : open) {
    TW_ASSIGN(const v1::Job spec, SpecFromJson(job.spec_json));
    if (!spec.recall()) continue;
    TW_ASSIGN(const std::vector<log::TrialRow> trials,
              log->ListTrials({.job = job.id, .limit = kAll, .open_only = true}));
    std::set<std::string> busy;
    for (const log::TrialRow& trial : trials) busy.insert(trial.task);
    TW_ASSIGN(const std::vector<log::TaskRow> tasks, log->ListTasks(job.id));
    for (const log::TaskRow& task : tasks) {
      if (busy.count(task.name) == 0) continue;
      claims->Restore(ClaimName(job, spec, task.hash), job.id, now_ns);
    }
  }
  return absl::OkStatus();
}

absl::Status JobCore::Recall() {
  std::vector<log::TaskRow> rows;
  for (const TaskState& task : tasks_) rows.push_back(task.row);
  if (parts_.transfer) {
    TW_ASSIGN(relatives_, RelativesOf(env_.log, job_, spec_, rows));
  }
  TW_ASSIGN(const auto records, RecalledRecords(env_.log, job_, spec_, rows));
  for (size_t i = 0; i < tasks_.size(); ++i) {
    for (const log::RecordRow& record : records[i]) {
      TW_ASSIGN(log::TrialRow trial, env_.log->GetTrial(record.job, record.trial));
      TakeRecalled(&tasks_[i], std::move(trial), record);
    }
  }
  return absl::OkStatus();
}

void JobCore::TakeRecalled(TaskState* task, log::TrialRow trial, const log::RecordRow& record) {
  trial.task = task->row.name;  // its name in this job
  task->recalled_position = std::max(task->recalled_position, record.known_position);
  if (recall_class_.empty()) recall_class_ = record.key.device_class;
  // The same program may have been measured by several jobs; each record teaches.
  if (task->hashes.insert(trial.program_hash).second) {
    ++recalled_;
    ++task->view.proposed;
  }
  task->has_default = task->has_default || (trial.is_default && record.usable());
  TakeRecord(task, trial, record);
  task->view.best_by_trial.push_back(task->view.best);
  told_.push_back(ToldOf(trial, &record));
}

// Whether other jobs left nothing to measure within this one's budget. What this one has begun ends
// first: its records serve the others, too.
bool JobCore::AllKnown() {
  const int64_t budget = spec_.budget().max_trials();
  if (recalled_ == 0 || budget <= 0 || ended_ + recalled_ < budget || !open_.empty()) return false;
  // Which defaults a small budget is for, the estimates of a search child say.
  const bool all = std::all_of(tasks_.begin(), tasks_.end(),
                               [](const TaskState& task) { return task.has_default; });
  return all || (opened_ && MissingDefaults().empty());
}

}  // namespace tilewright::jobs
