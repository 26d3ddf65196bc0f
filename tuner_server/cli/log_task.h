// One task of a tuning log, and what was measured of it: what `log show` and `log explain` share.
// Reads only.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/cli/schedule_choice.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

struct Measured {
  log::TrialRow trial;
  log::RecordRow record;
};

// How people say which task they mean.
struct TaskQuery {
  std::string word;         // task, first digits of its hash (4 at least), launch or ONNX node
  std::string job;          // in this job; empty: in the newest job that has one
  std::string module_path;  // the word is a launch, a node or a task of this module; may be empty
};
// Returns the task that the query means. A task's name or hash counts before launches and nodes of
// the same job. not_found (log.task.not_found) names the tasks that exist.
absl::StatusOr<log::TaskRow> FindTask(log::TuningLog* log, const TaskQuery& query);

// The task's trials that have an accepted record: usable ones first, fastest first.
absl::StatusOr<std::vector<Measured>> MeasuredTrials(log::TuningLog* log, const log::TaskRow& task);

struct TaskSchedule {
  ScheduleChoice choice;
  Measured chosen;  // without a measurement id: the default schedule, never measured
};

// Returns the schedule that `compile --log` takes for the task from the whole log, with the trial
// of `measured` that proposed it.
absl::StatusOr<TaskSchedule> ChooseSchedule(log::TuningLog* log, const log::TaskRow& task,
                                            const std::vector<Measured>& measured);

}  // namespace tilewright::cli
