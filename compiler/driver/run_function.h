// Runs one function of the tensor IR on this machine, compiled or interpreted, and compares the
// two: what tilewright-opt --run does. Pure functions; compiled code runs in this process, so the
// caller trusts the function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"
#include "compiler/transform/passes.h"

namespace tilewright::driver {

// One TensorData per parameter: inputs and constants drawn from `seed`, outputs zeroed.
absl::StatusOr<std::vector<ir::TensorData>> SeededArguments(const ir::Function& f,
                                                            const std::vector<int64_t>& sizes,
                                                            uint64_t seed);

struct CompiledRun {
  std::vector<ir::TensorData> arguments;  // after the call
  double codegen_seconds = 0, link_seconds = 0;
  std::vector<double> run_seconds;  // one per repeat
};
// Lowers (unless flat), compiles for ctx.target, runs `repeats` times with guarded buffers.
// driver.run.failed with the kernel's code, driver.run.overrun where bytes outside a buffer
// changed.
absl::StatusOr<CompiledRun> RunCompiledFunction(const ir::Function& f,
                                                const std::vector<int64_t>& sizes,
                                                std::vector<ir::TensorData> arguments,
                                                const transform::PassContext& ctx, int repeats);

struct OutputDifference {
  std::string output;
  int64_t elements = 0, mismatches = 0;
  std::string text;  // the first element that differs, with both values
};
// One row per output; floats within |a - e| <= atol + rtol * |e|, everything else exactly.
absl::StatusOr<std::vector<OutputDifference>> CompareOutputs(
    const ir::Function& f, const std::vector<ir::TensorData>& actual,
    const std::vector<ir::TensorData>& expected, double rtol, double atol);

}  // namespace tilewright::driver
