// Sums: normal form of +, - and multiplication by constants; division and remainder by constants
// under known ranges.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "compiler/analysis/simplify_expr.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"

namespace tilewright::analysis {

using ir::DType;
using ir::Expr;
using ir::ExprKind;

void ExprSimplifier::Accumulate(const Expr& e, int64_t scale, Sum* sum) {
  ir::VisitTerms(
      e, scale,
      [&](const Expr& atom, int64_t coeff) {
        if (atom->kind != ExprKind::kVar) return AddScaled(sum, SimplifyAtom(atom), coeff);
        const Interval range = analyzer_.Values(atom);
        if (range.is_point()) return AddConstant(sum, ir::MulWrapping(coeff, range.min));
        AddTerm(sum, ir::WrapInt(coeff, sum->dtype), atom, range);
      },
      [&](int64_t value) { AddConstant(sum, value); });
}

AffineSum ExprSimplifier::SumOf(const Expr& e) {
  Sum sum{e->dtype, {}, 0};
  Accumulate(e, 1, &sum);
  if (sum.terms.size() > 1) Recombine(&sum);
  JoinMultiples(&sum);
  return sum;
}

// a * c * floordiv(x, c) + a * floormod(x, c) = a * x, also where floordiv(x, c) has been merged
// into another division.
void ExprSimplifier::Recombine(Sum* sum) {
  for (size_t i = 0; i < sum->terms.size(); ++i) {
    int64_t c = 0;
    if (!IsDivision(sum->terms[i].atom, ExprKind::kFloorMod, &c)) continue;
    int64_t a = sum->terms[i].coeff, wanted = ir::WrapInt(ir::MulWrapping(a, c), sum->dtype);
    bool candidate = false;
    for (const Term& t : sum->terms)
      candidate |= t.coeff == wanted && t.atom->kind != ExprKind::kFloorMod;
    if (!candidate) continue;
    Expr x = sum->terms[i].atom->args[0];
    Sum x_sum{sum->dtype, {}, 0};
    Accumulate(x, 1, &x_sum);
    Sum quotient = DivideBy(x_sum, c);
    if (quotient.terms.size() != 1 || quotient.terms[0].coeff != 1 || quotient.constant != 0)
      continue;
    auto match = std::find_if(sum->terms.begin(), sum->terms.end(), [&](const Term& t) {
      return t.coeff == wanted && ir::StructuralEqual(t.atom, quotient.terms[0].atom);
    });
    if (match == sum->terms.end()) continue;
    Expr div = match->atom, mod = sum->terms[i].atom;
    std::erase_if(sum->terms, [&](const Term& t) { return t.atom == div || t.atom == mod; });
    AddScaled(sum, x_sum, a);
    i = static_cast<size_t>(-1);  // start over: x may bring further pairs together
  }
}

ExprSimplifier::WideRange ExprSimplifier::RangeOf(const Sum& sum) const {
  // At most 2^126 per term would overflow with many terms: cut each at 2^100, far outside every
  // type.
  constexpr Wide kHuge = Wide{1} << 100;
  WideRange r{sum.constant, sum.constant};
  for (const Term& t : sum.terms) {
    Wide lo = Wide(t.coeff) * (t.coeff > 0 ? t.range.min : t.range.max);
    Wide hi = Wide(t.coeff) * (t.coeff > 0 ? t.range.max : t.range.min);
    r.min += std::max(lo, -kHuge);
    r.max += std::min(hi, kHuge);
  }
  return r;
}

bool ExprSimplifier::Exact(const Sum& sum) const {
  WideRange r = RangeOf(sum);
  Interval type = TypeInterval(sum.dtype);
  return r.min >= type.min && r.max <= type.max;
}

void ExprSimplifier::PushBound(const ir::Var& var, const ir::Expr& end) {
  Sum below{var->dtype, {}, 0};
  if (IsSumType(var->dtype) && end->dtype == var->dtype) {
    AddTerm(&below, 1, var, analyzer_.Values(var));
    const Sum limit = SumOf(end);
    if (Exact(limit)) AddScaled(&below, limit, -1);
    if (!Exact(limit) || !Exact(below)) below.terms.clear();
  }
  bounds_.push_back(std::move(below));  // of no terms: says nothing
}

// q·k · floordiv(x, k) = q · x - q · floormod(x, k), of which the last is small. Next to
// floordiv(x, d) with k = d·m, x is that quotient: floordiv(x, k) = floordiv(floordiv(x, d), m).
AffineSum ExprSimplifier::WithoutQuotients(Sum sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const Term term = sum.terms[i];
    int64_t k = 0;
    if (!IsDivision(term.atom, ExprKind::kFloorDiv, &k)) continue;
    Sum x{sum.dtype, {}, 0};
    Expr dividend = term.atom->args[0];
    if (term.coeff % k == 0) {
      x = SumOf(dividend);
    } else if (const Term* finer = FinerQuotient(sum, term, k)) {
      k /= *ir::AsInt(finer->atom->args[1]);
      dividend = finer->atom;
      AddTerm(&x, 1, finer->atom, finer->range);
    } else {
      continue;
    }
    if (!Exact(x)) continue;
    Sum replaced = sum;
    AddTerm(&replaced, -term.coeff, term.atom, term.range);
    AddScaled(&replaced, x, term.coeff / k);
    AddTerm(&replaced, -(term.coeff / k), ir::FloorMod(dividend, ir::Int(k, sum.dtype)),
            {0, k - 1});
    if (!Exact(replaced)) continue;
    sum = std::move(replaced);
    i = static_cast<size_t>(-1);  // the places moved
  }
  return sum;
}

