// What a schedule of open sizes costs at other sizes than its typical ones. Pure function;
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// Returns the log2 of a quotient: the time around the typical sizes over the time at these. The
// former is the geometric mean from half of them to twice as much; the latter is what a program of
// fixed sizes shows. Only differences of schedules of one function mean something. Counts stores,
// lowered as they will run: remainders are shorter than tiles, and conditions stay in the innermost
// loop where a tile has more borders than code is copied for. REQUIRES: a target whose kernels are
// loops, not groups of threads, and a typical value of each size parameter. Errors of the passes.
absl::StatusOr<double> OpenCost(const ir::Function& scheduled, const target::Target& target,
                                const std::map<std::string, int64_t>& typical);

}  // namespace tilewright::space
