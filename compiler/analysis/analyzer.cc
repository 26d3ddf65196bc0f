// Affine forms of indices, and the conditions that they decide.
#include "compiler/analysis/analyzer.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;

// Small enough that sums and products of a few such numbers cannot overflow.
bool Small(int64_t value) { return std::abs(value) < (int64_t{1} << 31); }

// floordiv(x, c) * c*k + floormod(x, c) * k  ->  x * k.
void RejoinDivisions(AffineSum* sum, const Analyzer& analyzer) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const AffineTerm& mod : sum->terms) {
      int64_t m = 0;
      if (!IsDivision(mod.atom, ExprKind::kFloorMod, &m)) continue;
      for (const AffineTerm& div : sum->terms) {
        int64_t d = 0;
        if (!IsDivision(div.atom, ExprKind::kFloorDiv, &d)) continue;
        if (d != m || div.coeff != mod.coeff * m) continue;
        if (!SameAtom(div.atom->args[0], mod.atom->args[0])) continue;
        AffineTerm old_div = div, old_mod = mod;
        AddTerm(sum, -old_div.coeff, old_div.atom, old_div.range);
        AddTerm(sum, -old_mod.coeff, old_mod.atom, old_mod.range);
        AddScaled(sum, analyzer.Affine(old_div.atom->args[0]), old_mod.coeff);
        changed = true;
        break;
      }
      if (changed) break;
    }
  }
}

// lhs - rhs of a comparison as `difference < 0` (kLt), `== 0` (kEq) or `!= 0` (kNe).
AffineSum Difference(const Analyzer& analyzer, const Expr& e, ExprKind* kind) {
  bool swap = e->kind == ExprKind::kGt || e->kind == ExprKind::kGe;
  AffineSum d = analyzer.Affine(e->args[swap ? 1 : 0]);
  AddScaled(&d, analyzer.Affine(e->args[swap ? 0 : 1]), -1);
  SortTerms(&d);
  if (e->kind == ExprKind::kLe || e->kind == ExprKind::kGe) d.constant -= 1;
  *kind = e->kind == ExprKind::kEq || e->kind == ExprKind::kNe ? e->kind : ExprKind::kLt;
  return d;
}

// Comparisons of scalar signed integers are the ones understood here.
bool IsIndexCompare(const Expr& e) {
  return ir::IsComparison(e->kind) && !e->dtype.is_vector() &&
         e->args[0]->dtype.code == ir::TypeCode::kInt;
}

}  // namespace

void Analyzer::Define(const ir::Var& var, const Expr& value) {
  definitions_.emplace_back(var, Affine(value));
}

// Anything that has no form of its own stays as it is, with definitions replaced inside.
AffineSum Analyzer::Opaque(const Expr& e) const {
  if (e->kind == ExprKind::kMin || e->kind == ExprKind::kMax) {
    AffineSum a = Affine(e->args[0]), b = Affine(e->args[1]);
    const Interval ra = RangeOf(a), rb = RangeOf(b);
    const bool is_min = e->kind == ExprKind::kMin;
    if (ra.max <= rb.min) return is_min ? a : b;
    if (rb.max <= ra.min) return is_min ? b : a;
    return AtomSum(ir::Binary(e->kind, ToExpr(a), ToExpr(b)),
                   BinaryInterval(e->kind, e->dtype, ra, rb));
  }
  const Expr atom = Substituted(e);
  const bool is_index = e->dtype.code == ir::TypeCode::kInt && !e->dtype.is_vector();
  return AtomSum(atom, is_index ? Values(atom) : Interval{});
}

// Definitions replaced, and nothing else.
Expr Analyzer::Substituted(const Expr& e) const {
  if (definitions_.empty()) return e;
  ir::VarMap map;
  for (const auto& [var, value] : definitions_) map[var.get()] = ToExpr(value);
  return ir::Substitute(e, map);
}

