// What is known about the variables of an index expression, and the questions that follow from it:
// its affine form, the values it takes, whether a condition holds. footprint.h and injective.h ask
// more. Index arithmetic stays below kIndexLimit: nothing here considers that it could wrap.
//
// An Analyzer is a value; not thread-safe for writing.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/analysis/affine.h"
#include "compiler/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

class Analyzer {
 public:
  // [min, min + extent) of a loop or iteration variable; unknown parts stay unbounded.
  void SetRange(const ir::Var& var, const ir::Range& range);
  void SetRange(const ir::Var& var, Interval range);
  // `var` stands for `value` from now on (value is over variables that are not themselves defined).
  void Define(const ir::Var& var, const ir::Expr& value);

  Interval RangeOfVar(const ir::ExprNode* var) const;
  Interval Range(const ir::Expr& e) const { return RangeOf(Affine(e)); }
  // The normal form: definitions replaced, divisions split where ranges allow.
  AffineSum Affine(const ir::Expr& e) const;
  // The normal form as an expression.
  ir::Expr Simplify(const ir::Expr& e) const { return ToExpr(Affine(e)); }
  // A conjunction of comparisons without the conjuncts that always hold; null when all do.
  ir::Expr SimplifyPredicate(const ir::Expr& predicate) const;
  // +1 when `e` (a comparison or conjunction) always holds, -1 when it never does, 0 when unknown.
  int Decide(const ir::Expr& e) const;
  bool Proves(const ir::Expr& e) const { return Decide(e) > 0; }

 private:
  AffineSum Atom(const ir::Expr& e, Interval range) const;
  AffineSum Opaque(const ir::Expr& e) const;
  struct Factored {
    int64_t factor = 1;
    AffineSum high, low;
  };
  Factored Factor(AffineSum value, int64_t divisor) const;
  AffineSum FloorDiv(AffineSum value, int64_t divisor) const;
  AffineSum FloorMod(AffineSum value, int64_t divisor) const;
  ir::Expr Substituted(const ir::Expr& e) const;
  ir::Expr SimplifyConjunct(const ir::Expr& e) const;

  std::vector<std::pair<ir::Var, Interval>> ranges_;
  std::vector<std::pair<ir::Var, AffineSum>> definitions_;
};

}  // namespace tilewright::analysis
