// The states of a job, the actions that change them, and which waiting jobs start next. Pure
// functions over values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/log_types.h"

namespace tilewright::jobs {

enum class JobAction {
  kStart,     // a runner took the job
  kPause,     // stop proposing; what is measured now is still recorded
  kResume,    // propose again
  kMeasured,  // measuring is over: compile and publish
  kSucceed,   // the module is published
  kFail,      // another try would fail in the same way
  kCancel,    // a person asked for its end
  kCancelled  // all of its trials have ended
};

// Returns the state after the action. failed_precondition job.state.<action>: not allowed in this
// state.
//
//   QUEUED  -start-> RUNNING <-pause/resume-> PAUSED
//   RUNNING -measured-> FINISHING -succeed-> SUCCEEDED
//   any that is not final: -cancel-> CANCELLING -cancelled-> CANCELLED
//   any that is not final: -fail-> FAILED
//
// A QUEUED job that is cancelled becomes CANCELLED immediately. Cancelling a final job changes
// nothing.
absl::StatusOr<log::JobState> NextState(log::JobState state, JobAction action);

struct WaitingJob {
  std::string id;
  int64_t number = 0;        // order of creation
  int priority = 3;          // 1 (urgent) .. 5 (idle)
  int64_t waiting_ns = 0;    // for how long
  bool must_resume = false;  // it was running when the server stopped: it starts first
};

// A job moves up one priority class for each such interval that it waits, so none waits for ever.
inline constexpr int64_t kAgeingNs = int64_t{300} * 1'000'000'000;

// Returns the jobs to start now, the first to start first. Afterwards at most `max_running` run.
std::vector<std::string> JobsToStart(std::vector<WaitingJob> waiting, int64_t running,
                                     int64_t max_running);

}  // namespace tilewright::jobs
