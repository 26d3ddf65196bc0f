#include "tuner_server/log/log_stats.h"

#include <utility>

#include "tuner_server/log/schedule_rule.h"

namespace tilewright::log {
namespace {

void AddTrial(const TrialRow& trial, TaskStats* stats) {
  const bool again = trial.generated_by == kFinal;  // a time, but no candidate
  if (!again) ++stats->proposed;
  if (!IsFinal(trial.state)) return;
  if (!again) ++stats->ended;
  if (!again) ++stats->by_outcome[trial.outcome];
  if (trial.median <= 0) return;
  if (trial.is_default && stats->default_median == 0) stats->default_median = trial.median;
  if (stats->best_trial != 0 && stats->best_median <= trial.median) return;
  stats->best_trial = trial.number;
  stats->best_median = trial.median;
  stats->best_steps = trial.steps;
  stats->best_measurement_id = trial.measurement_id;
}

// Calls `fn` with every trial of the job, by number.
template <typename Fn>
absl::Status ForEachTrial(TuningLog* log, const std::string& job, Fn fn) {
  TrialQuery query{.job = job, .task = "", .after_number = 0, .limit = kPageRows};
  for (;;) {
    TW_ASSIGN(const std::vector<TrialRow> trials, log->ListTrials(query));
    if (trials.empty()) return absl::OkStatus();
    for (const TrialRow& trial : trials) fn(trial);
    query.after_number = trials.back().number;
  }
}

absl::StatusOr<std::vector<TaskStats>> EmptyStats(TuningLog* log, const std::string& job) {
  TW_ASSIGN(const std::vector<TaskRow> tasks, log->ListTasks(job));
  std::vector<TaskStats> stats;
  for (const TaskRow& task : tasks) {
    stats.emplace_back();
    stats.back().task = task;
  }
  return stats;
}

TaskStats* FindTask(std::vector<TaskStats>* stats, const std::string& name) {
  for (TaskStats& one : *stats) {
    if (one.task.name == name) return &one;
  }
  return nullptr;
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
  TW_ASSIGN(std::vector<TaskStats> stats, EmptyStats(log, job));
  TW_TRY(ForEachTrial(log, job, [&stats](const TrialRow& trial) {
    TaskStats* task = FindTask(&stats, trial.task);
    if (task != nullptr) AddTrial(trial, task);
  }));
  return stats;
}

absl::StatusOr<JobStats> ComputeJobStats(TuningLog* log, const std::string& job) {
  JobStats stats;
  TW_ASSIGN(stats.job, log->GetJob(job));
  TW_ASSIGN(stats.tasks, EmptyStats(log, job));
  TW_TRY(ForEachTrial(log, job, [&stats](const TrialRow& trial) {
    TaskStats* task = FindTask(&stats.tasks, trial.task);
    if (task != nullptr) AddTrial(trial, task);
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
