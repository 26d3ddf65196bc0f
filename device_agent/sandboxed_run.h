// Runs a module once for a person (`tilewright run --sandbox`), in a forked child that is confined
// before it loads the module's code.
#pragma once

#include <string_view>

#include "deploy/support/status.h"
#include "device_agent/cycle_counter.h"
#include "device_agent/sandbox.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// `module`: bytes of a model.tw. `filtered`: ProbeSandbox found that the system-call filter works;
// without it the child has what is left of the sandbox. Errors keep their slug: those of loading
// and running; data_loss
// (run.code.crashed) if the child ends without an answer, or its answer is no message or longer
// than the outputs are. `counter`: what times are read from on a board that counts cycles, else
// null. REQUIRES: a process without other threads.
absl::StatusOr<v1::ModuleRan> RunInSandbox(std::string_view module, const v1::RunModule& request,
                                           const SandboxSpec& sandbox, bool filtered,
                                           const CycleCounter* counter);

}  // namespace tilewright::device_agent