// value = factor * high + low with low in [0, factor): the part that a division by a multiple of
// `factor` does not see. The largest such factor of `divisor`; 1 when there is none.
Analyzer::Factored Analyzer::Factor(AffineSum value, int64_t divisor) const {
  SortTerms(&value);
  int64_t g = divisor;
  for (size_t k = 1; k <= value.terms.size() && g > 1; ++k) {
    g = std::gcd(g, value.terms[k - 1].coeff);
    Factored f{g, {}, {}};
    f.high.dtype = f.low.dtype = value.dtype;
    f.high.constant = ir::FloorDivInt(value.constant, g);
    f.low.constant = ir::FloorModInt(value.constant, g);
    for (const AffineTerm& t : value.terms) {
      if (t.coeff % g == 0) {
        f.high.terms.push_back({t.atom, t.coeff / g, t.range});
      } else {
        f.low.terms.push_back(t);
      }
    }
    Interval r = RangeOf(f.low);
    if (g > 1 && r.min >= 0 && r.max < g) return f;
  }
  Factored whole{1, std::move(value), {}};
  whole.low.dtype = whole.high.dtype;
  return whole;
}

AffineSum Analyzer::FloorDiv(AffineSum value, int64_t divisor) const {
  AffineSum whole;  // what leaves the division
  whole.dtype = value.dtype;
  AffineSum rest;
  rest.dtype = value.dtype;
  for (AffineTerm& t : value.terms) {
    if (t.coeff % divisor == 0) {
      whole.terms.push_back({t.atom, t.coeff / divisor, t.range});
    } else {
      rest.terms.push_back(std::move(t));
    }
  }
  rest.constant = ir::FloorModInt(value.constant, divisor);
  whole.constant = ir::FloorDivInt(value.constant, divisor);
  Interval r = RangeOf(rest);
  if (r.has_both_ends() && ir::FloorDivInt(r.min, divisor) == ir::FloorDivInt(r.max, divisor)) {
    whole.constant += ir::FloorDivInt(r.min, divisor);
    return whole;
  }
  auto [g, high, low] = Factor(std::move(rest), divisor);
  rest = std::move(high);
  divisor /= g;
  // floordiv(floordiv(x, a), b) = floordiv(x, a * b).
  int64_t inner = 0;
  if (rest.terms.size() == 1 && rest.constant == 0 && rest.terms[0].coeff == 1 &&
      IsDivision(rest.terms[0].atom, ExprKind::kFloorDiv, &inner) && Small(inner) &&
      Small(divisor)) {
    AffineSum merged = FloorDiv(Affine(rest.terms[0].atom->args[0]), inner * divisor);
    AddScaled(&whole, merged, 1);
    return whole;
  }
  r = RangeOf(rest);
  Interval quotient = FloorDivIndices(r, divisor);
  SortTerms(&rest);
  Expr atom = ir::FloorDiv(ToExpr(rest), ir::Int(divisor, rest.dtype));
  AddScaled(&whole, AtomSum(atom, quotient), 1);
  return whole;
}

AffineSum Analyzer::FloorMod(AffineSum value, int64_t divisor) const {
  Interval whole = RangeOf(value);
  if (whole.has_both_ends() &&
      ir::FloorDivInt(whole.min, divisor) == ir::FloorDivInt(whole.max, divisor)) {
    value.constant -= ir::FloorDivInt(whole.min, divisor) * divisor;
    return value;
  }
  AffineSum rest;
  rest.dtype = value.dtype;
  for (AffineTerm& t : value.terms) {
    // Other coefficients stay: the quotient of the same value has the same operand.
    if (t.coeff % divisor != 0) rest.terms.push_back(std::move(t));
  }
  rest.constant = ir::FloorModInt(value.constant, divisor);
  Interval r = RangeOf(rest);
  if (r.has_both_ends() && ir::FloorDivInt(r.min, divisor) == ir::FloorDivInt(r.max, divisor)) {
    rest.constant -= ir::FloorDivInt(r.min, divisor) * divisor;
    return rest;
  }
  auto [g, scaled, result] = Factor(std::move(rest), divisor);
  divisor /= g;
  SortTerms(&scaled);
  Expr atom = ir::FloorMod(ToExpr(scaled), ir::Int(divisor, rest.dtype));
  AddScaled(&result, AtomSum(atom, {0, divisor - 1}), g);
  return result;
}

