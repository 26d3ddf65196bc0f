// Expressions: the rule for each kind of node. Sums and divisions are in simplify_sum.cc.
#include "compiler/analysis/simplify.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/analysis/simplify_expr.h"
#include "compiler/analysis/simplify_rules.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {

using ir::DType;
using ir::Expr;
using ir::ExprKind;

namespace {

bool IsTrue(const Expr& e) {
  if (e->kind == ExprKind::kBroadcast) return IsTrue(e->args[0]);
  return e->dtype.is_bool() && ir::IsInt(e, 1);
}
bool IsFalse(const Expr& e) {
  if (e->kind == ExprKind::kBroadcast) return IsFalse(e->args[0]);
  return e->dtype.is_bool() && ir::IsInt(e, 0);
}
Expr BoolOf(bool value, int lanes) { return ir::Broadcast(ir::Bool(value), lanes); }

// !(a op b) as a comparison; floats have NaN, so only their equality inverts.
bool InvertComparison(const Expr& e, ExprKind* kind) {
  bool is_float = e->args[0]->dtype.is_float();
  switch (e->kind) {
    case ExprKind::kEq:
      *kind = ExprKind::kNe;
      return true;
    case ExprKind::kNe:
      *kind = ExprKind::kEq;
      return true;
    case ExprKind::kLt:
      *kind = ExprKind::kGe;
      return !is_float;
    case ExprKind::kLe:
      *kind = ExprKind::kGt;
      return !is_float;
    case ExprKind::kGt:
      *kind = ExprKind::kLe;
      return !is_float;
    case ExprKind::kGe:
      *kind = ExprKind::kLt;
      return !is_float;
    default:
      return false;
  }
}

bool IsFloatImm(const Expr& e, double value) {
  if (e->kind == ExprKind::kBroadcast) return IsFloatImm(e->args[0], value);
  return e->kind == ExprKind::kFloatImm && e->float_value == value;
}

}  // namespace

// The original node when the simplified one is the same expression.
Expr ExprSimplifier::Keep(const Expr& built, const Expr& original) const {
  return ir::StructuralEqual(built, original) ? original : built;
}

Expr ExprSimplifier::Simplify(const Expr& e) {
  if (e->kind == ExprKind::kIntImm || e->kind == ExprKind::kFloatImm) return e;
  if (e->dtype.is_vector()) return SimplifyVector(e);
  if (e->dtype.is_bool()) return SimplifyBool(e);
  if (IsSumType(e->dtype)) return Build(SumOf(e), e);
  return SimplifyOther(e);
}

// ------------------------------------------------------------------------------------------------
// integers

AffineSum ExprSimplifier::SimplifyAtom(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kMul:
      return SimplifyMul(e);
    case ExprKind::kDiv:
    case ExprKind::kMod:
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod:
      return SimplifyDivision(e);
    case ExprKind::kMin:
    case ExprKind::kMax:
      return SimplifyMinMax(e);
    case ExprKind::kSelect:
      return SimplifySelect(e);
    default: {
      Expr s = SimplifyOther(e);
      return AtomSum(s, analyzer_.Values(s));
    }
  }
}

AffineSum ExprSimplifier::SimplifyMul(const Expr& e) {
  Sum a = SumOf(e->args[0]), b = SumOf(e->args[1]);
  if (a.is_constant()) std::swap(a, b);
  if (b.is_constant()) {
    Sum r{e->dtype, {}, 0};
    AddScaled(&r, a, b.constant);
    return r;
  }
  // Constant factors of single terms come out: (x * 2) * y = (x * y) * 2.
  int64_t factor = 1;
  for (Sum* side : {&a, &b}) {
    if (side->terms.size() != 1 || side->constant != 0) continue;
    factor = ir::WrapInt(ir::MulWrapping(factor, side->terms[0].coeff), e->dtype);
    side->terms[0].coeff = 1;
  }
  Interval range = BinaryInterval(ExprKind::kMul, e->dtype, ClampedRange(a), ClampedRange(b));
  Expr product = Build(a, e->args[0]) * Build(b, e->args[1]);
  Sum r{e->dtype, {}, 0};
  AddScaled(&r, AtomSum(Keep(product, e), range), factor);
  return r;
}

