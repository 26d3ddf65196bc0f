// Control groups (Linux cgroup v2) of an agent's workers. They bound what no limit of one process
// does: the memory of a worker together with all candidates, with the files that they hold in
// memory, and their number. A service manager delegates a group to the agent (Delegate= of a unit):
//
//   GROUP/agent          the agent, and workers that are about to start
//   GROUP/worker-PID     one worker with its measuring processes
//
// Without such a group nothing here has an effect. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// Where the kernel shows groups; others only in tests.
struct ControlGroupFiles {
  std::string own = "/proc/self/cgroup";  // names the group of this process
  std::string root = "/sys/fs/cgroup";
};

// In the agent, before it starts a worker: moves it, so that workers can have groups. Returns false
// if no group was delegated to it; unavailable (agent.control_group.refused) if one was, but cannot
// be used.
absl::StatusOr<bool> DivideControlGroup(const ControlGroupFiles& files = {});
// In the agent: removes the groups of workers that have ended.
void SweepWorkerGroups(const ControlGroupFiles& files = {});

// When memory is short the kernel ends the process with the highest score first (oom_score_adj): a
// candidate before its worker, a worker before the agent.
inline constexpr int kWorkerOomScore = 500;
inline constexpr int kCandidateOomScore = 1000;
// Of this process and its future children. Has no effect where /proc is read-only.
void RaiseOomScore(int score);

// The group of this process, a worker.
class WorkerGroup {
 public:
  // Returns nothing where the agent has none to give.
  static std::optional<WorkerGroup> Enter(const ControlGroupFiles& files = {});

  // For candidates that may use `memory_bytes` (SandboxLimits::memory_bytes; 0 = no limit). The
  // group gets more: the worker has the inputs and outputs as well. Returns false if refused.
  bool Limit(int64_t memory_bytes) const;

 private:
  explicit WorkerGroup(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace tilewright::device_agent
