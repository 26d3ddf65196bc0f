// Facts about variables, and the values of expressions under them: sound with wrapping arithmetic.
#include <algorithm>
#include <utility>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"

namespace tilewright::analysis {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::ExprNode;

namespace {

using Wide = __int128;

}  // namespace

Analyzer::Analyzer(const ir::Function& function) {
  for (const ir::Var& v : function.size_params) Set(v, {1, kMaxSize});
}

void Analyzer::Set(const ir::Var& var, Interval interval, Congruence congruence) {
  facts_[var.get()] = {interval, congruence};
  has_congruences_ |= congruence.modulus != 1;
}

void Analyzer::SetRange(const ir::Var& var, const ir::Range& range) {
  // Loops run over indices: both premises hold for their ends.
  auto ends = [&](const Expr& e) {
    const Interval values = Values(e);
    return values.is_point() ? values : Intersect(values, Range(e));
  };
  const Interval min = ends(range.min), extent = ends(range.extent);
  const Wide last = Wide{min.max} + std::max<int64_t>(extent.max, 1) - 1;
  const Interval type = TypeInterval(var->dtype);
  Set(var, {min.min, last > type.max ? type.max : static_cast<int64_t>(last)});
}

void Analyzer::SetValue(const ir::Var& var, const Expr& value) {
  const Value v = Eval(*value);
  Set(var, v.interval, v.congruence);
}

void Analyzer::SetBlock(const ir::StmtNode& block) {
  for (const ir::IterVar& iter : block.iters) {
    SetRange(iter.var, iter.domain);
    if (iter.binding == nullptr) continue;
    const Value binding = Eval(*iter.binding);
    Set(iter.var, Intersect(Values(iter.var), binding.interval), binding.congruence);
  }
}

void Analyzer::Assume(const Expr& condition) {
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
  if (a->dtype.code != ir::TypeCode::kInt || !NeverWraps(*a) || !NeverWraps(*b)) return;
  if (kind == ExprKind::kEq) {
    Assume(a <= b);
    Assume(b <= a);
    return;
  }
  if (kind == ExprKind::kGt || kind == ExprKind::kGe) std::swap(a, b);
  // Σ coeff · variable + constant <= limit, in i64 also where the type is narrow: true integers.
  AffineSum sum;
  bool linear = true;
  for (const auto& [side, sign] : {std::pair(a, 1), std::pair(b, -1)}) {
    ir::VisitTerms(
        side, sign,
        [&](const Expr& atom, int64_t coeff) {
          linear =
              linear && atom->kind == ExprKind::kVar && coeff < kIndexLimit && coeff > -kIndexLimit;
          if (linear) AddTerm(&sum, coeff, atom, Values(atom));
        },
        [&](int64_t value) { AddConstant(&sum, value); });
  }
  if (!linear) return;
  auto least = [](const AffineTerm& t) {
    return Wide{t.coeff} * (t.coeff > 0 ? t.range.min : t.range.max);
  };
  const Wide limit = (kind == ExprKind::kLt || kind == ExprKind::kGt ? -1 : 0) - Wide{sum.constant};
  Wide lowest = 0;  // of the whole sum
  for (const AffineTerm& t : sum.terms) lowest += least(t);
  for (const AffineTerm& t : sum.terms) {
    const Wide room = limit - (lowest - least(t));  // coeff * variable <= room
    Interval v = t.range;
    if (t.coeff > 0) {
      const Wide high = FloorDivWide(room, t.coeff);
      if (high >= v.min && high < v.max) v.max = static_cast<int64_t>(high);
    } else {
      const Wide low = -FloorDivWide(room, -Wide{t.coeff});
      if (low > v.min && low <= v.max) v.min = static_cast<int64_t>(low);
    }
    if (v != t.range) Set(t.atom, v, CongruenceOf(t.atom));
  }
}

// ------------------------------------------------------------------------------------------------
// values

Analyzer::Value Analyzer::EvalVar(const ExprNode& e) const {
  const Interval type = TypeInterval(e.dtype);
  auto it = facts_.find(&e);
  if (it == facts_.end()) return {type, {}};
  Interval known = it->second.interval;
  if (!known.Within(type)) known = known.is_bounded() ? Intersect(known, type) : type;
  return known.is_point() ? Point(known.min) : Value{known, it->second.congruence};
}

Analyzer::Value Analyzer::EvalSelect(const ExprNode& e) const {
  const Interval c = Values(e.args[0]);
  if (c == Interval::Point(1)) return Eval(*e.args[1]);
  if (c == Interval::Point(0)) return Eval(*e.args[2]);
  const Value a = Eval(*e.args[1]), b = Eval(*e.args[2]);
  return {Union(a.interval, b.interval), UnionCongruence(a.congruence, b.congruence)};
}

Analyzer::Value Analyzer::EvalCast(const ExprNode& e) const {
  const DType from = e.args[0]->dtype;
  const Interval type = TypeInterval(e.dtype);
  if (from.is_float()) return {type, {}};
  const Value v = Eval(*e.args[0]);
  if (e.dtype.is_bool()) {
    if (!v.interval.Contains(0)) return Point(1);
    return v.interval == Interval::Point(0) ? Point(0) : Value{type, {}};
  }
  const bool pattern = HasPatterns(from) != HasPatterns(e.dtype) && v.interval.min < 0;
  return v.interval.Within(type) && !pattern ? v : Value{type, {}};
}

Analyzer::Value Analyzer::EvalRamp(const ExprNode& e) const {
  const DType t = e.dtype.Element();
  bool wrapped = false;
  const Interval steps =
      BinaryInterval(ExprKind::kMul, t, Values(e.args[1]), {0, e.dtype.lanes - 1}, &wrapped);
  const Interval sum = BinaryInterval(ExprKind::kAdd, t, Values(e.args[0]), steps, &wrapped);
  return {wrapped ? TypeInterval(t) : sum, {}};
}

Analyzer::Value Analyzer::EvalAbs(const ExprNode& e) const {
  const Interval v = Values(e.args[0]);
  if (HasPatterns(e.dtype)) return {TypeInterval(e.dtype), {}};
  if (v.min >= 0) return {v, {}};
  if (v.min == ir::MinInt(e.dtype)) return {TypeInterval(e.dtype), {}};
  return {{v.max < 0 ? -v.max : 0, std::max(-v.min, v.max)}, {}};
}

Analyzer::Value Analyzer::EvalCall(const ExprNode& e) const {
  if (e.intrinsic == ir::Intrinsic::kAbs) return EvalAbs(e);
  if (e.intrinsic == ir::Intrinsic::kWideningMul) {
    return {BinaryInterval(ExprKind::kMul, e.dtype, Values(e.args[0]), Values(e.args[1])), {}};
  }
  if (e.intrinsic == ir::Intrinsic::kRoundingShiftRight) {
    // Monotone in its first operand.
    const Interval a = Values(e.args[0]), count = Values(e.args[1]);
    if (!count.is_point() || count.min < 0) return {TypeInterval(e.dtype), {}};
    const auto shifted = [&](int64_t end) {
      return ir::EvalIntIntrinsic(e.intrinsic, e.dtype, end, count.min);
    };
    return {{shifted(a.min), shifted(a.max)}, {}};
  }
  return {TypeInterval(e.dtype), {}};
}

Analyzer::Value Analyzer::EvalBinary(const ExprNode& e) const {
  if (e.args[0]->dtype.is_float()) return {{0, 1}, {}};  // a comparison of floats
  const Value a = Eval(*e.args[0]), b = Eval(*e.args[1]);
  bool wrapped = false;
  Value r{BinaryInterval(e.kind, e.args[0]->dtype, a.interval, b.interval, &wrapped), {}};
  if (r.interval.is_point()) return Point(r.interval.min);
  if (wrapped) return r;
  switch (e.kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub:
      r.congruence = AddCongruence(a.congruence, b.congruence, e.kind == ExprKind::kAdd ? 1 : -1);
      break;
    case ExprKind::kMul:
      r.congruence = MulCongruence(a.congruence, b.congruence);
      break;
    case ExprKind::kMin:
    case ExprKind::kMax:
      r.congruence = UnionCongruence(a.congruence, b.congruence);
      break;
    case ExprKind::kFloorMod:
      if (b.interval.is_point() && b.interval.min > 0) {
        r.congruence = ModCongruence(a.congruence, b.interval.min);
      }
      break;
    default:
      break;
  }
  return r;
}

Analyzer::Value Analyzer::Eval(const ExprNode& e) const {
  if (e.dtype.is_float()) return {};
  switch (e.kind) {
    case ExprKind::kIntImm:
      return Point(e.int_value);
    case ExprKind::kVar:
      return EvalVar(e);
    case ExprKind::kSelect:
      return EvalSelect(e);
    case ExprKind::kCast:
      return EvalCast(e);
    case ExprKind::kRamp:
      return EvalRamp(e);
    case ExprKind::kBroadcast:
      return Eval(*e.args[0]);
    case ExprKind::kNot: {
      const Interval v = Values(e.args[0]);
      return {{1 - v.max, 1 - v.min}, {}};
    }
    case ExprKind::kCall:
      return EvalCall(e);
    case ExprKind::kLoad:
      return {TypeInterval(e.dtype), {}};
    default:
      return EvalBinary(e);
  }
}

// No integer operation inside may wrap, so that the expression means what it says about true
// integers.
bool Analyzer::NeverWraps(const ExprNode& e) const {
  for (const Expr& a : e.args) {
    if (!NeverWraps(*a)) return false;
  }
  if (e.kind != ExprKind::kAdd && e.kind != ExprKind::kSub && e.kind != ExprKind::kMul) return true;
  bool wrapped = false;
  BinaryInterval(e.kind, e.dtype, Values(e.args[0]), Values(e.args[1]), &wrapped);
  return !wrapped;
}

}  // namespace tilewright::analysis
