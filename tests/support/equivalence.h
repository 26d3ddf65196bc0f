// Whether two functions with the same parameters compute the same: both run on the same seeded
// inputs and their outputs are compared. Integers exactly; floats within a tolerance relative to
// the output's largest magnitude, because reductions may be reassociated. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"

namespace tilewright::tests {

using FunctionRunner = std::function<absl::Status(
    const ir::Function&, const std::vector<int64_t>& sizes, std::vector<ir::TensorData*>)>;

struct EquivalenceOptions {
  uint64_t seed = 1;
  std::vector<int64_t> sizes = {};
  double tolerance = 1e-4;
  int64_t max_steps = 20'000'000;
  // Runs `other`; the interpreter when empty.
  FunctionRunner run_other = {};
};

// OK, or what differs (test.equivalence.*): the first element with its index and both values, or
// the error of the run that failed. A failing run of `base` is test.equivalence.base.
absl::Status SameResults(const ir::Function& base, const ir::Function& other,
                         const EquivalenceOptions& options = {});

// Seeded data for every parameter: inputs and constants are small numbers, outputs are poison.
std::vector<ir::TensorData> SeededArguments(const ir::Function& f,
                                            const std::vector<int64_t>& sizes, uint64_t seed);

}  // namespace tilewright::tests
