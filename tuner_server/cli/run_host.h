// Where `tilewright run` runs a module: in the calling process, or in a sandbox (run_sandbox.h).
// One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/runtime/run_times.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

class RunHost {
 public:
  virtual ~RunHost() = default;
  virtual const module::Manifest& manifest() const = 0;
  virtual int num_threads() const = 0;
  // Inputs to fill; outputs to read after Execute.
  virtual runtime::BoundTensors* tensors() = 0;
  virtual absl::StatusOr<runtime::RunTimes> Execute(int repeat, bool per_launch) = 0;
  // As Session::RunTraced. UNIMPLEMENTED (run.timeline.sandbox) in a sandbox.
  virtual absl::StatusOr<std::vector<runtime::LaunchTrace>> Trace() = 0;
};

// Loads the module's code into this process: its constructors run, with all rights of the caller.
// `device`: SessionOptions::device; `libraries`: LoadOptions::libraries.
absl::StatusOr<std::unique_ptr<runtime::Session>> LoadSession(
    module::ModuleFile file, int threads, const std::string& device = "",
    const std::vector<std::string>& libraries = {});

// The same as a host.
absl::StatusOr<std::unique_ptr<RunHost>> LoadHere(module::ModuleFile file, int threads,
                                                  const std::string& device,
                                                  const std::vector<std::string>& libraries = {});

}  // namespace tilewright::cli
