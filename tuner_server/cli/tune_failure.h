// Why a tuning job failed, for a person who may have no server to ask: the model's own fault as the
// importer says it, else the errors of the trials and where the logs are. Pure functions on values
// and on an open log; not thread-safe.
#pragma once

#include <string>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

// The error of the job itself where that is about the model (graph.*, op.*): its advice helps where
// that of the job does not. Else CheckSucceeded.
absl::Status CauseOf(const v1::Job& job);

// "3 RUN_CRASH (signal 11 in kernel), 1 BUILD_ERROR (...)" of the job's trials that failed, the
// most frequent first, three kinds at most; empty when none did.
absl::StatusOr<std::string> TrialErrors(log::TuningLog* log, const std::string& job);

// The same failure for a fleet that ends with the command (cli.embedded.job): with the errors of
// trials, the tuning log and the log files of the services. Errors about the model stay as they
// are.
absl::Status ExplainEmbedded(const absl::Status& failure, const std::string& job,
                             const std::string& log_path, const std::string& state_dir);

}  // namespace tilewright::cli
