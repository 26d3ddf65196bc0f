// Sums: normal form of +, - and multiplication by constants; division and remainder by constants
// under known ranges.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "compiler/analysis/simplify_expr.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"

namespace tilewright::analysis {

using ir::DType;
using ir::Expr;
using ir::ExprKind;

namespace {

int64_t MulWrap(int64_t a, int64_t b, DType t) {
  return ir::WrapInt(static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)), t);
}
int64_t AddWrap(int64_t a, int64_t b, DType t) {
  return ir::WrapInt(static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)), t);
}

uint64_t Magnitude(int64_t v) {
  return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

// The operands of floordiv(x, c) or floormod(x, c) with a constant c > 0.
bool MatchByConstant(const Expr& e, ExprKind kind, int64_t* c) {
  if (e->kind != kind) return false;
  const int64_t* value = ir::AsInt(e->args[1]);
  if (value == nullptr || *value <= 0) return false;
  *c = *value;
  return true;
}

}  // namespace

void ExprSimplifier::AddTerm(int64_t coefficient, const Expr& e, const Interval& range, Sum* sum) {
  if (coefficient == 0) return;
  for (size_t i = 0; i < sum->terms.size(); ++i) {
    Term& t = sum->terms[i];
    if (t.e != e && !ir::StructuralEqual(t.e, e)) continue;
    t.coefficient = AddWrap(t.coefficient, coefficient, sum->type);
    if (t.coefficient == 0) sum->terms.erase(sum->terms.begin() + i);
    return;
  }
  sum->terms.push_back({coefficient, e, range});
}

void ExprSimplifier::AddSum(int64_t scale, const Sum& other, Sum* sum) {
  for (const Term& t : other.terms)
    AddTerm(MulWrap(scale, t.coefficient, sum->type), t.e, t.range, sum);
  sum->constant = AddWrap(sum->constant, MulWrap(scale, other.constant, sum->type), sum->type);
}

void ExprSimplifier::Accumulate(const Expr& e, int64_t scale, Sum* sum) {
  switch (e->kind) {
    case ExprKind::kIntImm:
      sum->constant = AddWrap(sum->constant, MulWrap(scale, e->int_value, sum->type), sum->type);
      return;
    case ExprKind::kVar: {
      Interval range = EvalInterval(e, bounds_);
      if (range.is_point()) {
        sum->constant = AddWrap(sum->constant, MulWrap(scale, range.min, sum->type), sum->type);
      } else {
        AddTerm(scale, e, range, sum);
      }
      return;
    }
    case ExprKind::kAdd:
      Accumulate(e->args[0], scale, sum);
      Accumulate(e->args[1], scale, sum);
      return;
    case ExprKind::kSub:
      Accumulate(e->args[0], scale, sum);
      Accumulate(e->args[1], MulWrap(scale, -1, sum->type), sum);
      return;
    case ExprKind::kMul:
      for (int side : {0, 1}) {
        const int64_t* c = ir::AsInt(e->args[side]);
        if (c == nullptr) continue;
        Accumulate(e->args[1 - side], MulWrap(scale, *c, sum->type), sum);
        return;
      }
      break;
    default:
      break;
  }
  AddSum(scale, SimplifyAtom(e), sum);
}

ExprSimplifier::Sum ExprSimplifier::SumOf(const Expr& e) {
  Sum sum{e->dtype, {}, 0};
  Accumulate(e, 1, &sum);
  if (sum.terms.size() > 1) Recombine(&sum);
  return sum;
}

ExprSimplifier::Sum ExprSimplifier::AtomSum(Expr e, const Interval& range) {
  if (range.is_point()) return {e->dtype, {}, range.min};
  if (const int64_t* c = ir::AsInt(e)) return {e->dtype, {}, *c};
  DType type = e->dtype;
  return {type, {{1, std::move(e), range}}, 0};
}

// a * c * floordiv(x, c) + a * floormod(x, c) = a * x, also where floordiv(x, c) has been merged
// into another division.
void ExprSimplifier::Recombine(Sum* sum) {
  for (size_t i = 0; i < sum->terms.size(); ++i) {
    int64_t c = 0;
    if (!MatchByConstant(sum->terms[i].e, ExprKind::kFloorMod, &c)) continue;
    int64_t a = sum->terms[i].coefficient, wanted = MulWrap(a, c, sum->type);
    bool candidate = false;
    for (const Term& t : sum->terms)
      candidate |= t.coefficient == wanted && t.e->kind != ExprKind::kFloorMod;
    if (!candidate) continue;
    Expr x = sum->terms[i].e->args[0];
    Sum x_sum{sum->type, {}, 0};
    Accumulate(x, 1, &x_sum);
    Sum quotient = DivideBy(x_sum, c);
    if (quotient.terms.size() != 1 || quotient.terms[0].coefficient != 1 || quotient.constant != 0)
      continue;
    auto match = std::find_if(sum->terms.begin(), sum->terms.end(), [&](const Term& t) {
      return t.coefficient == wanted && ir::StructuralEqual(t.e, quotient.terms[0].e);
    });
    if (match == sum->terms.end()) continue;
    Expr div = match->e, mod = sum->terms[i].e;
    std::erase_if(sum->terms, [&](const Term& t) { return t.e == div || t.e == mod; });
    AddSum(a, x_sum, sum);
    i = static_cast<size_t>(-1);  // start over: x may bring further pairs together
  }
}

