// A request as launches and the code of their kernels: the part of a generator that all languages
// of kernels share. Pure function but for what `emit` does; thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir.h"

namespace tilewright::codegen {

struct KernelCode {
  std::string bytes;                  // the code object
  std::vector<std::string> features;  // of the device that runs it; sorted
};
using KernelEmitter =
    std::function<absl::StatusOr<KernelCode>(const std::vector<ir::Function>& kernels)>;

// Cuts each function into launches, checks their limits, and asks once for the code of all kernels.
// Errors of SplitHostDevice and CheckLaunchLimits; codegen.launch.symbolic where a grid or a
// temporary has no constant size.
absl::StatusOr<Artifact> GenerateLaunches(const Request& request, const KernelEmitter& emit);

}  // namespace tilewright::codegen
