// Good programs of the relatives of a job's tasks: tasks of the same kind with similar extents
// (search/task_kind.h). Reads the log only; as thread-safe as it is.
#pragma once

#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// Returns, for each of `tasks`, the best programs of its nearest relatives, the nearest first. They
// have the same target, toolchain and device class (the job's pool, or the class with most
// records). Only what was in the log when the job was created counts, so a search that is started
// again inherits the same. Empty for a job without `recall`.
absl::StatusOr<std::vector<v1::RelativeProgram>> RelativesOf(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks);

}  // namespace tilewright::jobs
