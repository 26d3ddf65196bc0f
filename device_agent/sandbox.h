// What a measuring process may do. Profile `strict`: compute, allocate up to a limit, start threads
// of its own, read files while it loads; no network, no other process, no file opened for writing,
// no new privileges. Anything else ends it with SIGSYS. Profile `driver`, for devices whose driver
// compiles and talks to device nodes: the same, but while it loads it may also read the system's
// folders, write a scratch folder, run the system's programs and use its device's nodes
// (driver_profile.h); afterwards no new file and no new process. Applied by a fresh single-threaded
// child to itself, before it loads a candidate's code (whose constructors run on load).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::device_agent {

struct SandboxLimits {
  // Beyond what is mapped now: address space, for `driver` (which reserves much and uses little of
  // it) writable memory; 0 = no limit.
  int64_t memory_bytes = 0;
  int64_t cpu_s = 0;       // processor seconds; 0 = no limit
  int64_t code_bytes = 0;  // what may be written to anonymous memory files while loading
};

enum class SandboxProfile { kStrict, kDriver };

// "strict", "driver".
std::string_view SandboxProfileName(SandboxProfile profile);
// invalid_argument (agent.profile.unknown) for other words.
absl::StatusOr<SandboxProfile> ParseSandboxProfile(std::string_view name);

// Of the profile `driver`.
struct DriverAccess {
  std::string scratch;                 // folder that the process may change; "" = none
  std::vector<std::string> nodes;      // device nodes, or folders of them
  std::vector<std::string> libraries;  // files beside the system's folders that it must load
};

struct SandboxSpec {
  SandboxProfile profile = SandboxProfile::kStrict;
  SandboxLimits limits;
  DriverAccess driver;
};

// Resource limits, the parent-death signal, an unprivileged user where the process is root, and for
// `driver` the environment that leads its files to the scratch folder. They need no kernel support
// and come in any case. `parent` is the process whose end ends this one.
absl::Status ApplyLimits(const SandboxSpec& spec, int parent);

// The system-call filter, for `driver` Landlock before it. unavailable (sandbox.filter.*,
// sandbox.landlock.*) where the kernel or the build has none.
absl::Status ApplyFilter(const SandboxSpec& spec);

// After loading: no file may be opened any more and nothing written but to open pipes. REQUIRES:
// ApplyFilter returned ok.
absl::Status SealFilter(SandboxProfile profile);

// A folder for DriverAccess::scratch, of whoever the measuring process will be.
absl::StatusOr<support::TempDir> MakeScratch();

// Removes the scratch folders of workers that ended without.
void SweepScratch();

// Tries both in a child. The reason why the filter cannot be used, or what is in force.
struct SandboxProbe {
  bool sandboxed = false;
  std::string detail;
};
SandboxProbe ProbeSandbox(SandboxProfile profile = SandboxProfile::kStrict);

}  // namespace tilewright::device_agent
