// Statistics of a job: best schedules, counts, time by kind of work. Computed from the log on each
// call; safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

struct TaskStats {
  TaskRow task;
  int64_t proposed = 0;
  int64_t ended = 0;
  std::map<Outcome, int64_t> by_outcome;
  double default_median = 0;  // of the default schedule; 0: not measured (well) yet
  // Of the schedule that the job's own records choose (schedule_rule.h); number 0: none yet.
  int64_t best_trial = 0;
  double best_median = 0;
  std::string best_steps;
  std::string best_measurement_id;
};

// Seconds by kind of work, summed over the job.
struct TimeShares {
  double search_s = 0;    // making and lowering drafts
  double features_s = 0;  // feature vectors
  double model_s = 0;     // ranking
  double train_s = 0;     // training cost models
  double lower_s = 0;
  double codegen_s = 0;
  double link_s = 0;
  double fetch_s = 0;  // artifacts to the device
  double load_s = 0;
  double run_s = 0;  // check, warm-up and timed runs
};

struct JobStats {
  JobRow job;
  std::vector<TaskStats> tasks;
  TrialCounts counts;
  TimeShares time;
  int64_t batches = 0;
  int64_t considered = 0;  // drafts ranked, all batches
  int64_t records = 0;
  int64_t invalid_records = 0;
  std::string unit;  // of all medians: value_kind of the usable records; empty: there are none
  std::vector<ModelRow> models;  // without bytes, oldest first

  // Sum over tasks of weight x median, 0 as long as a task has none. In the records' unit.
  double default_total() const;
  double best_total() const;
};

absl::StatusOr<std::vector<TaskStats>> ComputeTaskStats(TuningLog* log, const std::string& job);
absl::StatusOr<JobStats> ComputeJobStats(TuningLog* log, const std::string& job);

// Sum over tasks of weight x best (or default) median; 0 as long as a task has none.
double BestTotal(const std::vector<TaskStats>& tasks);
double DefaultTotal(const std::vector<TaskStats>& tasks);

}  // namespace tilewright::log
