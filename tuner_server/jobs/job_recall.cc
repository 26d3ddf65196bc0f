// The part of JobCore that goes on from what earlier jobs measured.
#include "tuner_server/jobs/job_recall.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tuner_server/jobs/job_core.h"
#include "tuner_server/jobs/most_frequent.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

// Times of different device classes do not compare: the class with most records.
std::string MostFrequentClass(const std::vector<std::vector<log::RecordRow>>& records) {
  std::map<std::string, int> counts;
  for (const std::vector<log::RecordRow>& of_task : records) {
    for (const log::RecordRow& record : of_task) ++counts[record.key.device_class];
  }
  return MostFrequent(counts);
}

}  // namespace

absl::StatusOr<std::vector<std::vector<log::RecordRow>>> RecalledRecords(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks) {
  std::vector<std::vector<log::RecordRow>> records(tasks.size());
  if (!spec.recall()) return records;
  for (size_t i = 0; i < tasks.size(); ++i) {
    log::RecordKey key = KeyOf(job, tasks[i].hash);
    key.device_class = spec.pool();
    TW_ASSIGN(records[i], log->KnownRecords(key, std::max(job.created_us, job.started_us)));
  }
  const std::string device_class = MostFrequentClass(records);
  for (std::vector<log::RecordRow>& of_task : records) {
    std::erase_if(of_task, [&](const log::RecordRow& record) {
      return record.key.device_class != device_class || record.job == job.id;
    });
  }
  return records;
}

absl::StatusOr<int64_t> CountRecalled(log::TuningLog* log, const log::JobRow& job,
                                      const v1::Job& spec) {
  TW_ASSIGN(const std::vector<log::TaskRow> tasks, log->ListTasks(job.id));
  TW_ASSIGN(const auto records, RecalledRecords(log, job, spec, tasks));
  int64_t count = 0;
  for (const std::vector<log::RecordRow>& of_task : records) {
    std::set<std::string> programs;
    for (const log::RecordRow& record : of_task) {
      TW_ASSIGN(const log::TrialRow trial, log->GetTrial(record.job, record.trial));
      programs.insert(trial.program_hash);
    }
    count += static_cast<int64_t>(programs.size());
  }
  return count;
}

absl::Status JobCore::Recall() {
  std::vector<log::TaskRow> rows;
  for (const TaskState& task : tasks_) rows.push_back(task.row);
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

// Whether earlier jobs left nothing to measure within this one's budget.
bool JobCore::AllKnown() const {
  const int64_t budget = spec_.budget().max_trials();
  if (recalled_ == 0 || budget <= 0 || ended_ + recalled_ < budget) return false;
  for (const TaskState& task : tasks_) {
    if (!task.has_default) return false;
  }
  return true;
}

}  // namespace tilewright::jobs
