// The reference interpreter: the executable definition of the tensor IR, for every stage. Slow and
// strict: out-of-bounds accesses, reads of uninitialised intermediates, division by zero and
// step-limit overruns are errors (ir.interp.*).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace tilewright::ir {

// Row-major raw bytes of one parameter; size must equal the buffer's.
struct TensorData {
  std::vector<uint8_t> bytes;
};
struct InterpOptions {
  int64_t max_steps = 2'000'000'000;  // executed stores and loop iterations
  bool check_uninitialised = true;
  // Accesses inside a block must lie in the regions it declares (and in those of the blocks around
  // it).
  bool check_regions = false;
  // Outputs of the right size hold values already (kernels of one function that write one buffer
  // after the other); else outputs start unwritten.
  bool outputs_hold_values = false;
};
// `args` in parameter order (outputs are resized and overwritten); `sizes` in size_params order.
// Loops whose iterations are independent run in a seed-free but deliberately reversed order, so
// that a wrong claim shows. Thread loops around barriers run their threads side by side and report
// races (ir.interp.race) and divergent barriers (ir.interp.divergent).
absl::Status Interpret(const Function& function, const std::vector<int64_t>& sizes,
                       std::vector<TensorData*> args, const InterpOptions& options = {});
absl::StatusOr<int64_t> BufferElements(const Function& function, const Buffer& buffer,
                                       const std::vector<int64_t>& sizes);
// The value of a scalar integer or bool expression under an assignment of its variables. Loads are
// errors.
absl::StatusOr<int64_t> EvalIntExpr(const Expr& e,
                                    const std::vector<std::pair<Var, int64_t>>& values);

}  // namespace tilewright::ir
