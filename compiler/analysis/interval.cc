#include "compiler/analysis/interval.h"

#include <algorithm>
#include <numeric>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"

namespace tilewright::analysis {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::TypeCode;
using Wide = __int128;

// The interval around [min, max] with known ends below the limit. An end past the limit on the
// other side is cut to it, which is sound and keeps it known.
Interval Limited(Wide min, Wide max) {
  return {min <= -kIndexLimit ? Interval::kLeast
                              : static_cast<int64_t>(std::min<Wide>(min, kIndexLimit)),
          max >= kIndexLimit ? Interval::kMost
                             : static_cast<int64_t>(std::max<Wide>(max, -kIndexLimit))};
}

// The interval [lo, hi] of true integers, or the whole type when it may wrap.
Interval Fit(Wide lo, Wide hi, DType t, bool* wrapped = nullptr) {
  Interval type = TypeInterval(t);
  if (lo >= type.min && hi <= type.max) return {static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
  if (wrapped != nullptr) *wrapped = true;
  return type;
}

Interval DivInterval(ExprKind kind, DType t, const Interval& a, const Interval& b) {
  if (b.min == 0 && b.max > 0) return DivInterval(kind, t, a, {1, b.max});
  if (b.min <= 0 && b.max >= 0) {  // zero is an error of the program; any other divisor keeps |q|
                                   // <= |a| (+ 1 for flooring)
    Wide m = std::max<Wide>(-static_cast<Wide>(a.min), a.max);
    m = std::max<Wide>(m, 0);
    return Fit(-m - 1, m, t);
  }
  Wide lo = 0, hi = 0;
  bool first = true;
  for (int64_t x : {a.min, a.max}) {
    for (int64_t y : {b.min, b.max}) {
      Wide q = kind == ExprKind::kDiv ? static_cast<Wide>(x) / y : FloorDivWide(x, y);
      lo = first ? q : std::min(lo, q);
      hi = first ? q : std::max(hi, q);
      first = false;
    }
  }
  return Fit(lo, hi, t);
}

Interval FloorModInterval(DType t, const Interval& a, const Interval& b) {
  if (b.is_point() && b.min != 0 && FloorDivWide(a.min, b.min) == FloorDivWide(a.max, b.min)) {
    return {ir::FloorModInt(a.min, b.min), ir::FloorModInt(a.max, b.min)};
  }
  Wide lo = std::min<Wide>(static_cast<Wide>(b.min) + 1, 0);
  Wide hi = std::max<Wide>(static_cast<Wide>(b.max) - 1, 0);
  if (a.min >= 0 && b.min >= 0) hi = std::min<Wide>(hi, a.max);
  return Fit(lo, hi, t);
}

Interval ModInterval(DType t, const Interval& a, const Interval& b) {
  Wide m = std::max<Wide>(-static_cast<Wide>(b.min), b.max) - 1;
  m = std::max<Wide>(m, 0);
  Wide lo = a.min >= 0 ? 0 : std::max<Wide>(-m, a.min);
  Wide hi = a.max <= 0 ? 0 : std::min<Wide>(m, a.max);
  return Fit(lo, hi, t);
}

Interval CompareInterval(ExprKind kind, const Interval& a, const Interval& b) {
  constexpr Interval kFalse{0, 0}, kTrue{1, 1}, kUnknown{0, 1};
  switch (kind) {
    case ExprKind::kLt:
      return a.max < b.min ? kTrue : a.min >= b.max ? kFalse : kUnknown;
    case ExprKind::kLe:
      return a.max <= b.min ? kTrue : a.min > b.max ? kFalse : kUnknown;
    case ExprKind::kGt:
      return CompareInterval(ExprKind::kLt, b, a);
    case ExprKind::kGe:
      return CompareInterval(ExprKind::kLe, b, a);
    case ExprKind::kEq:
      if (a.is_point() && a == b) return kTrue;
      return a.max < b.min || b.max < a.min ? kFalse : kUnknown;
    case ExprKind::kNe: {
      Interval eq = CompareInterval(ExprKind::kEq, a, b);
      return {1 - eq.max, 1 - eq.min};
    }
    default:
      return kUnknown;
  }
}

Interval MulInterval(DType t, const Interval& a, const Interval& b, bool* wrapped) {
  Wide p[] = {Wide(a.min) * b.min, Wide(a.min) * b.max, Wide(a.max) * b.min, Wide(a.max) * b.max};
  return Fit(*std::min_element(p, p + 4), *std::max_element(p, p + 4), t, wrapped);
}

constexpr int64_t kMaxModulus = int64_t{1}
                                << 40;  // keeps products of moduli and remainders far from overflow

Congruence Normal(int64_t modulus, int64_t remainder) {
  if (modulus < 0) modulus = -modulus;
  if (modulus == 0) return {0, remainder};
  if (modulus > kMaxModulus) return {};
  return {modulus, ir::FloorModInt(remainder, modulus)};
}

bool Large(const Congruence& c) {
  return c.modulus == 0 && (c.remainder > kMaxModulus || c.remainder < -kMaxModulus);
}

}  // namespace

Interval Union(const Interval& a, const Interval& b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

Interval Intersect(const Interval& a, const Interval& b) {
  Interval r{std::max(a.min, b.min), std::min(a.max, b.max)};
  return r.min <= r.max ? r : a;
}

Interval TypeInterval(DType type) {
  if (type.code == TypeCode::kBool) return {0, 1};
  if (!type.is_int() || type.bits >= 64) return Interval::Everything();
  return {ir::MinInt(type), ir::MaxInt(type)};
}

Wide FloorDivWide(Wide a, Wide b) {
  Wide q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

bool HasPatterns(DType t) { return t.code == TypeCode::kUInt && t.bits == 64; }

Interval BinaryInterval(ExprKind kind, DType t, const Interval& a, const Interval& b,
                        bool* wrapped) {
  // Patterns of u64 above 2^63 look negative: only what surely stays below is ordered as here.
  if (HasPatterns(t) && (a.min < 0 || b.min < 0) && kind != ExprKind::kEq &&
      kind != ExprKind::kNe) {
    if (wrapped != nullptr) *wrapped = true;
    return ir::IsComparison(kind) ? Interval{0, 1} : Interval::Everything();
  }
  switch (kind) {
    case ExprKind::kAdd:
      return Fit(Wide(a.min) + b.min, Wide(a.max) + b.max, t, wrapped);
    case ExprKind::kSub:
      return Fit(Wide(a.min) - b.max, Wide(a.max) - b.min, t, wrapped);
    case ExprKind::kMul:
      return MulInterval(t, a, b, wrapped);
    case ExprKind::kDiv:
    case ExprKind::kFloorDiv:
      return DivInterval(kind, t, a, b);
    case ExprKind::kMod:
      return ModInterval(t, a, b);
    case ExprKind::kFloorMod:
      return FloorModInterval(t, a, b);
    case ExprKind::kMin:
      return {std::min(a.min, b.min), std::min(a.max, b.max)};
    case ExprKind::kMax:
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case ExprKind::kAnd:
      return {a.min & b.min, a.max & b.max};
    case ExprKind::kOr:
      return {a.min | b.min, a.max | b.max};
    default:
      return CompareInterval(kind, a, b);
  }
}

Congruence AddCongruence(const Congruence& a, const Congruence& b, int sign) {
  if (Large(a) || Large(b)) return {};
  return Normal(std::gcd(a.modulus, b.modulus), a.remainder + sign * b.remainder);
}

Congruence MulCongruence(const Congruence& a, const Congruence& b) {
  // (m1 k + r1)(m2 l + r2) = m1 m2 kl + m1 r2 k + m2 r1 l + r1 r2
  constexpr int64_t kSmall = int64_t{1} << 30;
  for (int64_t v : {a.modulus, a.remainder, b.modulus, b.remainder}) {
    if (v > kSmall || v < -kSmall) return {};
  }
  int64_t g =
      std::gcd(std::gcd(a.modulus * b.modulus, a.modulus * b.remainder), b.modulus * a.remainder);
  return Normal(g, a.remainder * b.remainder);
}

Congruence ModCongruence(const Congruence& a, int64_t divisor) {
  if (divisor >= kMaxModulus || a.modulus == 0) return {};
  return Normal(std::gcd(a.modulus, divisor), a.remainder);
}

Congruence UnionCongruence(const Congruence& a, const Congruence& b) {
  if (Large(a) || Large(b)) return a == b ? a : Congruence{};
  int64_t g = std::gcd(std::gcd(a.modulus, b.modulus), a.remainder - b.remainder);
  return Normal(g, a.remainder);
}

Interval AddIndices(Interval a, Interval b) {
  const bool no_min = a.min == Interval::kLeast || b.min == Interval::kLeast;
  const bool no_max = a.max == Interval::kMost || b.max == Interval::kMost;
  return Limited(no_min ? Wide{Interval::kLeast} : Wide{a.min} + b.min,
                 no_max ? Wide{Interval::kMost} : Wide{a.max} + b.max);
}

Interval ScaleIndices(Interval a, int64_t factor) {
  if (factor == 0) return Interval::Point(0);
  const Wide x = Wide{a.min} * factor, y = Wide{a.max} * factor;
  return factor > 0 ? Limited(x, y) : Limited(y, x);
}

Interval FloorDivIndices(Interval a, int64_t divisor) {
  return {a.min == Interval::kLeast ? a.min : ir::FloorDivInt(a.min, divisor),
          a.max == Interval::kMost ? a.max : ir::FloorDivInt(a.max, divisor)};
}

int64_t WidthOf(Interval a) {
  if (!a.has_both_ends()) return kIndexLimit;
  return static_cast<int64_t>(std::min<Wide>(Wide{a.max} - a.min, kIndexLimit));
}

int64_t AddWidths(int64_t a, int64_t b) { return std::min(kIndexLimit, a + b); }

int64_t MulWidths(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a >= kIndexLimit / b ? kIndexLimit : a * b;
}

}  // namespace tilewright::analysis