// The term of the sum whose quotient of the same x the quotient `term` by k is made of in whole
// multiples; null if there is none.
const AffineTerm* ExprSimplifier::FinerQuotient(const Sum& sum, const Term& term, int64_t k) {
  for (const Term& other : sum.terms) {
    int64_t d = 0;
    if (!IsDivision(other.atom, ExprKind::kFloorDiv, &d) || d >= k || k % d != 0) continue;
    if (term.coeff % (k / d) != 0) continue;
    if (ir::StructuralEqual(other.atom->args[0], term.atom->args[0])) return &other;
  }
  return nullptr;
}

ExprSimplifier::WideRange ExprSimplifier::RangeUnderBounds(const Sum& sum, size_t limit) {
  WideRange range = RangeOf(sum);
  constexpr int64_t kMostCoeff = int64_t{1} << 31;
  for (size_t i = std::min(limit, bounds_.size()); i-- > 0;) {
    const Sum& bound = bounds_[i];  // <= -1
    if (bound.terms.empty()) continue;
    const auto term = std::find_if(sum.terms.begin(), sum.terms.end(),
                                   [&](const Term& t) { return t.atom == bound.terms[0].atom; });
    if (term == sum.terms.end() || std::abs(term->coeff) > kMostCoeff) continue;
    // sum = coeff * bound + rest, and the bound is at most -1.
    Sum rest = sum;
    AddScaled(&rest, bound, -term->coeff);
    rest = WithoutQuotients(std::move(rest));
    if (!Exact(rest)) continue;
    const WideRange left = RangeUnderBounds(rest, i);
    if (term->coeff > 0) range.max = std::min(range.max, left.max - term->coeff);
    if (term->coeff < 0) range.min = std::max(range.min, left.min - term->coeff);
  }
  return range;
}

Interval ExprSimplifier::ClampedRange(const Sum& sum) const {
  WideRange r = RangeOf(sum);
  Interval type = TypeInterval(sum.dtype);
  if (r.min < type.min || r.max > type.max) return type;
  return {static_cast<int64_t>(r.min), static_cast<int64_t>(r.max)};
}

// The largest coefficients in front, as a flat index is written.
Expr ExprSimplifier::Build(Sum sum, const Expr& original) const {
  SortTerms(&sum);
  const Expr built = ToExpr(sum);
  return original != nullptr ? Keep(built, original) : built;
}

// ------------------------------------------------------------------------------------------------
// division

void ExprSimplifier::SplitBy(const Sum& sum, int64_t c, Sum* quotient, Sum* rest) {
  *quotient = {sum.dtype, {}, 0};
  *rest = {sum.dtype, {}, 0};
  for (const Term& t : sum.terms) {
    int64_t q = t.coeff / c,
            r = t.coeff % c;  // truncating: the rest keeps its sign and gets smaller
    if (q != 0) quotient->terms.push_back({t.atom, q, t.range});
    if (r != 0) rest->terms.push_back({t.atom, r, t.range});
  }
  quotient->constant = ir::FloorDivInt(sum.constant, c);
  rest->constant = ir::FloorModInt(sum.constant, c);
}

