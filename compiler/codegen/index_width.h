// Whether a kernel's indices fit into 32 bits, which GPUs compute at several times the speed of 64.
// Pure function; thread-safe.
#pragma once

#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// Returns whether every value of type i64 in `kernel` is known to fit into an i32, intermediate
// ones included: 32-bit arithmetic then gives the same without wrapping. False for kernels with
// size parameters or buffers of i64, whose values are known to callers only.
bool FitsInt32(const ir::Function& kernel);

}  // namespace tilewright::codegen
