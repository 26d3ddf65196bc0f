// What other jobs measured of a job's tasks. Reads the log only; as thread-safe as it is.
#pragma once

#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// Returns, by task and oldest first, the records of other jobs with the same target, toolchain and
// device class: the job's pool, or the class with most records. For a job that has ended: those
// that were there at its end. Returns no records for a job without `recall`.
absl::StatusOr<std::vector<std::vector<log::RecordRow>>> RecalledRecords(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks);

}  // namespace tilewright::jobs
