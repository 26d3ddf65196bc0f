// Reductions as values: the combiners that operators use on tuples, and the one view of a reduction
// block that schedule steps need, whichever of the two forms it is written in (`C = C + x`, or a
// combine statement with a declared combiner). Pure functions; thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// A combiner with the values that it leaves alone: combine(identity, x) = x.
struct TupleReduction {
  std::shared_ptr<const TupleCombiner> combiner;
  std::vector<Expr> identity;
};

// (value, index) of the largest value; among equals the smallest index, so that the order does not
// matter. NaN is never the largest; where nothing else is there, the index is the type's largest.
TupleReduction ArgMax(DType value, DType index);
TupleReduction ArgMin(DType value, DType index);
// (m, l): the maximum, and Σ l·exp(value - m). A value x joins as (x, 1). Float types.
TupleReduction OnlineSoftmax(DType type);
// (m, l, o): online softmax with a weighted sum: Σ o·exp(value - m). A score s with its value v
// joins as (s, 1, v); the softmax-weighted mean is o / l. Float types.
TupleReduction OnlineAttention(DType type);
// (n, mean, m2): count, mean and Σ (x - mean)². A value x joins as (1, x, 0). Float types.
TupleReduction Welford(DType type);

// A reduction block taken apart. `targets[i]` is the store of element i (its value is what joins
// the element); `identity[i]` is what init stores there.
struct ReductionForm {
  std::shared_ptr<const TupleCombiner> combiner;
  std::vector<Stmt> targets;
  std::vector<Expr> identity;
  bool neutral = false;  // the identity surely leaves the combiner's other side alone
};
// Nothing where the block has no init or another form. A scalar reduction `C = C op x` or `C = x op
// C` with op + * min max gets the combiner that it spells out.
std::optional<ReductionForm> ReductionOf(const StmtNode& block);

}  // namespace tilewright::ir
