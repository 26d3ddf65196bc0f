// Whole lists out of a tuning log, through its pages. Reads only.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

// All jobs of the log, oldest first; or the one that is named (by id or full name).
absl::StatusOr<std::vector<log::JobRow>> AllJobs(log::TuningLog* log, const std::string& job);

// By number.
absl::StatusOr<std::vector<log::TrialRow>> AllTrials(log::TuningLog* log, const std::string& job);

}  // namespace tilewright::cli
