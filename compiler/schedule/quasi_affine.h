// Quasi-affine forms of index expressions: a constant plus integer multiples of atoms, where an
// atom is a variable, a floordiv or floormod of a quasi-affine form by a constant, or anything else
// taken as a whole. Block bindings, loop bounds, regions and predicates of scheduled programs are
// of this kind. The forms answer the questions that schedule legality asks: what range a value has,
// which box a set of loops sweeps, and which loops the values determine (so that no two iterations
// coincide).
//
// AffineContext is a value; not thread-safe for writing. Nothing here allocates beyond the forms.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::schedule {

// Beyond any index that occurs: a bound at or past it means "not bounded".
inline constexpr int64_t kUnboundedIndex = int64_t{1} << 56;

// Inclusive on both sides.
struct IndexRange {
  int64_t lo = -kUnboundedIndex;
  int64_t hi = kUnboundedIndex;
  bool bounded() const { return lo > -kUnboundedIndex && hi < kUnboundedIndex; }
};

struct AffineTerm {
  ir::Expr atom;
  int64_t coeff = 1;
  IndexRange range;  // of the atom
};

// constant + Σ coeff · atom. Atoms are distinct; larger |coeff| first, then order of appearance.
struct AffineSum {
  std::vector<AffineTerm> terms;
  int64_t constant = 0;
  ir::DType dtype = ir::kI64;
};

// What is known about variables: their ranges, and what some of them stand for.
class AffineContext {
 public:
  // [min, min + extent) of a loop or iteration variable; unknown parts stay unbounded.
  void SetRange(const ir::Var& var, const ir::Range& range);
  void SetRange(const ir::Var& var, IndexRange range);
  // `var` stands for `value` from now on (value is over variables that are not themselves defined).
  void Define(const ir::Var& var, const ir::Expr& value);

  IndexRange RangeOfVar(const ir::ExprNode* var) const;
  AffineSum Normalize(const ir::Expr& e) const;
  IndexRange RangeOf(const AffineSum& sum) const;
  IndexRange RangeOf(const ir::Expr& e) const { return RangeOf(Normalize(e)); }
  // The normal form as an expression: definitions replaced, divisions split where ranges allow.
  ir::Expr Simplify(const ir::Expr& e) const;
  // A conjunction of comparisons without the conjuncts that always hold; null when all do.
  ir::Expr SimplifyPredicate(const ir::Expr& predicate) const;
  // +1 when `e` (a comparison or conjunction) always holds, -1 when it never does, 0 when unknown.
  int Decide(const ir::Expr& e) const;

 private:
  AffineSum Atom(const ir::Expr& e, IndexRange range) const;
  AffineSum Opaque(const ir::Expr& e) const;
  struct Factored {
    int64_t factor = 1;
    AffineSum high, low;
  };
  Factored Factor(AffineSum value, int64_t divisor) const;
  AffineSum NormalizeDiv(AffineSum value, int64_t divisor) const;
  AffineSum NormalizeMod(AffineSum value, int64_t divisor) const;
  ir::Expr SimplifyConjunct(const ir::Expr& e) const;

  std::vector<std::pair<ir::Var, IndexRange>> ranges_;
  std::vector<std::pair<ir::Var, AffineSum>> definitions_;
};

ir::Expr ToExpr(const AffineSum& sum);
void AddScaled(AffineSum* into, const AffineSum& other, int64_t factor);
bool SameSum(const AffineSum& a, const AffineSum& b);
bool Mentions(const AffineSum& sum, const ir::Var& var);

// The parts of a conjunction, left to right; empty for null.
std::vector<ir::Expr> Conjuncts(const ir::Expr& predicate);
ir::Expr Conjunction(const std::vector<ir::Expr>& parts);  // null when empty

// A conjunct of the form Σ terms <= hi, with the terms' coefficients as they stand.
struct UpperBound {
  AffineSum terms;  // constant 0
  int64_t hi = 0;
};
std::vector<UpperBound> UpperBounds(const AffineContext& context, const ir::Expr& predicate);
// `sum` with every group of terms that is a positive multiple of a bounded group replaced by one
// term whose range is cut at the bound. Ragged splits inside a tile become a box again. With
// `keep_apart` a bound on the whole sum is left alone.
AffineSum TightenByBounds(const AffineSum& sum, std::span<const UpperBound> bounds,
                          const AffineContext& context, bool keep_apart = false);

// The box that `sum` sweeps while the variables in `inner` run and all others stay: values lie in
// [min, min + width]. `exact` when every value of the box is taken.
struct Sweep {
  AffineSum min;
  int64_t width = 0;  // kUnboundedIndex when unknown
  bool exact = true;
};
Sweep SweepOver(const AffineSum& sum, std::span<const ir::Var> inner, const AffineContext& context);

// Which of `vars` the values of `sums` determine, all other variables being known. result[i]
// belongs to vars[i]; false means "cannot tell".
std::vector<bool> Determined(std::span<const AffineSum> sums, std::span<const ir::Var> vars,
                             std::span<const UpperBound> bounds, const AffineContext& context);

}  // namespace tilewright::schedule
