// What other jobs measured of a job's tasks. Reads the log only; as thread-safe as it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/jobs/task_claims.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// By task, oldest first: records of the same target, toolchain and device class (the job's pool, or
// the class with most of them) that are there, for a job that has ended those that were there at
// its end. Nothing for a job without `recall`.
absl::StatusOr<std::vector<std::vector<log::RecordRow>>> RecalledRecords(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks);

// Programs among them: what Progress.cached counts.
absl::StatusOr<int64_t> CountRecalled(log::TuningLog* log, const log::JobRow& job,
                                      const v1::Job& spec);

// What a job holds of TaskClaims while it is at work on the task: jobs with the same one can use
// each other's records.
std::string ClaimName(const log::JobRow& job, const v1::Job& spec, const std::string& task_hash);

// Makes those jobs holders that have open trials, after a restart and before any job goes on.
absl::Status RestoreClaims(log::TuningLog* log, TaskClaims* claims, int64_t now_ns);

}  // namespace tilewright::jobs
