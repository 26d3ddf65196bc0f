// What earlier jobs measured of a job's tasks. Reads only; as thread-safe as the log.
#pragma once

#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// By task, oldest first: records of the same target, toolchain and device class (the job's pool, or
// the class with most of them) that were there when the job began to run. That is a fixed set, so
// that whoever asks again gets the same. Nothing for a job without `recall`.
absl::StatusOr<std::vector<std::vector<log::RecordRow>>> RecalledRecords(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks);

// Programs among them: what Progress.cached counts.
absl::StatusOr<int64_t> CountRecalled(log::TuningLog* log, const log::JobRow& job,
                                      const v1::Job& spec);

}  // namespace tilewright::jobs
