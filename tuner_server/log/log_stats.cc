#include "tuner_server/log/log_stats.h"

#include <algorithm>
#include <utility>

#include "tuner_server/log/schedule_rule.h"

namespace tilewright::log {
namespace {

// A task's statistics, and what chooses its best schedule.
struct Collected {
  TaskStats stats;
  Contenders contenders;
};

// Most failed trials say nothing of the choice: their records need not be read.
bool SaysSomething(const TrialRow& trial) {
  return trial.median > 0 || trial.outcome == Outcome::kWrongResult || trial.generated_by == kFinal;
}

absl::Status AddTrial(TuningLog* log, const TrialRow& trial, Collected* task) {
  TaskStats& stats = task->stats;
  const bool again = trial.generated_by == kFinal;  // a time, but no candidate
  if (!again) ++stats.proposed;
  if (!IsFinal(trial.state)) return absl::OkStatus();
  if (!again) ++stats.ended;
  if (!again) ++stats.by_outcome[trial.outcome];
  if (trial.is_default && stats.default_median == 0) stats.default_median = trial.median;
  if (!SaysSomething(trial)) return absl::OkStatus();
  RecordRow record;  // empty: the final ended without one
  if (!trial.measurement_id.empty()) {
    TW_ASSIGN(record, log->GetRecord(trial.measurement_id));
  }
  task->contenders.Add(trial, std::move(record));
  return absl::OkStatus();
}

TaskStats Choose(Collected task) {
  const MeasuredTrial* choice = task.contenders.Choice();
  if (choice == nullptr) return std::move(task.stats);
  task.stats.best_trial = choice->trial.number;
  task.stats.best_median = choice->record.median;
  task.stats.best_steps = choice->trial.steps;
  task.stats.best_measurement_id = choice->record.measurement_id;
  return std::move(task.stats);
}

// Calls `fn` with every trial of the job, by number.
template <typename Fn>
absl::Status ForEachTrial(TuningLog* log, const std::string& job, Fn fn) {
  TrialQuery query{.job = job, .task = "", .after_number = 0, .limit = kPageRows};
  for (;;) {
    TW_ASSIGN(const std::vector<TrialRow> trials, log->ListTrials(query));
    if (trials.empty()) return absl::OkStatus();
    for (const TrialRow& trial : trials) TW_TRY(fn(trial));
    query.after_number = trials.back().number;
  }
}

// Statistics of all tasks of the job. Calls `fn` with every trial of the job, by number.
template <typename Fn>
absl::StatusOr<std::vector<TaskStats>> Collect(TuningLog* log, const std::string& job, Fn fn) {
  TW_ASSIGN(const std::vector<TaskRow> rows, log->ListTasks(job));
  std::vector<Collected> tasks(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) tasks[i].stats.task = rows[i];
  TW_TRY(ForEachTrial(log, job, [&](const TrialRow& trial) -> absl::Status {
    fn(trial);
    const auto task = std::find_if(tasks.begin(), tasks.end(), [&](const Collected& one) {
      return one.stats.task.name == trial.task;
    });
    return task == tasks.end() ? absl::OkStatus() : AddTrial(log, trial, &*task);
  }));
  std::vector<TaskStats> stats;
  for (Collected& task : tasks) stats.push_back(Choose(std::move(task)));
  return stats;
}

template <typename Median>
double Total(const std::vector<TaskStats>& tasks, Median median) {
  double total = 0;
  for (const TaskStats& task : tasks) {
    if (median(task) <= 0) return 0;
    total += static_cast<double>(task.task.weight) * median(task);
  }
  return total;
}

absl::Status AddBatches(TuningLog* log, const std::string& job, JobStats* stats) {
  BatchQuery query{job, 0, kPageRows};
  for (;;) {
    TW_ASSIGN(const BatchPage page, log->ListBatches(query));
    if (page.batches.empty()) return absl::OkStatus();
    for (const BatchRow& batch : page.batches) {
      ++stats->batches;
      stats->considered += batch.considered;
      stats->time.search_s += batch.search_s;
      stats->time.features_s += batch.features_s;
      stats->time.model_s += batch.model_s;
    }
    query.after_seq = page.last_seq;
  }
}

absl::Status AddRecords(TuningLog* log, const std::string& job, JobStats* stats) {
  RecordQuery query{job, 0, kPageRows};
  for (;;) {
    TW_ASSIGN(const std::vector<RecordRow> records, log->ListRecords(query));
    if (records.empty()) return absl::OkStatus();
    for (const RecordRow& record : records) {
      ++stats->records;
      if (!record.valid) ++stats->invalid_records;
      if (stats->unit.empty() && record.usable()) stats->unit = record.value_kind;
      stats->time.fetch_s += record.fetch_s;
      stats->time.load_s += record.load_s;
      stats->time.run_s += record.run_s;
    }
    query.after_seq = records.back().seq;
  }
}

}  // namespace

double BestTotal(const std::vector<TaskStats>& tasks) {
  return Total(tasks, [](const TaskStats& task) { return task.best_median; });
}
double DefaultTotal(const std::vector<TaskStats>& tasks) {
  return Total(tasks, [](const TaskStats& task) { return task.default_median; });
}

double JobStats::default_total() const { return DefaultTotal(tasks); }
double JobStats::best_total() const { return BestTotal(tasks); }

absl::StatusOr<std::vector<TaskStats>> ComputeTaskStats(TuningLog* log, const std::string& job) {
  return Collect(log, job, [](const TrialRow&) {});
}

absl::StatusOr<JobStats> ComputeJobStats(TuningLog* log, const std::string& job) {
  JobStats stats;
  TW_ASSIGN(stats.job, log->GetJob(job));
  TW_ASSIGN(stats.tasks, Collect(log, job, [&stats](const TrialRow& trial) {
              stats.time.lower_s += trial.lower_s;
              stats.time.codegen_s += trial.codegen_s;
              stats.time.link_s += trial.link_s;
            }));
  TW_ASSIGN(stats.counts, log->CountTrials(job));
  TW_TRY(AddBatches(log, job, &stats));
  TW_TRY(AddRecords(log, job, &stats));
  TW_ASSIGN(stats.models, log->ListModels(job));
  for (const ModelRow& model : stats.models) stats.time.train_s += model.seconds;
  return stats;
}

}  // namespace tilewright::log