// The operands of nested minima (or maxima) in order, without those that another operand makes
// superfluous.
void ExprSimplifier::CollectOperands(ExprKind kind, const Expr& e, std::vector<Sum>* operands) {
  if (e->kind == kind) {
    CollectOperands(kind, e->args[0], operands);
    CollectOperands(kind, e->args[1], operands);
    return;
  }
  Sum sum = SumOf(e);
  bool single = sum.terms.size() == 1 && sum.constant == 0 && sum.terms[0].coeff == 1;
  if (single && sum.terms[0].atom->kind == kind)
    return CollectOperands(kind, sum.terms[0].atom, operands);
  for (size_t i = 0; i < operands->size();) {
    Sum difference = (*operands)[i];
    AddScaled(&difference, sum, -1);
    // Each side is exact, and so is their difference when it fits: its sign is that of the
    // integers.
    bool exact = Exact((*operands)[i]) && Exact(sum) && Exact(difference);
    WideRange d = exact ? RangeUnderBounds(difference, bounds_.size()) : WideRange{-1, 1};
    bool keep_old = kind == ExprKind::kMin ? d.max <= 0 : d.min >= 0;
    bool keep_new = kind == ExprKind::kMin ? d.min >= 0 : d.max <= 0;
    if (keep_old) return;
    if (keep_new) {
      operands->erase(operands->begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  operands->push_back(std::move(sum));
}

AffineSum ExprSimplifier::SimplifyMinMax(const Expr& e) {
  std::vector<Sum> operands;
  CollectOperands(e->kind, e, &operands);
  // The constant, of which one at most is left, goes last.
  std::stable_partition(operands.begin(), operands.end(),
                        [](const Sum& s) { return !s.is_constant(); });
  Sum result = operands[0];
  if (operands.size() == 1) return result;
  Interval range = ClampedRange(result);
  Expr built = Build(result, operands.size() == 2 ? e->args[0] : nullptr);
  for (size_t i = 1; i < operands.size(); ++i) {
    Expr next = Build(operands[i], operands.size() == 2 ? e->args[1] : nullptr);
    built = ir::Binary(e->kind, built, next);
    range = BinaryInterval(e->kind, e->dtype, range, ClampedRange(operands[i]));
  }
  if (Expr r = RewriteByRule(built)) return SumOf(r);
  return AtomSum(Keep(built, e), range);
}

AffineSum ExprSimplifier::SimplifySelect(const Expr& e) {
  Expr cond = SimplifyBool(e->args[0]);
  if (IsTrue(cond)) return SumOf(e->args[1]);
  if (IsFalse(cond)) return SumOf(e->args[2]);
  Sum a = SumOf(e->args[1]), b = SumOf(e->args[2]);
  Expr then_value = Build(a, e->args[1]), else_value = Build(b, e->args[2]);
  if (ir::StructuralEqual(then_value, else_value)) return a;
  Interval range = Union(ClampedRange(a), ClampedRange(b));
  Expr built = ir::Select(cond, then_value, else_value);
  if (Expr r = RewriteByRule(built)) return SumOf(r);
  return AtomSum(Keep(built, e), range);
}

// ------------------------------------------------------------------------------------------------
// conditions

Expr ExprSimplifier::Known(Expr condition) const {
  for (const Expr& known : assumptions_) {
    if (ir::StructuralEqual(known, condition)) return ir::Bool(true);
  }
  return condition;
}

Expr ExprSimplifier::SimplifyBool(const Expr& e) {
  if (e->dtype.is_vector()) return SimplifyVector(e);
  switch (e->kind) {
    case ExprKind::kIntImm:
      return e;
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot:
      return Known(SimplifyLogical(e));
    case ExprKind::kVar:
    case ExprKind::kLoad:
    case ExprKind::kCast:
    case ExprKind::kSelect: {
      Expr s = SimplifyOther(e);
      Interval range = analyzer_.Values(s);
      return Known(range.is_point() ? ir::Bool(range.min != 0) : s);
    }
    default:
      return ir::IsComparison(e->kind) ? Known(SimplifyComparison(e)) : SimplifyOther(e);
  }
}

Expr ExprSimplifier::SimplifyLogical(const Expr& e) {
  if (e->kind == ExprKind::kNot) {
    Expr a = SimplifyBool(e->args[0]);
    ExprKind inverse = a->kind;
    if (a->kind == ExprKind::kNot) return a->args[0];
    if (ir::IsComparison(a->kind) && InvertComparison(a, &inverse)) {
      return SimplifyBool(ir::Binary(inverse, a->args[0], a->args[1]));
    }
    return Keep(ir::Not(a), e);
  }
  Expr a = SimplifyBool(e->args[0]), b = SimplifyBool(e->args[1]);
  bool is_and = e->kind == ExprKind::kAnd;
  if (is_and ? IsTrue(a) : IsFalse(a)) return b;
  if (is_and ? IsTrue(b) : IsFalse(b)) return a;
  if (is_and ? IsFalse(a) : IsTrue(a)) return a;
  if (is_and ? IsFalse(b) : IsTrue(b)) return b;
  if (ir::StructuralEqual(a, b)) return a;
  Expr built = ir::Binary(e->kind, a, b);
  if (Expr r = RewriteByRule(built)) return SimplifyBool(r);
  return Keep(built, e);
}

Expr ExprSimplifier::SimplifyComparison(const Expr& e) {
  const Expr &left = e->args[0], &right = e->args[1];
  if (IsSumType(left->dtype)) return CompareSums(e->kind, SumOf(left), SumOf(right), e);
  Expr a = Simplify(left), b = Simplify(right);
  if (left->dtype.is_bool()) {  // == and != only
    bool is_eq = e->kind == ExprKind::kEq;
    if (ir::StructuralEqual(a, b)) return ir::Bool(is_eq);
    for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
      if (IsTrue(x)) return is_eq ? y : SimplifyBool(ir::Not(y));
      if (IsFalse(x)) return is_eq ? SimplifyBool(ir::Not(y)) : y;
    }
  }
  Expr built = ir::Binary(e->kind, a, b);
  if (built->kind == ExprKind::kIntImm) return built;
  if (left->dtype.is_int()) {
    Interval range = analyzer_.Values(built);
    if (range.is_point()) return ir::Bool(range.min != 0);
  }
  return Keep(built, e);
}

// a op b through the sign of their difference, where neither side can wrap.
Expr ExprSimplifier::CompareSums(ExprKind kind, const Sum& a, const Sum& b, const Expr& original) {
  auto as_written = [&] {
    Expr built = ir::Binary(kind, Build(a, original->args[0]), Build(b, original->args[1]));
    Interval range = analyzer_.Values(built);
    return range.is_point() ? ir::Bool(range.min != 0) : Keep(built, original);
  };
  // Equality survives wrapping in both directions, but its normal form below needs true integers as
  // well.
  if (!Exact(a) || !Exact(b)) return as_written();
  bool swapped = kind == ExprKind::kGt || kind == ExprKind::kGe;
  Sum difference = swapped ? b : a;
  AddScaled(&difference, swapped ? a : b, -1);
  JoinMultiples(&difference);
  if (!Exact(difference)) return as_written();
  Expr result;
  if (kind == ExprKind::kEq || kind == ExprKind::kNe) {
    result = EqualsZero(std::move(difference), kind == ExprKind::kNe);
  } else {
    if (kind == ExprKind::kLe || kind == ExprKind::kGe) {  // d <= 0  ==  d - 1 < 0
      if (difference.constant == ir::MinInt(difference.dtype)) return as_written();
      --difference.constant;
    }
    if (!Exact(difference)) return as_written();
    result = LessThanZero(std::move(difference));
  }
  return result == nullptr ? as_written() : Keep(result, original);
}

// The terms with the given sign of coefficient, made positive, plus a constant. Null when that sum
// might wrap.
Expr ExprSimplifier::Side(const Sum& difference, int64_t sign, int64_t constant) {
  Sum side{difference.dtype, {}, constant};
  for (const Term& t : difference.terms) {
    if ((t.coeff > 0) != (sign > 0)) continue;
    if (t.coeff == ir::MinInt(difference.dtype)) return nullptr;
    side.terms.push_back({t.atom, t.coeff * sign, t.range});
  }
  return Exact(side) ? Build(side, nullptr) : nullptr;
}

// d < 0 as `positive terms < negative terms + constant`, divided by what all of d is a multiple of
// up to a small rest.
Expr ExprSimplifier::LessThanZero(Sum d) {
  WideRange range = RangeUnderBounds(d, bounds_.size());
  if (range.max < 0) return ir::Bool(true);
  if (range.min >= 0) return ir::Bool(false);
  int64_t g = 0;
  Sum scaled, small;
  // d is a multiple of g away from its excess: d < 0 exactly when d - excess < 0.
  if (int64_t excess = Excess(d, 0, &g);
      excess != 0 && d.constant >= ir::MinInt(d.dtype) / 2 + excess) {
    d.constant -= excess;
    if (!Exact(d)) return nullptr;
    return LessThanZero(std::move(d));
  }
  g = 0;
  // d = g * s + r with r in [0, g): d < 0 exactly when s < 0. A candidate g is the size of one of
  // the coefficients.
  std::vector<int64_t> sizes;
  for (const Term& t : d.terms) {
    if (t.coeff != ir::MinInt(d.dtype)) sizes.push_back(std::abs(t.coeff));
  }
  std::sort(sizes.rbegin(), sizes.rend());
  for (int64_t size : sizes) {
    if (size > 1 && SplitByRange(d, size, &g, &scaled, &small))
      return LessThanZero(std::move(scaled));
  }
  bool any_positive =
      std::any_of(d.terms.begin(), d.terms.end(), [](const Term& t) { return t.coeff > 0; });
  if (d.constant == ir::MinInt(d.dtype)) return nullptr;
  Expr left = Side(d, 1, any_positive ? 0 : d.constant);
  Expr right = Side(d, -1, any_positive ? -d.constant : 0);
  if (left == nullptr || right == nullptr) return nullptr;
  const Expr less = ir::Binary(ExprKind::kLt, left, right);
  const Expr shorter = RewriteByRule(less);
  return shorter == nullptr ? less : Simplify(shorter);
}

Expr ExprSimplifier::EqualsZero(Sum d, bool negate) {
  WideRange range = RangeOf(d);
  if (range.min > 0 || range.max < 0) return ir::Bool(negate);
  if (d.is_constant()) return ir::Bool((d.constant == 0) != negate);
  int64_t g = 0;
  if (Excess(d, 0, &g) != 0) return ir::Bool(negate);
  g = 0;
  for (const Term& t : d.terms) {
    if (t.coeff == ir::MinInt(d.dtype)) return nullptr;
    g = std::gcd(g, t.coeff);
  }
  if (d.constant % g != 0) return ir::Bool(negate);
  d.constant /= g;
  for (Term& t : d.terms) t.coeff /= g;
  if (d.terms[0].coeff < 0) {  // one spelling for x == y and y == x
    if (d.constant == ir::MinInt(d.dtype)) return nullptr;
    d.constant = -d.constant;
    for (Term& t : d.terms) t.coeff = -t.coeff;
  }
  if (d.constant == ir::MinInt(d.dtype)) return nullptr;
  Expr left = Side(d, 1, 0), right = Side(d, -1, -d.constant);
  if (left == nullptr || right == nullptr) return nullptr;
  return ir::Binary(negate ? ExprKind::kNe : ExprKind::kEq, left, right);
}

// ------------------------------------------------------------------------------------------------
// vectors and the rest

Expr ExprSimplifier::SimplifyVectorBinary(const Expr& e, const Expr& a, const Expr& b) {
  int lanes = e->dtype.lanes;
  bool both = a->kind == ExprKind::kBroadcast && b->kind == ExprKind::kBroadcast;
  if (both) return ir::Broadcast(Simplify(ir::Binary(e->kind, a->args[0], b->args[0])), lanes);
  if (ir::IsComparison(e->kind) && a->dtype.is_int()) {
    Interval range = analyzer_.Values(ir::Binary(e->kind, a, b));
    if (range.is_point()) return BoolOf(range.min != 0, lanes);
  }
  bool is_and = e->kind == ExprKind::kAnd, is_or = e->kind == ExprKind::kOr;
  if (is_and || is_or) {
    for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
      if (is_and ? IsTrue(x) : IsFalse(x)) return y;
      if (is_and ? IsFalse(x) : IsTrue(x)) return x;
    }
    if (ir::StructuralEqual(a, b)) return a;
  }
  bool ramp_left = a->kind == ExprKind::kRamp && b->kind == ExprKind::kBroadcast;
  bool ramp_right = a->kind == ExprKind::kBroadcast && b->kind == ExprKind::kRamp;
  const Expr& ramp = ramp_left ? a : b;
  const Expr& splat = ramp_left ? b : a;
  if (e->kind == ExprKind::kAdd && (ramp_left || ramp_right)) {
    return ir::Ramp(Simplify(ramp->args[0] + splat->args[0]), ramp->args[1], lanes);
  }
  if (e->kind == ExprKind::kSub && ramp_left) {
    return ir::Ramp(Simplify(ramp->args[0] - splat->args[0]), ramp->args[1], lanes);
  }
  if (e->kind == ExprKind::kMul && (ramp_left || ramp_right)) {
    Expr factor = splat->args[0];
    return ir::Ramp(Simplify(ramp->args[0] * factor), Simplify(ramp->args[1] * factor), lanes);
  }
  return nullptr;
}

Expr ExprSimplifier::SimplifyVector(const Expr& e) {
  if (e->kind == ExprKind::kRamp) {
    Expr base = Simplify(e->args[0]), stride = Simplify(e->args[1]);
    if (ir::IsInt(stride, 0)) return ir::Broadcast(base, e->dtype.lanes);
    return Keep(ir::Ramp(base, stride, e->dtype.lanes), e);
  }
  if (ir::IsBinary(e->kind) && !e->args[0]->dtype.is_float()) {
    Expr a = Simplify(e->args[0]), b = Simplify(e->args[1]);
    if (Expr r = SimplifyVectorBinary(e, a, b); r != nullptr) return Keep(r, e);
    return Keep(ir::Binary(e->kind, a, b), e);
  }
  return SimplifyOther(e);
}

// Simplified operands, then the rules that hold bit for bit for every type.
Expr ExprSimplifier::SimplifyOther(const Expr& e) {
  if (e->args.empty() && e->kind != ExprKind::kLoad) {
    if (e->kind != ExprKind::kVar || e->dtype.is_float() || e->dtype.is_vector()) return e;
    Interval range = analyzer_.Values(e);
    return range.is_point() && e->dtype.is_int() ? ir::Int(range.min, e->dtype) : e;
  }
  bool changed = false;
  std::vector<Expr> args;
  args.reserve(e->args.size());
  for (const Expr& a : e->args) {
    args.push_back(Simplify(a));
    changed |= args.back() != a;
  }
  switch (e->kind) {
    case ExprKind::kSelect: {
      if (IsTrue(args[0])) return args[1];
      if (IsFalse(args[0])) return args[2];
      if (ir::StructuralEqual(args[1], args[2])) return args[1];
      if (e->dtype.is_vector()) break;
      Expr r = RewriteByRule(changed ? ir::Select(args[0], args[1], args[2]) : e);
      if (r != nullptr) return Simplify(r);
      break;
    }
    case ExprKind::kLoad: {
      Expr mask = e->mask == nullptr ? nullptr : Simplify(e->mask);
      if (mask != nullptr && IsTrue(mask)) mask = nullptr;
      if (!changed && mask == e->mask) return e;
      if (ir::LanesOf(args) != e->dtype.lanes)
        return e;  // a ramp of stride 0 folded: the load would lose its lanes
      return ir::Load(e->buffer, std::move(args), std::move(mask));
    }
    case ExprKind::kMul:  // x * 1 and x / 1 are exact for floats too
      if (IsFloatImm(args[1], 1)) return args[0];
      if (IsFloatImm(args[0], 1)) return args[1];
      break;
    case ExprKind::kDiv:
      if (IsFloatImm(args[1], 1)) return args[0];
      break;
    case ExprKind::kMin:
    case ExprKind::kMax:
      if (ir::StructuralEqual(args[0], args[1])) return args[0];
      break;
    default:
      break;
  }
  return changed ? ir::WithArgs(e, std::move(args)) : e;
}

// ------------------------------------------------------------------------------------------------
// entry points

Expr Simplify(const Expr& e, const Analyzer& analyzer) {
  return ExprSimplifier(analyzer).Simplify(e);
}

bool Proves(const Expr& condition, const Analyzer& analyzer) {
  return IsTrue(Simplify(condition, analyzer));
}

bool ConstantDifference(const Expr& a, const Expr& b, const Analyzer& analyzer,
                        int64_t* difference) {
  Expr d = Simplify(a - b, analyzer);
  const int64_t* value = ir::AsInt(d);
  if (value == nullptr) return false;
  *difference = *value;
  return true;
}

}  // namespace tilewright::analysis
