// Products of weights that are fields of words with fixed-point activations
// (op/fixed_point_dense.h): what the default schedule and a search rule turn into the tensor
// intrinsics generic.dot4_nibbles and generic.dot4_bytes. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// Two reductions. One sums, for each group, limb and column, products of bytes A[.., w, k] and
// fields of words W[.., w, j]: its iterators are [.., limb, j, w, (p,) k], of which p counts the
// fields of a byte. The other reads these sums and adds up its last iterator, the groups.
struct FieldSums {
  std::string sums, result = {};       // the blocks
  int lane_axis = -1, word_axis = -1;  // of the first: j and w
  int64_t block = 0, lanes = 0;        // extent of j; vectors of it on the machine
  std::string intrinsic = {};          // without its lanes
};
// Returns nullopt if the function has no such pair.
std::optional<FieldSums> FindFieldSums(const ir::Function& function,
                                       const target::Machine& machine);

}  // namespace tilewright::space
