// What a run of a scheduled function executes, and how long it takes by the analytical estimate.
// Pure functions; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// Returns the function lowered to loops, without what depends on weights only: that runs once,
// untimed. Errors of the passes.
absl::StatusOr<ir::Function> LowerRun(const ir::Function& scheduled, const target::Target& target);

// Returns the estimate of one run, in ns. REQUIRES: fixed sizes, and a machine without a matrix
// unit, whose rules estimate points themselves. Errors: those of LowerRun.
absl::StatusOr<double> EstimateRunNs(const ir::Function& scheduled, const target::Target& target);

}  // namespace tilewright::space
