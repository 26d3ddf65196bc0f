// `tilewright run --sandbox` and `--bridge`: the module's code runs in a child of
// tilewright-worker, confined as on devices, here or on a board. This process only reads the
// manifest.
#pragma once

#include <memory>
#include <string>

#include "tuner_server/cli/run_host.h"

namespace tilewright::cli {

struct SandboxPlace {
  // Shell command that runs the worker elsewhere, as `bridge=` of an agent's device. Empty: here.
  std::string bridge;
  // Accepts a sandbox that lacks a part; behind a bridge, also none at all.
  bool allow_weak = false;
};

// Starts the worker. failed_precondition with the reason if the worker's machine cannot confine a
// process (run.sandbox.unavailable), or only in part (run.sandbox.weak), and `place` does not
// accept that; resource_exhausted (run.sandbox.too_large) for tensors that do not fit into one
// message; internal (run.bridge.failed) if no worker answers behind the bridge.
absl::StatusOr<std::unique_ptr<RunHost>> LoadInSandbox(module::ModuleFile file, int threads,
                                                       const SandboxPlace& place);

}  // namespace tilewright::cli
