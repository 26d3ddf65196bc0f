// Reductions that a processor's dot products of four bytes compute (x86 vpdpbusd, ARM udot): what
// schedules and search rules turn into the tensor intrinsics generic.dot4. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "compiler/ir/ir.h"

namespace tilewright::schedule {

// Sums of products of four bytes each, C[.., j] += A[.., k] * B[.., j, k] with k in 0..4: the
// iterator j, and the tensor intrinsic's name without its lanes. Nothing where the block is no
// such.
struct DotProduct {
  int lane_axis = -1;
  // A spatial iterator along which B moves and A does not, like j: blocks of output channels. -1
  // where there is none.
  int block_axis = -1;
  std::string intrinsic;
};
std::optional<DotProduct> FindDotProduct(const ir::StmtNode& block);

}  // namespace tilewright::schedule
