// Checks that a function is well formed for its stage: types, unique names, variables and buffers
// in scope, index counts, block bindings and declared regions, no nodes of another stage.
// Everything between passes and after each schedule step is checked with it in tests. Errors:
// ir.verify.* with the offending text.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/ir.h"

namespace tilewright::ir {

absl::Status Verify(const Function& function);

}  // namespace tilewright::ir
