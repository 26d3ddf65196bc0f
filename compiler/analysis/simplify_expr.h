// The engine behind simplify.h: integer expressions as sums of terms with known ranges. Internal to
// compiler/analysis. One object per walk; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// Sums are for signed scalars. Unsigned arithmetic occurs in data only and is left as written
// (constants fold).
inline bool IsSumType(ir::DType t) { return t.code == ir::TypeCode::kInt && !t.is_vector(); }

class ExprSimplifier {
 public:
  explicit ExprSimplifier(const Analyzer& analyzer) : analyzer_(analyzer) {}

  ir::Expr Simplify(const ir::Expr& e);
  // Conditions (in simplified form) that hold where the next expressions stand.
  void PushAssumption(ir::Expr simplified) { assumptions_.push_back(std::move(simplified)); }
  void PopAssumption() { assumptions_.pop_back(); }
  // That a variable is below an expression: what loops of open extent say. Must be popped, too.
  void PushBound(const ir::Var& var, const ir::Expr& end);
  void PopBound() { bounds_.pop_back(); }

 private:
  using Wide = __int128;
  // In the ring of its type (wrapping): always equal to the expression it came from. Atoms are
  // simplified, with the ranges of their values.
  using Term = AffineTerm;
  using Sum = AffineSum;
  struct WideRange {
    Wide min, max;
  };

  // Building sums.
  void Accumulate(const ir::Expr& e, int64_t scale, Sum* sum);
  void Recombine(Sum* sum);
  void AddProduct(const Sum& factors, const ir::Expr& s, int64_t scale, Sum* sum);
  void JoinMultiples(Sum* sum);
  bool MergeMultiples(Sum* sum);
  bool RecombineOpen(Sum* sum);
  Sum SumOf(const ir::Expr& e);
  ir::Expr Build(Sum sum, const ir::Expr& original) const;

  // What the terms without the constant are congruent to; only of sums that are Exact.
  Congruence ResidueOf(const Sum& sum) const;
  // The sum modulo g, where g is the terms' modulus, or (c > 0) the part of it that divides c.
  // 0 and g <= 1 where nothing is known.
  int64_t Excess(const Sum& sum, int64_t c, int64_t* modulus) const;
  // The range of the true integer sum, and whether it surely fits its type: only then do order and
  // division mean what they mean for integers.
  WideRange RangeOf(const Sum& sum) const;
  bool Exact(const Sum& sum) const;
  Sum WithoutQuotients(Sum sum);
  static const Term* FinerQuotient(const Sum& sum, const Term& term, int64_t k);
  // The range under what bounds say of the sum's variables, those before the bound number `limit`.
  // REQUIRES: Exact(sum).
  WideRange RangeUnderBounds(const Sum& sum, size_t limit);
  Interval ClampedRange(const Sum& sum) const;

  // Integer operators that are not sums.
  Sum SimplifyAtom(const ir::Expr& e);
  Sum SimplifyMul(const ir::Expr& e);
  Sum SimplifyDivision(const ir::Expr& e);
  Sum DivideBy(Sum sum, int64_t c);
  Sum ModuloBy(Sum sum, int64_t c);
  std::optional<Sum> DivideByOpen(ir::ExprKind kind, const Sum& dividend, const ir::Expr& s);
  void CollectOperands(ir::ExprKind kind, const ir::Expr& e, std::vector<Sum>* operands);
  Sum SimplifyMinMax(const ir::Expr& e);
  Sum SimplifySelect(const ir::Expr& e);
  // Parts of `sum` by coefficient: quotient * c + rest.
  void SplitBy(const Sum& sum, int64_t c, Sum* quotient, Sum* rest);
  // rest = g * scaled + small with small in [0, g) and g | c; false when no such g > 1 exists.
  bool SplitByRange(const Sum& sum, int64_t c, int64_t* g, Sum* scaled, Sum* small);

  // Conditions and everything else.
  ir::Expr SimplifyBool(const ir::Expr& e);
  ir::Expr SimplifyLogical(const ir::Expr& e);
  ir::Expr SimplifyComparison(const ir::Expr& e);
  ir::Expr CompareSums(ir::ExprKind kind, const Sum& a, const Sum& b, const ir::Expr& original);
  ir::Expr LessThanZero(Sum difference);
  ir::Expr EqualsZero(Sum difference, bool negate);
  ir::Expr Side(const Sum& difference, int64_t sign, int64_t constant);
  ir::Expr SimplifyVector(const ir::Expr& e);
  ir::Expr SimplifyVectorBinary(const ir::Expr& e, const ir::Expr& a, const ir::Expr& b);
  ir::Expr SimplifyOther(const ir::Expr& e);
  ir::Expr Known(ir::Expr condition) const;
  ir::Expr Keep(const ir::Expr& built, const ir::Expr& original) const;

  const Analyzer& analyzer_;
  std::vector<ir::Expr> assumptions_;
  std::vector<Sum> bounds_;  // negative: the first term is the variable
};

}  // namespace tilewright::analysis