ExprSimplifier::WideRange ExprSimplifier::RangeOf(const Sum& sum) const {
  // At most 2^126 per term would overflow with many terms: cut each at 2^100, far outside every
  // type.
  constexpr Wide kHuge = Wide{1} << 100;
  WideRange r{sum.constant, sum.constant};
  for (const Term& t : sum.terms) {
    Wide lo = Wide(t.coefficient) * (t.coefficient > 0 ? t.range.min : t.range.max);
    Wide hi = Wide(t.coefficient) * (t.coefficient > 0 ? t.range.max : t.range.min);
    r.min += std::max(lo, -kHuge);
    r.max += std::min(hi, kHuge);
  }
  return r;
}

bool ExprSimplifier::Exact(const Sum& sum) const {
  WideRange r = RangeOf(sum);
  Interval type = TypeInterval(sum.type);
  return r.min >= type.min && r.max <= type.max;
}

Interval ExprSimplifier::ClampedRange(const Sum& sum) const {
  WideRange r = RangeOf(sum);
  Interval type = TypeInterval(sum.type);
  if (r.min < type.min || r.max > type.max) return type;
  return {static_cast<int64_t>(r.min), static_cast<int64_t>(r.max)};
}

// Positive terms first, those with the largest coefficients in front (as a flat index is written),
// then the others, then the constant.
Expr ExprSimplifier::Build(const Sum& sum, const Expr& original) {
  std::vector<Term> terms = sum.terms;
  std::stable_sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    return Magnitude(a.coefficient) > Magnitude(b.coefficient);
  });
  Expr r;
  auto add = [&](int64_t c, const Expr& e) {
    // The most negative coefficient has no positive counterpart: it is added as it is.
    bool subtract = r != nullptr && c < 0 && c != ir::MinInt(sum.type);
    int64_t magnitude = subtract ? -c : c;
    Expr part = magnitude == 1 ? e : e * ir::Int(magnitude, sum.type);
    r = r == nullptr ? part : subtract ? r - part : r + part;
  };
  for (const Term& t : terms) {
    if (t.coefficient > 0) add(t.coefficient, t.e);
  }
  int64_t constant = sum.constant;
  if (r == nullptr && constant != 0) {  // c - x rather than x * -1 + c
    r = ir::Int(constant, sum.type);
    constant = 0;
  }
  for (const Term& t : terms) {
    if (t.coefficient < 0) add(t.coefficient, t.e);
  }
  if (r == nullptr) r = ir::Int(0, sum.type);
  if (constant != 0) {
    bool subtract = constant < 0 && constant != ir::MinInt(sum.type);
    r = subtract ? r - ir::Int(-constant, sum.type) : r + ir::Int(constant, sum.type);
  }
  return original != nullptr ? Keep(r, original) : r;
}

// ------------------------------------------------------------------------------------------------
// division

void ExprSimplifier::SplitBy(const Sum& sum, int64_t c, Sum* quotient, Sum* rest) {
  *quotient = {sum.type, {}, 0};
  *rest = {sum.type, {}, 0};
  for (const Term& t : sum.terms) {
    int64_t q = t.coefficient / c,
            r = t.coefficient % c;  // truncating: the rest keeps its sign and gets smaller
    if (q != 0) quotient->terms.push_back({q, t.e, t.range});
    if (r != 0) rest->terms.push_back({r, t.e, t.range});
  }
  quotient->constant = ir::FloorDivInt(sum.constant, c);
  rest->constant = ir::FloorModInt(sum.constant, c);
}

bool ExprSimplifier::SplitByRange(const Sum& sum, int64_t c, int64_t* g, Sum* scaled, Sum* small) {
  std::vector<int64_t> candidates;
  for (const Term& t : sum.terms) {
    int64_t candidate = std::gcd(t.coefficient, c);
    if (candidate > 1) candidates.push_back(candidate);
  }
  std::sort(candidates.rbegin(), candidates.rend());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  for (int64_t candidate : candidates) {
    *scaled = {sum.type, {}, 0};
    *small = {sum.type, {}, sum.constant};
    for (const Term& t : sum.terms) {
      bool divisible = t.coefficient % candidate == 0;
      int64_t coefficient = divisible ? t.coefficient / candidate : t.coefficient;
      (divisible ? scaled : small)->terms.push_back({coefficient, t.e, t.range});
    }
    WideRange r = RangeOf(*small);
    Interval type = TypeInterval(sum.type);
    if (r.min < type.min || r.max > type.max) continue;
    int64_t whole = ir::FloorDivInt(static_cast<int64_t>(r.min), candidate);
    if (ir::FloorDivInt(static_cast<int64_t>(r.max), candidate) != whole) continue;
    scaled->constant = whole;
    small->constant = AddWrap(small->constant, MulWrap(whole, -candidate, sum.type), sum.type);
    if (!Exact(*scaled)) continue;
    *g = candidate;
    return true;
  }
  return false;
}

