// Type rules over dimensions that are expressions: what InferTypes says for every size at once.
// Sizes are at least 2 where they broadcast: what broadcasts is written as 1. Equalities that hold
// only for some sizes are collected, not refused. Pure functions.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/dim.h"
#include "compiler/op/op.h"

namespace tilewright::op {

struct SymbolicType {
  ir::DType dtype = ir::kF32;
  std::vector<Dim> dims;
};
SymbolicType Symbolic(const TensorType& type);

// Pairs of dimensions that must have equal sizes.
using DimEqualities = std::vector<std::pair<Dim, Dim>>;

// One result type per output. In the attributes of operators that name sizes (`shape` of reshape,
// `sizes` of slice) -1 stands for one that follows from the operand. Adds to `equal`.
// op.<name>.symbolic for operators without such a rule and for rules that need fixed dimensions.
absl::StatusOr<std::vector<SymbolicType>> InferSymbolic(const OpSpec& spec,
                                                        std::span<const SymbolicType> inputs,
                                                        const Attrs& attrs, DimEqualities* equal);
// The attributes for results of these sizes: every -1 replaced.
Attrs SpecializeAttrs(const OpSpec& spec, const Attrs& attrs, const TensorType& result);

}  // namespace tilewright::op
