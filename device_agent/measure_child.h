// One measurement in one forked child: the parent stays small, single-threaded and untouched by
// what the candidate does; it relays phases, keeps the time, and says how the child ended. Not
// thread-safe; the calling process must have no other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "device_agent/measure.h"
#include "device_agent/sandbox.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

struct ChildJob {
  MeasureJob measure;
  int64_t memory_limit_bytes = 0;  // SandboxLimits::memory_bytes
  bool sandboxed = true;           // false where ProbeSandbox found that it cannot be
  SandboxProfile profile = SandboxProfile::kStrict;
  std::vector<std::string> device_nodes;  // DriverAccess::nodes
  int stop_fd = -1;  // the child is killed when this one's other end closes; -1 none
};

// Never fails: whatever happens to the child is an outcome, which `answer` is told once. `phase` is
// called for every step that the child announces. A child that has answered and can have no
// descendants is killed before `answer`, but waited for only afterwards: the next one never runs
// beside it, and nobody waits until its memory is taken down.
void MeasureInChild(const ChildJob& job, const std::function<void(v1::WorkerPhase)>& phase,
                    const std::function<void(v1::ModuleMeasured)>& answer);

// How a child's end without an answer counts. `raw` is its wait status, `timed_out` whether the
// parent killed it for taking too long. Exposed for tests.
void ClassifyDeath(int raw, bool timed_out, v1::ModuleMeasured* measured);

// The child ends with this where memory runs out in our own code.
inline constexpr int kExitOutOfMemory = 87;

}  // namespace tilewright::device_agent
