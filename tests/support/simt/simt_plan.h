// Runs functions that were cut into launches (compiler/codegen/host_device.h) as text on an
// emulated GPU. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/host_device.h"
#include "compiler/ir/interp.h"
#include "tests/support/simt/simt_compile.h"

namespace tilewright::simt {

// A plan and its compiled kernels.
struct CompiledPlan {
  codegen::HostPlan plan;
  std::vector<Kernel> kernels;  // of its launches
};
struct PlanText {
  Language language;
  codegen::HostPlan plan;
  std::string text;    // with a kernel for each launch
  uint32_t warp = 32;  // threads of a warp
};

// One compilation of all of them. simt.compile
absl::StatusOr<std::vector<CompiledPlan>> CompilePlans(const std::vector<PlanText>& texts);

// `args`: the function's parameters in order; outputs are written. Reads of outputs and temporaries
// that nothing has written are errors. The traffic of all launches is added to `traffic`, if given.
absl::Status RunPlan(const CompiledPlan& compiled, const std::vector<int64_t>& sizes,
                     const std::vector<ir::TensorData*>& args, Traffic* traffic = nullptr);

// What up to `groups` groups of each launch move, of a function of fixed sizes. Buffers have room
// and no values: kernels whose addresses depend on values are counted wrong.
absl::StatusOr<std::vector<TrafficParts>> CountPlan(const CompiledPlan& compiled, int64_t groups);

}  // namespace tilewright::simt
