// The enums of the log's rows as those of the protocol, and back. The log knows no protobuf, so the
// two are written down twice; this is the only place that joins them. Pure functions; thread-safe.
#pragma once

#include "tilewright/v1/common.pb.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/log_types.h"

namespace tilewright::jobs {

v1::Outcome ToProto(log::Outcome outcome);
v1::Job::State ToProto(log::JobState state);
v1::Trial::State ToProto(log::TrialState state);
// Returns kUnspecified for a number that this version does not know.
log::Outcome FromProto(v1::Outcome outcome);

}  // namespace tilewright::jobs
