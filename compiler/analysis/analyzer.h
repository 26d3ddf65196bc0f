// What is known about the variables of a program (ranges, congruences, conditions that hold,
// definitions), and the questions that follow from it. The only store of such facts: address.h,
// access_region.h, footprint.h, injective.h and simplify.h ask it and answer more.
//
// Two premises. `Values` and `CongruenceOf` hold for every integer expression, wrapping included:
// where an operation might overflow, nothing is concluded. The affine form, and what follows from
// it, is about indices, which stay below kIndexLimit in every legal program.
//
// An Analyzer is a value; not thread-safe for writing. Variables must outlive what is known about
// them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/analysis/affine.h"
#include "compiler/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

class Analyzer {
 public:
  // Symbolic sizes are taken to be in [1, kMaxSize], so that index arithmetic on them is known not
  // to wrap.
  static constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;

  Analyzer() = default;
  // Knows the function's size parameters.
  explicit Analyzer(const ir::Function& function);

  // Facts. A variable without any has the range of its type.
  void Set(const ir::Var& var, Interval interval, Congruence congruence = {});
  // The variable runs over [min, min + extent); an empty range gives the point min.
  void SetRange(const ir::Var& var, const ir::Range& range);
  // `var` has the values of `value`, of which it does not keep the form.
  void SetValue(const ir::Var& var, const ir::Expr& value);
  // Iteration variables of a block: the domain, cut by the interval of the binding.
  void SetBlock(const ir::StmtNode& block);
  // Narrows variables by a condition known to hold: conjunctions of comparisons that are linear in
  // one variable at a time.
  void Assume(const ir::Expr& condition);
  // `var` stands for `value` in affine forms from now on. `value` is over variables that are not
  // themselves defined.
  void Define(const ir::Var& var, const ir::Expr& value);

  // The values a scalar or vector (all lanes) integer or bool expression may take.
  Interval Values(const ir::Expr& e) const { return Eval(*e).interval; }
  Congruence CongruenceOf(const ir::Expr& e) const { return Eval(*e).congruence; }
  // False: every congruence is trivial, and need not be asked for.
  bool has_congruences() const { return has_congruences_; }

  // The affine form of an index: definitions replaced, divisions split where ranges allow.
  AffineSum Affine(const ir::Expr& e) const;
  Interval Range(const ir::Expr& e) const { return RangeOf(Affine(e)); }
  // The affine form as an expression.
  ir::Expr Normal(const ir::Expr& e) const { return ToExpr(Affine(e)); }
  // A conjunction of comparisons in affine form without the conjuncts that always hold; null when
  // all do.
  ir::Expr NormalPredicate(const ir::Expr& predicate) const;
  // +1 when `e` (a comparison or conjunction) always holds, -1 when it never does, 0 when unknown.
  int Decide(const ir::Expr& e) const;

 private:
  struct Value {
    Interval interval;
    Congruence congruence;
  };
  static Value Point(int64_t v) { return {Interval::Point(v), {0, v}}; }
  Value Eval(const ir::ExprNode& e) const;
  Value EvalVar(const ir::ExprNode& e) const;
  Value EvalSelect(const ir::ExprNode& e) const;
  Value EvalCast(const ir::ExprNode& e) const;
  Value EvalRamp(const ir::ExprNode& e) const;
  Value EvalAbs(const ir::ExprNode& e) const;
  Value EvalCall(const ir::ExprNode& e) const;
  Value EvalBinary(const ir::ExprNode& e) const;
  bool NeverWraps(const ir::ExprNode& e) const;

  AffineSum Opaque(const ir::Expr& e) const;
  struct Factored {
    int64_t factor = 1;
    AffineSum high, low;
  };
  Factored Factor(AffineSum value, int64_t divisor) const;
  AffineSum FloorDiv(AffineSum value, int64_t divisor) const;
  AffineSum FloorMod(AffineSum value, int64_t divisor) const;
  ir::Expr Substituted(const ir::Expr& e) const;
  ir::Expr NormalConjunct(const ir::Expr& e) const;

  std::unordered_map<const ir::ExprNode*, Value> facts_;
  bool has_congruences_ = false;
  std::vector<std::pair<ir::Var, AffineSum>> definitions_;
};

}  // namespace tilewright::analysis
