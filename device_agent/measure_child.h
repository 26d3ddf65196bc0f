// Runs one measurement in one forked child. The parent stays small, single-threaded and safe from
// the candidate; it relays phases, enforces the time limit, and reports how the child ended. Not
// thread-safe; the calling process must have no other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "device_agent/measure.h"
#include "device_agent/output_judge.h"
#include "device_agent/sandbox.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

struct ChildJob {
  MeasureJob measure;
  int64_t memory_limit_bytes = 0;  // SandboxLimits::memory_bytes
  bool sandboxed = true;           // false if ProbeSandbox found that it cannot be
  SandboxProfile profile = SandboxProfile::kStrict;
  std::vector<std::string> device_nodes;  // DriverAccess::nodes
  // Has the expected outputs; null: nothing is compared. Not owned.
  OutputJudge* judge = nullptr;
  const Jail* jail = nullptr;             // not owned; null: there is none
  bool landlock = true;                   // SandboxSpec::landlock
  const FilterProgram* filter = nullptr;  // SandboxSpec::filter
  std::string scratch_parent;             // MakeScratch
  int stop_fd = -1;  // the child is killed when this one's other end closes; -1 none
};

// Never fails: any end of the child is an outcome. Calls `phase` for every step that the child
// announces, and `answer` once. A child that has answered and can have no descendants is killed
// before `answer` and reaped after it: so the next child never runs at the same time, and the
// answer does not wait until the child's memory is freed.
void MeasureInChild(const ChildJob& job, const std::function<void(v1::WorkerPhase)>& phase,
                    const std::function<void(v1::ModuleMeasured)>& answer);

// Sets the outcome of a child that ended without an answer. `raw` is its wait status, `timed_out`
// whether the parent killed it at its time limit. Exposed for tests.
void ClassifyDeath(int raw, bool timed_out, v1::ModuleMeasured* measured);

// Exit code of a child that runs out of memory in our own code.
inline constexpr int kExitOutOfMemory = 87;

}  // namespace tilewright::device_agent
