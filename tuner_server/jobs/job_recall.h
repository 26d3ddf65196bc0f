// How jobs that share tasks name them to each other. Reads the log only; as thread-safe as it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/jobs/task_claims.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// Returns the name under which a job claims a task. Jobs with the same name can use each other's
// records.
std::string ClaimName(const log::JobRow& job, const v1::Job& spec, const std::string& task_hash);

// Makes the jobs with open trials the holders of their tasks. Call after a restart, before any job
// runs.
absl::Status RestoreClaims(log::TuningLog* log, TaskClaims* claims, int64_t now_ns);

}  // namespace tilewright::jobs
