// How fast a job's tasks are with their default and their best schedules, and what that adds up to:
// the one place where progress is computed, for a job that runs and for one in the log. Times may
// come from other jobs, which is said. ReadJobTimes reads the log and is as thread-safe as it is;
// the rest are pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/schedule_rule.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// A time in the records' unit, and the trial that it was measured in.
struct TrialTime {
  double time = 0;   // 0: not measured
  std::string unit;  // value_kind of its record
  std::string job, task;
  int64_t trial = 0;
};

struct TaskTimes {
  double weight = 1;           // uses in the model
  TrialTime standard;          // of the default schedule
  TrialTime best;              // of the schedule that a module gets
  std::string best_steps;      // its steps; only from ReadJobTimes
  std::string why_no_default;  // for people, where `standard` has no time; only from ReadJobTimes
  int64_t ended = 0;           // trials of this job; only from ReadJobTimes
};

struct JobTimes {
  std::vector<log::TaskRow> rows;
  std::vector<TaskTimes> tasks;  // in the order of the rows
  int64_t recalled = 0;          // programs that other jobs measured
};

// Reads what is known of a job's tasks: its own trials, and with `recall` what other jobs measured.
absl::StatusOr<JobTimes> ReadJobTimes(log::TuningLog* log, const log::JobRow& job,
                                      const v1::Job& spec);

TrialTime TimeOf(const log::RecordRow& record);

// End to end, over the tasks where both times are known: sums of weight x time.
struct TimedTasks {
  int tasks = 0;
  double standard = 0, best = 0;
};
TimedTasks SumTimed(const std::vector<TaskTimes>& tasks);

// Progress as far as counts and times tell. Times end to end are sums over tasks of weight x time;
// `gain` is their ratio over the tasks where both are known.
// The unit of the times; UNSPECIFIED while there are none. All of a job have the same.
v1::ValueKind UnitOf(const TaskTimes& times);
v1::ValueKind UnitOf(const std::vector<TaskTimes>& tasks);

v1::Progress MakeProgress(const log::TrialCounts& counts, const std::vector<TaskTimes>& tasks);

// "{job}/tasks/{task}/trials/{number}" of the best trial of the task with the largest share of the
// time; empty while there is none.
std::string BestTrial(const std::vector<TaskTimes>& tasks);

}  // namespace tilewright::jobs
