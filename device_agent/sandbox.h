// What a measuring process may do. Profile `strict`: compute, allocate up to a limit, start threads
// of its own, read files while it loads; no network, no other process, no file opened for writing,
// no new privileges. Any other call ends it with SIGSYS. Profile `driver` is for devices whose
// driver compiles and uses device nodes. While it loads, it may also read the system's folders,
// write a scratch folder, run the system's programs and use its device's nodes (driver_profile.h);
// afterwards no new file and no new process. A fresh single-threaded child applies the profile to
// itself before it loads a candidate's code, whose constructors run on load.
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
  std::vector<std::string> libraries;  // files outside the system's folders that it must load
};

struct SandboxSpec {
  SandboxProfile profile = SandboxProfile::kStrict;
  SandboxLimits limits;
  DriverAccess driver;
};

// Applies resource limits and the parent-death signal, drops root to an unprivileged user, and for
// `driver` sets the environment that leads its files to the scratch folder. These need no kernel
// support and always apply. `parent` is the process whose end ends this one.
absl::Status ApplyLimits(const SandboxSpec& spec, int parent);

// Applies the system-call filter, for `driver` after Landlock. unavailable (sandbox.filter.*,
// sandbox.landlock.*) if the kernel or the build has none.
absl::Status ApplyFilter(const SandboxSpec& spec);

// After loading: forbids to open files, and to write except to open pipes. REQUIRES: ApplyFilter
// returned ok.
absl::Status SealFilter(SandboxProfile profile);

// Makes a folder for DriverAccess::scratch, owned by the user of the measuring process.
absl::StatusOr<support::TempDir> MakeScratch();

// Removes the scratch folders that dead workers left.
void SweepScratch();

// Tries both in a child. The reason why the filter cannot be used, or what is in force.
struct SandboxProbe {
  bool sandboxed = false;
  std::string detail;
};
SandboxProbe ProbeSandbox(SandboxProfile profile = SandboxProfile::kStrict);

}  // namespace tilewright::device_agent