bool ExprSimplifier::SplitByRange(const Sum& sum, int64_t c, int64_t* g, Sum* scaled, Sum* small) {
  std::vector<int64_t> candidates;
  for (const Term& t : sum.terms) {
    int64_t candidate = std::gcd(t.coeff, c);
    if (candidate > 1) candidates.push_back(candidate);
  }
  std::sort(candidates.rbegin(), candidates.rend());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  for (int64_t candidate : candidates) {
    *scaled = {sum.dtype, {}, 0};
    *small = {sum.dtype, {}, sum.constant};
    for (const Term& t : sum.terms) {
      bool divisible = t.coeff % candidate == 0;
      int64_t coefficient = divisible ? t.coeff / candidate : t.coeff;
      (divisible ? scaled : small)->terms.push_back({t.atom, coefficient, t.range});
    }
    WideRange r = RangeOf(*small);
    Interval type = TypeInterval(sum.dtype);
    if (r.min < type.min || r.max > type.max) continue;
    int64_t whole = ir::FloorDivInt(static_cast<int64_t>(r.min), candidate);
    if (ir::FloorDivInt(static_cast<int64_t>(r.max), candidate) != whole) continue;
    scaled->constant = whole;
    AddConstant(small, ir::MulWrapping(whole, -candidate));
    if (!Exact(*scaled)) continue;
    *g = candidate;
    return true;
  }
  return false;
}

Congruence ExprSimplifier::ResidueOf(const Sum& sum) const {
  if (!analyzer_.has_congruences()) return {};
  Congruence all{0, 0};
  for (const Term& t : sum.terms) {
    if (all.modulus == 1) break;
    all = AddCongruence(all, MulCongruence(analyzer_.CongruenceOf(t.atom), {0, t.coeff}));
  }
  return all;
}

int64_t ExprSimplifier::Excess(const Sum& sum, int64_t c, int64_t* modulus) const {
  Congruence residue = ResidueOf(sum);
  *modulus = c == 0 ? residue.modulus : std::gcd(residue.modulus, c);
  if (*modulus <= 1) return 0;
  Wide whole = Wide(residue.remainder) + sum.constant;
  Wide excess = whole % *modulus;
  return static_cast<int64_t>(excess < 0 ? excess + *modulus : excess);
}

// floordiv(sum, c) for c > 0. With the sum taken apart as quotient * c + rest this is quotient +
// floordiv(rest, c).
AffineSum ExprSimplifier::DivideBy(Sum sum, int64_t c) {
  DType type = sum.dtype;
  if (c == 1) return sum;
  Interval divisor = Interval::Point(c);
  auto atom = [&](const Sum& of) {
    Interval range = BinaryInterval(ExprKind::kFloorDiv, type, ClampedRange(of), divisor);
    return AtomSum(ir::FloorDiv(Build(of, nullptr), ir::Int(c, type)), range);
  };
  if (!Exact(sum)) return atom(sum);
  Sum quotient, rest;
  SplitBy(sum, c, &quotient, &rest);
  if (!Exact(rest)) return atom(sum);
  WideRange r = RangeOf(rest);
  int64_t low = ir::FloorDivInt(static_cast<int64_t>(r.min), c);
  if (ir::FloorDivInt(static_cast<int64_t>(r.max), c) ==
      low) {  // the rest stays between two multiples of c
    AddConstant(&quotient, low);
    return quotient;
  }
  int64_t g = 0, inner = 0;
  Sum scaled, small;
  // Only every g-th value occurs: what the constant is above one of them does not count.
  if (int64_t excess = std::min(Excess(rest, c, &g), rest.constant); excess != 0) {
    Sum lower = rest;
    lower.constant -= excess;
    if (Exact(lower)) {
      AddScaled(&quotient, DivideBy(std::move(lower), c), 1);
      return quotient;
    }
  }
  if (SplitByRange(rest, c, &g, &scaled, &small)) {
    AddScaled(&quotient, DivideBy(std::move(scaled), c / g), 1);
    return quotient;
  }
  bool single = rest.terms.size() == 1 && rest.terms[0].coeff == 1 && rest.constant == 0;
  if (single && IsDivision(rest.terms[0].atom, ExprKind::kFloorDiv, &inner)) {
    int64_t product = 0;
    if (!__builtin_mul_overflow(inner, c, &product) && product <= ir::MaxInt(type)) {
      Sum x{type, {}, 0};
      Accumulate(rest.terms[0].atom->args[0], 1, &x);
      AddScaled(&quotient, DivideBy(std::move(x), product), 1);
      return quotient;
    }
  }
  AddScaled(&quotient, atom(rest), 1);
  return quotient;
}

