// What the primitives that take reductions apart share: the loops of a reduction by what they feed,
// and the form of its update. Pure functions over immutable trees; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/schedule/legality.h"

namespace tilewright::schedule {

// The loops of a block split at one of its loops.
struct Cut {
  std::vector<ir::Stmt> spatial;  // at or below the loop, feeding spatial iterators
  std::vector<ir::Stmt> reduce;   // at or below the loop, feeding reduction iterators
};
// Refuses (reduction_outside, mixed_loop) where a reduction loop is above, or one loop feeds both.
absl::StatusOr<Cut> CutLoops(const Step& step, const BlockSite& site, const ir::Var& at);

// Every iteration at or below the loop must be work of its own: otherwise a point would be added to
// twice after one init. Refuses (repeated).
absl::Status CheckOnce(const Step& step, const ir::Function& f, const BlockSite& site,
                       const ir::Var& at);

// Of the predicate what speaks about spatial loops; a conjunct over reduction loops only says which
// steps of the reduction there are. Refuses (mixed_predicate) one over both.
absl::StatusOr<std::vector<ir::Expr>> SpatialConjuncts(const Step& step, const BlockSite& site,
                                                       const Cut& cut);

// B[p] = B[p] op value (or value op B[p]) with op's identity as init, op associative and
// commutative up to rounding.
struct Combine {
  ir::ExprKind op;
  ir::Expr value, identity;
  bool accumulator_first = true;
  ir::Expr Apply(ir::Expr accumulator, ir::Expr with) const {
    return accumulator_first ? ir::Binary(op, accumulator, with)
                             : ir::Binary(op, with, accumulator);
  }
};
std::optional<Combine> CombineOf(const ir::StmtNode& block);

}  // namespace tilewright::schedule
