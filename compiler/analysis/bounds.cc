#include "compiler/analysis/bounds.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::ExprNode;
using ir::TypeCode;
using Wide = __int128;

bool IsU64(DType t) { return t.code == TypeCode::kUInt && t.bits == 64; }

// The interval [lo, hi] of true integers, or the whole type when it may wrap.
Interval Fit(Wide lo, Wide hi, DType t, bool* wrapped = nullptr) {
  Interval type = TypeInterval(t);
  if (lo >= type.min && hi <= type.max) return {static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
  if (wrapped != nullptr) *wrapped = true;
  return type;
}

Wide FloorDivWide(Wide a, Wide b) {
  Wide q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

Interval DivInterval(ExprKind kind, DType t, const Interval& a, const Interval& b) {
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

Interval BinaryWrapped(ExprKind kind, DType t, const Interval& a, const Interval& b,
                       bool* wrapped) {
  // Patterns of u64 above 2^63 look negative: only what surely stays below is ordered as here.
  if (IsU64(t) && (a.min < 0 || b.min < 0) && kind != ExprKind::kEq && kind != ExprKind::kNe) {
    *wrapped = true;
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

// ------------------------------------------------------------------------------------------------
// congruences

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

Congruence UnionCongruence(const Congruence& a, const Congruence& b) {
  if (Large(a) || Large(b)) return a == b ? a : Congruence{};
  int64_t g = std::gcd(std::gcd(a.modulus, b.modulus), a.remainder - b.remainder);
  return Normal(g, a.remainder);
}

struct Value {
  Interval interval;
  Congruence congruence;
};

Value Point(int64_t v) { return {Interval::Point(v), {0, v}}; }

Value EvalBinary(const ExprNode& e, const Value& a, const Value& b) {
  bool wrapped = false;
  DType operand = e.args[0]->dtype;
  Value r{BinaryWrapped(e.kind, operand, a.interval, b.interval, &wrapped), {}};
  if (r.interval.is_point()) return Point(r.interval.min);
  if (wrapped) return r;
  switch (e.kind) {
    case ExprKind::kAdd:
      r.congruence = AddCongruence(a.congruence, b.congruence, 1);
      break;
    case ExprKind::kSub:
      r.congruence = AddCongruence(a.congruence, b.congruence, -1);
      break;
    case ExprKind::kMul:
      r.congruence = MulCongruence(a.congruence, b.congruence);
      break;
    case ExprKind::kMin:
    case ExprKind::kMax:
      r.congruence = UnionCongruence(a.congruence, b.congruence);
      break;
    case ExprKind::kFloorMod:
      if (b.interval.is_point() && b.interval.min > 0 && b.interval.min < kMaxModulus &&
          a.congruence.modulus > 0) {
        r.congruence =
            Normal(std::gcd(a.congruence.modulus, b.interval.min), a.congruence.remainder);
      }
      break;
    default:
      break;
  }
  return r;
}

Value Eval(const ExprNode& e, const Bounds& bounds);

Value EvalSelect(const ExprNode& e, const Bounds& bounds) {
  Interval c = Eval(*e.args[0], bounds).interval;
  if (c == Interval::Point(1)) return Eval(*e.args[1], bounds);
  if (c == Interval::Point(0)) return Eval(*e.args[2], bounds);
  Value a = Eval(*e.args[1], bounds), b = Eval(*e.args[2], bounds);
  return {Union(a.interval, b.interval), UnionCongruence(a.congruence, b.congruence)};
}

Value EvalCast(const ExprNode& e, const Bounds& bounds) {
  DType from = e.args[0]->dtype;
  Interval type = TypeInterval(e.dtype);
  if (from.is_float()) return {type, {}};
  Value v = Eval(*e.args[0], bounds);
  if (e.dtype.is_bool()) {
    if (!v.interval.Contains(0)) return Point(1);
    return v.interval == Interval::Point(0) ? Point(0) : Value{type, {}};
  }
  bool pattern = IsU64(from) != IsU64(e.dtype) && v.interval.min < 0;
  return v.interval.Within(type) && !pattern ? v : Value{type, {}};
}

Value EvalRamp(const ExprNode& e, const Bounds& bounds) {
  Value base = Eval(*e.args[0], bounds), stride = Eval(*e.args[1], bounds);
  DType t = e.dtype.Element();
  bool wrapped = false;
  Interval steps =
      BinaryWrapped(ExprKind::kMul, t, stride.interval, {0, e.dtype.lanes - 1}, &wrapped);
  Interval sum = BinaryWrapped(ExprKind::kAdd, t, base.interval, steps, &wrapped);
  return {wrapped ? TypeInterval(t) : sum, {}};
}

Value Eval(const ExprNode& e, const Bounds& bounds) {
  if (e.dtype.is_float()) return {};
  switch (e.kind) {
    case ExprKind::kIntImm:
      return Point(e.int_value);
    case ExprKind::kVar: {
      Interval known = bounds.Get(&e), type = TypeInterval(e.dtype);
      if (!known.Within(type)) known = known.is_bounded() ? Intersect(known, type) : type;
      return known.is_point() ? Point(known.min) : Value{known, bounds.GetCongruence(&e)};
    }
    case ExprKind::kSelect:
      return EvalSelect(e, bounds);
    case ExprKind::kCast:
      return EvalCast(e, bounds);
    case ExprKind::kRamp:
      return EvalRamp(e, bounds);
    case ExprKind::kBroadcast:
      return Eval(*e.args[0], bounds);
    case ExprKind::kNot: {
      Interval v = Eval(*e.args[0], bounds).interval;
      return {{1 - v.max, 1 - v.min}, {}};
    }
    case ExprKind::kCall: {
      if (e.intrinsic != ir::Intrinsic::kAbs || IsU64(e.dtype)) return {TypeInterval(e.dtype), {}};
      Interval v = Eval(*e.args[0], bounds).interval;
      if (v.min >= 0) return {v, {}};
      if (v.min == ir::MinInt(e.dtype)) return {TypeInterval(e.dtype), {}};
      return {{v.max < 0 ? -v.max : 0, std::max(-v.min, v.max)}, {}};
    }
    case ExprKind::kLoad:
      return {TypeInterval(e.dtype), {}};
    default:
      break;
  }
  if (e.args[0]->dtype.is_float()) return {{0, 1}, {}};  // a comparison of floats
  return EvalBinary(e, Eval(*e.args[0], bounds), Eval(*e.args[1], bounds));
}

// No integer operation inside may wrap, so that the expression means what it says about true
// integers.
bool NeverWraps(const ExprNode& e, const Bounds& bounds) {
  for (const Expr& a : e.args) {
    if (!NeverWraps(*a, bounds)) return false;
  }
  if (e.kind != ExprKind::kAdd && e.kind != ExprKind::kSub && e.kind != ExprKind::kMul) return true;
  bool wrapped = false;
  BinaryWrapped(e.kind, e.dtype, Eval(*e.args[0], bounds).interval,
                Eval(*e.args[1], bounds).interval, &wrapped);
  return !wrapped;
}

}  // namespace

Interval TypeInterval(DType type) {
  if (type.code == TypeCode::kBool) return {0, 1};
  if (!type.is_int() || type.bits >= 64) return Interval::Everything();
  return {ir::MinInt(type), ir::MaxInt(type)};
}

Interval BinaryInterval(ExprKind kind, DType operand_type, const Interval& a, const Interval& b) {
  bool wrapped = false;
  return BinaryWrapped(kind, operand_type, a, b, &wrapped);
}

Bounds::Bounds(const ir::Function& function) {
  for (const ir::Var& v : function.size_params) Set(v, {1, kMaxSize});
}

void Bounds::Set(const ir::Var& var, Interval interval, Congruence congruence) {
  facts_[var.get()] = {interval, congruence};
  has_congruences_ |= congruence.modulus != 1;
}

void Bounds::SetRange(const ir::Var& var, const ir::Range& range) {
  Interval min = EvalInterval(range.min, *this), extent = EvalInterval(range.extent, *this);
  Wide last = Wide(min.max) + std::max<int64_t>(extent.max, 1) - 1;
  Interval type = TypeInterval(var->dtype);
  if (last > type.max) {
    Set(var, {min.min, type.max});
  } else {
    Set(var, {min.min, static_cast<int64_t>(last)});
  }
}

void Bounds::SetBlock(const ir::StmtNode& block) {
  for (const ir::IterVar& iter : block.iters) {
    SetRange(iter.var, iter.domain);
    if (iter.binding == nullptr) continue;
    Value binding = Eval(*iter.binding, *this);
    Set(iter.var, Intersect(Get(iter.var.get()), binding.interval), binding.congruence);
  }
}

void Bounds::Assume(const Expr& condition) {
  ExprKind kind = condition->kind;
  if (kind == ExprKind::kAnd) {
    Assume(condition->args[0]);
    Assume(condition->args[1]);
    return;
  }
  bool ordered = kind == ExprKind::kLt || kind == ExprKind::kLe || kind == ExprKind::kGt ||
                 kind == ExprKind::kGe || kind == ExprKind::kEq;
  if (!ordered || condition->dtype.is_vector()) return;
  Expr a = condition->args[0], b = condition->args[1];
  if (a->dtype.code != TypeCode::kInt || !NeverWraps(*a, *this) || !NeverWraps(*b, *this)) return;
  if (kind == ExprKind::kEq) {
    Assume(a <= b);
    Assume(b <= a);
    return;
  }
  if (kind == ExprKind::kGt || kind == ExprKind::kGe) std::swap(a, b);
  // sum(c_i v_i) + constant <= limit
  ir::SumTerms sum;
  ir::AddTermsOf(a, 1, &sum);
  ir::AddTermsOf(b, -1, &sum);
  struct Part {
    const Expr* var;
    Wide coefficient = 0;
    Interval range;
    Wide least() const { return coefficient * (coefficient >= 0 ? range.min : range.max); }
  };
  std::vector<Part> parts;
  for (const ir::SumTerm& term : sum.terms) {
    if ((*term.atom)->kind != ExprKind::kVar) return;
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& p) { return *p.var == *term.atom; });
    if (part == parts.end()) {
      part = parts.insert(part, {term.atom, 0, EvalInterval(*term.atom, *this)});
    }
    part->coefficient += term.coefficient;
  }
  const Wide limit = (kind == ExprKind::kLt || kind == ExprKind::kGt ? -1 : 0) - Wide{sum.constant};
  Wide lowest = 0;  // of the whole sum
  for (const Part& part : parts) lowest += part.least();
  for (const Part& part : parts) {
    const Wide c = part.coefficient, room = limit - (lowest - part.least());  // c * v <= room
    if (c == 0) continue;
    Interval v = part.range;
    if (c > 0) {
      Wide high = FloorDivWide(room, c);
      if (high >= v.min && high < v.max) v.max = static_cast<int64_t>(high);
    } else {
      Wide low = -FloorDivWide(room, -c);
      if (low > v.min && low <= v.max) v.min = static_cast<int64_t>(low);
    }
    Set(*part.var, v, GetCongruence(part.var->get()));
  }
}

Interval Bounds::Get(const ExprNode* var) const {
  auto it = facts_.find(var);
  return it == facts_.end() ? TypeInterval(var->dtype) : it->second.interval;
}

Congruence Bounds::GetCongruence(const ExprNode* var) const {
  auto it = facts_.find(var);
  return it == facts_.end() ? Congruence{} : it->second.congruence;
}

Interval EvalInterval(const Expr& e, const Bounds& bounds) { return Eval(*e, bounds).interval; }
Congruence EvalCongruence(const Expr& e, const Bounds& bounds) {
  return Eval(*e, bounds).congruence;
}

}  // namespace tilewright::analysis