AffineSum Analyzer::Affine(const Expr& e) const {
  switch (e->kind) {
    case ExprKind::kVar:
      for (const auto& [var, value] : definitions_) {
        if (var == e) return value;
      }
      return AtomSum(e, EvalVar(*e).interval);
    case ExprKind::kIntImm: {
      AffineSum sum;
      sum.dtype = e->dtype;
      sum.constant = e->int_value;
      return sum;
    }
    case ExprKind::kAdd:
    case ExprKind::kSub: {
      if (e->dtype.code != ir::TypeCode::kInt) return Opaque(e);
      AffineSum sum = Affine(e->args[0]);
      AddScaled(&sum, Affine(e->args[1]), e->kind == ExprKind::kAdd ? 1 : -1);
      RejoinDivisions(&sum, *this);
      SortTerms(&sum);
      return sum;
    }
    case ExprKind::kMul: {
      const int64_t* right = ir::AsInt(e->args[1]);
      const int64_t* factor = right != nullptr ? right : ir::AsInt(e->args[0]);
      if (factor == nullptr || !Small(*factor) || *factor == 0) return Opaque(e);
      AffineSum value = Affine(e->args[right != nullptr ? 0 : 1]);
      bool safe =
          Small(value.constant) && std::all_of(value.terms.begin(), value.terms.end(),
                                               [](const AffineTerm& t) { return Small(t.coeff); });
      if (!safe) return Opaque(e);
      AffineSum sum;
      sum.dtype = e->dtype;
      AddScaled(&sum, value, *factor);
      return sum;
    }
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod: {
      int64_t divisor = 0;
      if (!IsDivision(e, e->kind, &divisor)) return Opaque(e);
      AffineSum value = Affine(e->args[0]);
      AffineSum sum = e->kind == ExprKind::kFloorDiv ? FloorDiv(std::move(value), divisor)
                                                     : FloorMod(std::move(value), divisor);
      SortTerms(&sum);
      return sum;
    }
    default:
      return Opaque(e);
  }
}

int Analyzer::Decide(const Expr& e) const {
  if (e->kind == ExprKind::kIntImm) return e->int_value != 0 ? 1 : -1;
  if (e->kind == ExprKind::kAnd) {
    int a = Decide(e->args[0]), b = Decide(e->args[1]);
    return a < 0 || b < 0 ? -1 : std::min(a, b);
  }
  if (!IsIndexCompare(e)) return 0;
  ExprKind kind;
  Interval r = RangeOf(Difference(*this, e, &kind));
  if (kind == ExprKind::kLt) return r.max < 0 ? 1 : r.min >= 0 ? -1 : 0;
  int equal = r.min == 0 && r.max == 0 ? 1 : r.min > 0 || r.max < 0 ? -1 : 0;
  return kind == ExprKind::kEq ? equal : -equal;
}

Expr Analyzer::NormalConjunct(const Expr& e) const {
  if (!IsIndexCompare(e)) return Substituted(e);
  ExprKind kind;
  AffineSum d = Difference(*this, e, &kind);
  AffineSum left, right;
  left.dtype = right.dtype = d.dtype;
  for (const AffineTerm& t : d.terms) {
    AffineSum& side = t.coeff > 0 ? left : right;
    side.terms.push_back({t.atom, std::abs(t.coeff), t.range});
  }
  if (left.terms.empty() && d.constant > 0) {
    left.constant = d.constant;  // 3 < i, not 0 < i - 3
  } else {
    right.constant = -d.constant;
  }
  return ir::Binary(kind, ToExpr(left), ToExpr(right));
}

Expr Analyzer::NormalPredicate(const Expr& predicate) const {
  std::vector<Expr> kept;
  for (const Expr& part : ir::Conjuncts(predicate)) {
    if (Decide(part) > 0) continue;
    Expr simple = NormalConjunct(part);
    bool known = std::any_of(kept.begin(), kept.end(),
                             [&](const Expr& k) { return ir::StructuralEqual(k, simple); });
    if (!known) kept.push_back(std::move(simple));
  }
  return ir::Conjunction(kept);
}

}  // namespace tilewright::analysis
