// The states of a job and who may run: which event leads from which state to which, and which
// waiting jobs start next. Pure functions over values.
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
  kResume,    // go on
  kMeasured,  // measuring is over: compile and publish
  kSucceed,   // the module is published
  kFail,      // for a reason that trying again does not mend
  kCancel,    // somebody wants it to end
  kCancelled  // nothing of it is left to run
};

// The state after the action; failed_precondition job.state.<action> where it is not allowed.
//
//   QUEUED  -start-> RUNNING <-pause/resume-> PAUSED
//   RUNNING -measured-> FINISHING -succeed-> SUCCEEDED
//   any that is not final: -cancel-> CANCELLING -cancelled-> CANCELLED
//   any that is not final: -fail-> FAILED
//
// A QUEUED job that is cancelled was nowhere: it goes to CANCELLED at once. Cancelling a final job
// leaves it as it is.
absl::StatusOr<log::JobState> NextState(log::JobState state, JobAction action);

struct WaitingJob {
  std::string id;
  int64_t number = 0;        // order of creation
  int priority = 3;          // 1 (urgent) .. 5 (idle)
  int64_t waiting_ns = 0;    // for how long
  bool must_resume = false;  // it was running when the server stopped: before everybody else
};

// A job rises by one class for each interval that it waits, so that nothing waits for ever.
inline constexpr int64_t kAgeingNs = int64_t{300} * 1'000'000'000;

// The jobs to start now, best first, so that at most `max_running` run.
std::vector<std::string> JobsToStart(std::vector<WaitingJob> waiting, int64_t running,
                                     int64_t max_running);

}  // namespace tilewright::jobs
