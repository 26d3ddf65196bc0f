// `tilewright run --sandbox`: the module's code runs in a child of tilewright-worker, confined as
// on devices. This process only reads the manifest.
#pragma once

#include <memory>

#include "tuner_server/cli/run_host.h"

namespace tilewright::cli {

// Starts the worker. failed_precondition with the reason if this machine cannot confine a process
// (run.sandbox.unavailable), or only in part (run.sandbox.weak) and `allow_weak` is false;
// resource_exhausted (run.sandbox.too_large) for tensors that do not fit
// into one message.
absl::StatusOr<std::unique_ptr<RunHost>> LoadInSandbox(module::ModuleFile file, int threads,
                                                       bool allow_weak);

}  // namespace tilewright::cli
