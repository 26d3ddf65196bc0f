// Sums whose terms are multiples of open sizes, as indices into rows of an open length are; their
// division and remainder by these.
#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/analysis/simplify_expr.h"
#include "compiler/ir/structural.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;

// y where the atom is y · s.
std::optional<Expr> FactorBeside(const Expr& atom, const Expr& s) {
  if (atom->kind != ExprKind::kMul) return std::nullopt;
  for (const size_t side : {0, 1}) {
    if (ir::StructuralEqual(atom->args[side], s)) return atom->args[1 - side];
  }
  return std::nullopt;
}

void Drop(AffineSum* sum, const Expr& a, const Expr& b) {
  std::erase_if(sum->terms, [&](const AffineTerm& t) { return t.atom == a || t.atom == b; });
}

}  // namespace

// Terms that are multiples of one open size become fewer where they can.
void ExprSimplifier::JoinMultiples(Sum* sum) {
  while (sum->terms.size() > 1 && (MergeMultiples(sum) || RecombineOpen(sum))) {
  }
}

// What is added to sum is scale · factors · s.
void ExprSimplifier::AddProduct(const Sum& factors, const Expr& s, int64_t scale, Sum* sum) {
  AddScaled(sum, SimplifyMul(Build(factors, nullptr) * s), scale);
}

// a · y · s + b · z · s = (a · y + b · z) · s, where that has fewer terms than y and z together.
bool ExprSimplifier::MergeMultiples(Sum* sum) {
  for (size_t i = 0; i < sum->terms.size(); ++i) {
    const Term first = sum->terms[i];
    if (first.atom->kind != ExprKind::kMul) continue;
    for (size_t j = i + 1; j < sum->terms.size(); ++j) {
      const Term second = sum->terms[j];
      for (const size_t side : {1, 0}) {
        const Expr s = first.atom->args[side];
        const std::optional<Expr> other = FactorBeside(second.atom, s);
        if (!other) continue;
        const Sum y = SumOf(first.atom->args[1 - side]), z = SumOf(*other);
        Sum factors{sum->dtype, {}, 0};
        AddScaled(&factors, y, first.coeff);
        AddScaled(&factors, z, second.coeff);
        if (factors.terms.size() >= y.terms.size() + z.terms.size()) continue;
        Drop(sum, first.atom, second.atom);
        AddProduct(factors, s, 1, sum);
        return true;
      }
    }
  }
  return false;
}

// a · (floordiv(x, s) + y) · s + a · floormod(x, s) = a · x + a · y · s: the row and the column of
// a number lie where it says. REQUIRES: s is no constant.
bool ExprSimplifier::RecombineOpen(Sum* sum) {
  for (const Term& of : sum->terms) {
    const Term remainder = of;
    if (remainder.atom->kind != ExprKind::kFloorMod) continue;
    const Expr x = remainder.atom->args[0], s = remainder.atom->args[1];
    if (ir::AsInt(s) != nullptr) continue;
    const Expr quotient = ir::FloorDiv(x, s);
    for (const Term& multiple : sum->terms) {
      const std::optional<Expr> rows = FactorBeside(multiple.atom, s);
      if (!rows || multiple.coeff != remainder.coeff) continue;
      Sum others = SumOf(*rows);
      const size_t before = others.terms.size();
      std::erase_if(others.terms, [&](const Term& t) {
        return t.coeff == 1 && ir::StructuralEqual(t.atom, quotient);
      });
      if (others.terms.size() == before) continue;
      Drop(sum, multiple.atom, remainder.atom);
      Accumulate(x, remainder.coeff, sum);
      AddProduct(others, s, remainder.coeff, sum);
      return true;
    }
  }
  return false;
}

// With the sum taken apart as quotient · s + rest: floordiv(sum, s) = quotient + floordiv(rest, s).
// The other one is floormod(rest, s). Nothing where no term is a multiple.
std::optional<AffineSum> ExprSimplifier::DivideByOpen(ExprKind kind, const Sum& dividend,
                                                      const Expr& s) {
  const int64_t least = analyzer_.Values(s).min;
  if (least < 0 || !Exact(dividend)) return std::nullopt;
  const Sum sum = WithoutQuotients(dividend);
  Sum quotient{sum.dtype, {}, 0}, rest{sum.dtype, {}, sum.constant};
  for (const Term& t : sum.terms) {
    const std::optional<Expr> rows = FactorBeside(t.atom, s);
    if (rows) {
      Accumulate(*rows, t.coeff, &quotient);
    } else if (ir::StructuralEqual(t.atom, s)) {
      AddConstant(&quotient, t.coeff);
    } else {
      AddTerm(&rest, t.coeff, t.atom, t.range);
    }
  }
  if (rest.terms.size() == sum.terms.size() || !Exact(rest)) return std::nullopt;
  const WideRange r = RangeOf(rest);
  const bool below = r.min >= -least && r.max < 0, inside = r.min >= 0 && r.max < least;
  const bool divides = kind == ExprKind::kFloorDiv;
  if (inside && !divides) return rest;
  if (divides && (inside || below)) {
    AddConstant(&quotient, below ? -1 : 0);
    return quotient;
  }
  const Sum last = SimplifyDivision(ir::Binary(kind, Build(rest, nullptr), s));
  if (!divides) return last;
  AddScaled(&quotient, last, 1);
  return quotient;
}

}  // namespace tilewright::analysis