Congruence ExprSimplifier::ResidueOf(const Sum& sum) const {
  constexpr int64_t kLargest = int64_t{1} << 31;
  if (!bounds_.has_congruences()) return {};
  Congruence all{0, 0};
  for (const Term& t : sum.terms) {
    Congruence of = EvalCongruence(t.e, bounds_);
    if (t.coefficient > kLargest || t.coefficient < -kLargest || of.modulus > kLargest ||
        of.remainder > kLargest || of.remainder < -kLargest)
      return {};
    int64_t modulus = std::gcd(all.modulus, of.modulus * t.coefficient);
    int64_t remainder = all.remainder + of.remainder * t.coefficient;
    all = {modulus, modulus == 0 ? remainder : ir::FloorModInt(remainder, modulus)};
    if (all.modulus == 1 || all.remainder > kLargest * kLargest / 4) return {};
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
ExprSimplifier::Sum ExprSimplifier::DivideBy(Sum sum, int64_t c) {
  DType type = sum.type;
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
    quotient.constant = AddWrap(quotient.constant, low, type);
    return quotient;
  }
  int64_t g = 0, inner = 0;
  Sum scaled, small;
  // Only every g-th value occurs: what the constant is above one of them does not count.
  if (int64_t excess = std::min(Excess(rest, c, &g), rest.constant); excess != 0) {
    Sum lower = rest;
    lower.constant -= excess;
    if (Exact(lower)) {
      AddSum(1, DivideBy(std::move(lower), c), &quotient);
      return quotient;
    }
  }
  if (SplitByRange(rest, c, &g, &scaled, &small)) {
    AddSum(1, DivideBy(std::move(scaled), c / g), &quotient);
    return quotient;
  }
  bool single = rest.terms.size() == 1 && rest.terms[0].coefficient == 1 && rest.constant == 0;
  if (single && MatchByConstant(rest.terms[0].e, ExprKind::kFloorDiv, &inner)) {
    int64_t product = 0;
    if (!__builtin_mul_overflow(inner, c, &product) && product <= ir::MaxInt(type)) {
      Sum x{type, {}, 0};
      Accumulate(rest.terms[0].e->args[0], 1, &x);
      AddSum(1, DivideBy(std::move(x), product), &quotient);
      return quotient;
    }
  }
  AddSum(1, atom(rest), &quotient);
  return quotient;
}

// floormod(sum, c) for c > 0.
ExprSimplifier::Sum ExprSimplifier::ModuloBy(Sum sum, int64_t c) {
  DType type = sum.type;
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
    if (!MatchByConstant(t.e, ExprKind::kFloorMod, &d) || d % c != 0) continue;
    Sum opened{type, {}, rest.constant}, x{type, {}, 0};
    Accumulate(t.e->args[0], 1, &x);
    for (const Term& other : rest.terms) {
      if (&other != &t) AddTerm(other.coefficient, other.e, other.range, &opened);
    }
    AddSum(t.coefficient, x, &opened);
    if (Exact(x) && Exact(opened)) return ModuloBy(std::move(opened), c);
  }
  WideRange r = RangeOf(rest);
  int64_t low = ir::FloorDivInt(static_cast<int64_t>(r.min), c);
  if (ir::FloorDivInt(static_cast<int64_t>(r.max), c) == low) {
    rest.constant = AddWrap(rest.constant, MulWrap(low, -c, type), type);
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
      result.constant = AddWrap(result.constant, excess, type);
      return result;
    }
  }
  if (SplitByRange(rest, c, &g, &scaled, &small)) {
    AddSum(g, ModuloBy(std::move(scaled), c / g), &small);
    return small;
  }
  return atom(rest);
}

ExprSimplifier::Sum ExprSimplifier::SimplifyDivision(const Expr& e) {
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
  Interval range = BinaryInterval(kind, e->dtype, ClampedRange(a), ClampedRange(b));
  Expr left = Build(a, e->args[0]), right = Build(b, e->args[1]);
  // A division by what may be zero must stay, whatever its value would be.
  Expr built = ir::Binary(kind, left, right);
  bool may_fail = b.is_constant() && b.constant == 0;
  if (may_fail) return {e->dtype, {{1, Keep(built, e), TypeInterval(e->dtype)}}, 0};
  return AtomSum(Keep(built, e), range);
}

}  // namespace tilewright::analysis
