// What a measuring process may do. Profile `strict`: compute, allocate up to a limit, start
// threads of its own, read the loader's folders while it loads; no network, no other process, no
// file opened for writing, no new privileges. Any other call ends it with SIGSYS. Profile `driver`
// is for devices whose driver compiles and uses device nodes. While it loads, it may also read the
// system's folders, write a scratch folder, run the system's programs and use its device's nodes
// (driver_profile.h); afterwards it can write no file and start no process. A fresh
// single-threaded child applies the profile to itself before it loads a candidate's code, whose
// constructors run on load. The parent does and checks what changes after loading (outside_seal.h,
// driver_gate.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "device_agent/jail.h"
#include "device_agent/landlock.h"
#include "device_agent/seccomp_filter.h"

namespace tilewright::device_agent {

struct SandboxLimits {
  // Beyond what is mapped now: address space, for `driver` (which reserves much and uses little of
  // it) writable memory; 0 = no limit.
  int64_t memory_bytes = 0;
  int64_t cpu_s = 0;       // processor seconds; 0 = no limit
  int64_t code_bytes = 0;  // what may be written to anonymous memory files while loading
};

// The user and group that a measuring process of root becomes.
inline constexpr unsigned kNobody = 65534;

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
  const Jail* jail = nullptr;             // not owned; null: in the namespaces of the worker
  bool landlock = true;                   // profile driver is none without
  const FilterProgram* filter = nullptr;  // of MakeFilter, not owned; for ApplyFilter
};

// The allow-list of a profile, for ApplyFilter in any number of children. unavailable
// (sandbox.filter.*).
absl::StatusOr<FilterProgram> MakeFilter(SandboxProfile profile);

// Files and folders that the profile lets a process use.
std::vector<FileRule> FilesOf(const SandboxSpec& spec);

// Makes the namespaces for all measurements of this worker. Their scratch folders will be in the
// scratch folder of `spec`. unavailable (sandbox.*).
absl::StatusOr<std::unique_ptr<Jail>> MakeJail(const SandboxSpec& spec);

// Enters the jail, and applies resource limits and the parent-death signal. Drops root to an
// unprivileged user, and all capabilities. For `driver`, sets the environment that leads its files
// to the scratch folder. `parent` is the process whose end ends this one.
absl::Status ApplyLimits(const SandboxSpec& spec, int parent);

// Applies Landlock and then the system-call filter. unavailable (sandbox.filter.*,
// sandbox.landlock.*) if the kernel or the build has none.
absl::Status ApplyFilter(const SandboxSpec& spec);

// Makes a folder for DriverAccess::scratch, owned by the user of the measuring process. "": below
// the system's temporary folder.
absl::StatusOr<support::TempDir> MakeScratch(const std::string& parent = "");

// Removes the scratch folders that dead workers left.
void SweepScratch();

// What is in force, tried in a child.
struct SandboxProbe {
  bool sandboxed = false;  // the system-call filter, and for `driver` Landlock
  bool landlock = false;
  std::string detail;   // what is in force, or why the filter is not
  std::string missing;  // of the whole sandbox, with reasons; empty = nothing
};
SandboxProbe ProbeSandbox(SandboxProfile profile,
                          const absl::StatusOr<std::unique_ptr<Jail>>& jail);

}  // namespace tilewright::device_agent
