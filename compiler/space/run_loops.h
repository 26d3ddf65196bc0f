// What a run of a scheduled function executes, and how long it takes by the analytical estimate.
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// Returns the function lowered to loops, without what depends on weights only: that runs once,
// untimed. Open sizes have the values of `sizes`, and no loop is longer than these need it. Errors
// of the passes.
absl::StatusOr<ir::Function> LowerRun(const ir::Function& scheduled, const target::Target& target,
                                      const std::map<std::string, int64_t>& sizes = {});

// Returns sizes so many times as large, each at least 1.
std::map<std::string, int64_t> Scaled(const std::map<std::string, int64_t>& sizes, double factor);

// Returns the estimate of one run, in ns. REQUIRES: fixed sizes, or a value for each open one, and
// a machine without a matrix unit, whose rules estimate points themselves. Errors: as LowerRun.
absl::StatusOr<double> EstimateRunNs(const ir::Function& scheduled, const target::Target& target,
                                     const std::map<std::string, int64_t>& sizes = {});

}  // namespace tilewright::space