// floormod(sum, c) for c > 0.
AffineSum ExprSimplifier::ModuloBy(Sum sum, int64_t c) {
  DType type = sum.dtype;
  if (c == 1) return {type, {}, 0};
  auto atom = [&](const Sum& of) {
    Interval range =
        BinaryInterval(ExprKind::kFloorMod, type, ClampedRange(of), Interval::Point(c));
    return AtomSum(ir::FloorMod(Build(of, nullptr), ir::Int(c, type)), range);
  };
  if (!Exact(sum)) return atom(sum);
  Sum quotient, rest;
  SplitBy(sum, c, &quotient, &rest);
  if (!Exact(rest)) return atom(sum);
  // floormod(x, d) is x modulo every divisor of d.
  for (const Term& t : rest.terms) {
    int64_t d = 0;
    if (!IsDivision(t.atom, ExprKind::kFloorMod, &d) || d % c != 0) continue;
    Sum opened{type, {}, rest.constant}, x{type, {}, 0};
    Accumulate(t.atom->args[0], 1, &x);
    for (const Term& other : rest.terms) {
      if (&other != &t) AddTerm(&opened, other.coeff, other.atom, other.range);
    }
    AddScaled(&opened, x, t.coeff);
    if (Exact(x) && Exact(opened)) return ModuloBy(std::move(opened), c);
  }
  WideRange r = RangeOf(rest);
  int64_t low = ir::FloorDivInt(static_cast<int64_t>(r.min), c);
  if (ir::FloorDivInt(static_cast<int64_t>(r.max), c) == low) {
    AddConstant(&rest, ir::MulWrapping(low, -c));
    return rest;
  }
  int64_t g = 0;
  Sum scaled, small;
  int64_t excess = Excess(rest, c, &g);
  if (g == c) return {type, {}, excess};
  excess = std::min(excess, rest.constant);
  if (excess != 0) {
    Sum lower = rest;
    lower.constant -= excess;
    if (Exact(lower)) {
      Sum result = ModuloBy(std::move(lower), c);
      AddConstant(&result, excess);
      return result;
    }
  }
  if (SplitByRange(rest, c, &g, &scaled, &small)) {
    AddScaled(&small, ModuloBy(std::move(scaled), c / g), g);
    return small;
  }
  return atom(rest);
}

AffineSum ExprSimplifier::SimplifyDivision(const Expr& e) {
  Sum a = SumOf(e->args[0]), b = SumOf(e->args[1]);
  ExprKind kind = e->kind;
  bool non_negative = Exact(a) && RangeOf(a).min >= 0;
  if (kind == ExprKind::kDiv && non_negative && b.is_constant() && b.constant > 0)
    kind = ExprKind::kFloorDiv;
  if (kind == ExprKind::kMod && non_negative && b.is_constant() && b.constant > 0)
    kind = ExprKind::kFloorMod;
  if (b.is_constant() && b.constant > 0 && kind == ExprKind::kFloorDiv)
    return DivideBy(std::move(a), b.constant);
  if (b.is_constant() && b.constant > 0 && kind == ExprKind::kFloorMod)
    return ModuloBy(std::move(a), b.constant);
  const bool floors = kind == ExprKind::kFloorDiv || kind == ExprKind::kFloorMod;
  if (floors && !b.is_constant()) {
    if (auto parts = DivideByOpen(kind, a, Build(b, e->args[1]))) return *std::move(parts);
  }
  Interval range = BinaryInterval(kind, e->dtype, ClampedRange(a), ClampedRange(b));
  Expr left = Build(a, e->args[0]), right = Build(b, e->args[1]);
  // A division by what may be zero must stay, whatever its value would be.
  Expr built = ir::Binary(kind, left, right);
  bool may_fail = b.is_constant() && b.constant == 0;
  if (may_fail) return {e->dtype, {{Keep(built, e), 1, TypeInterval(e->dtype)}}, 0};
  return AtomSum(Keep(built, e), range);
}

}  // namespace tilewright::analysis
