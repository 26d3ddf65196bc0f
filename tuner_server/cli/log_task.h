// One task of a tuning log, and what was measured of it: what `log show` and `log explain` share.
// Reads only.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

struct Measured {
  log::TrialRow trial;
  log::RecordRow record;
};

// Returns the task of that name, or whose hash begins with it (at least 4 digits), from the newest
// job that has it, or from `job_name` if that is not empty. not_found (log.task.not_found) names
// the tasks that exist.
absl::StatusOr<log::TaskRow> FindTask(log::TuningLog* log, const std::string& wanted,
                                      const std::string& job_name);

// The task's trials that have an accepted record: usable ones first, fastest first.
absl::StatusOr<std::vector<Measured>> MeasuredTrials(log::TuningLog* log, const log::TaskRow& task);

}  // namespace tilewright::cli
