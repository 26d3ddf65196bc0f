// Which loops a tuple of index values determines, so that no two iterations coincide. Pure
// functions; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "compiler/analysis/footprint.h"

namespace tilewright::analysis {

// In which of `vars` the map to the values of `sums` is injective: where result[i] is true, two
// points below the `bounds` that differ in vars[i] differ in a value, all variables that are not in
// `vars` being the same. False means "cannot tell".
std::vector<bool> InjectiveIn(std::span<const AffineSum> sums, std::span<const ir::Var> vars,
                              std::span<const UpperBound> bounds, const Analyzer& analyzer);

}  // namespace tilewright::analysis
