// What a measuring process may do, profile `strict`: compute, allocate up to a limit, start threads
// of its own, read files while it loads; no network, no other process, no file opened for writing,
// no new privileges. Anything else ends it with SIGSYS. Applied by a fresh single-threaded child to
// itself, before it loads a candidate's code (whose constructors run on load).
#pragma once

#include <cstdint>
#include <string>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

struct SandboxLimits {
  int64_t memory_bytes = 0;  // address space beyond what is mapped now; 0 = no limit
  int64_t cpu_s = 0;         // processor seconds; 0 = no limit
  int64_t code_bytes = 0;    // what may be written to anonymous memory files while loading
};

// Resource limits, the parent-death signal, an unprivileged user where the process is root. They
// need no kernel support and come in any case. `parent` is the process whose end ends this one.
absl::Status ApplyLimits(const SandboxLimits& limits, int parent);

// The system-call filter. unavailable (sandbox.filter.*) where the kernel or the build has none.
absl::Status ApplyFilter();

// After loading: no file may be opened any more and nothing written but to open pipes. REQUIRES:
// ApplyFilter returned ok.
absl::Status SealFilter();

// Tries both in a child. The reason why the filter cannot be used, or what is in force.
struct SandboxProbe {
  bool sandboxed = false;
  std::string detail;
};
SandboxProbe ProbeSandbox();

}  // namespace tilewright::device_agent
