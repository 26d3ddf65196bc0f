// Whether the parallel and vectorised loops of a scheduled function are free of conflicts, found by
// running through every iteration: no element may be written in one iteration and touched in
// another, except in buffers that a parallel loop has to itself. Independent of the schedule's own
// legality analysis; the interpreter cannot see most of these, because recomputed values are equal.
// Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"

namespace tilewright::tests {

// test.race.conflict with loop, buffer, element and the two iterations; test.race.budget after
// `max_accesses`; test.race.form where an expression cannot be evaluated.
absl::Status CheckRaces(const ir::Function& scheduled, const std::vector<int64_t>& sizes,
                        int64_t max_accesses = 2'000'000);

}  // namespace tilewright::tests
