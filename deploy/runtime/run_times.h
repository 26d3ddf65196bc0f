// How long a session's function takes: the timing of `tilewright run`, for a session in this
// process or in a worker's child.
#ifndef DEPLOY_RUNTIME_RUN_TIMES_H_
#define DEPLOY_RUNTIME_RUN_TIMES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "deploy/runtime/runtime.h"

namespace tilewright::runtime {

// Nanoseconds by the session's clock.
struct RunTimes {
  double median = 0, p10 = 0, p90 = 0;
  std::vector<double> launches;  // medians of the function's launches in order; empty if not asked
  bool virtual_cycles = false;   // they are cycles that an emulated board counts, in place of time
};

// Runs the function three times to warm up, then `repeat` times, then as often again with a clock
// per launch if `per_launch`. REQUIRES: repeat >= 1. Errors of Session::Run.
absl::StatusOr<RunTimes> TimeRuns(Session* session, int repeat, bool per_launch);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_RUN_TIMES_H_
