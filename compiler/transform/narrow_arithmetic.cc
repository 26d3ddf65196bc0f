// TRANSFORMATIONS of narrow_arithmetic (any → same), on machines that compute in f16. Programs
// widen f16 to f32, compute, and round each result:
//   f16(f32(x) op f32(y))      →   x op y, for sums, differences, products and quotients
//   f16(sqrt(f32(x)))          →   sqrt(x)
//   f16(f32(x))                →   x; the same of min, max, abs, select and roundings to integers
//   f32(x) < f32(y)            →   x < y, for all comparisons
// Constants that f16 has, and broadcasts, count as f32(x). Every number stays the same bit for bit:
// f32 has more than twice the bits of f16 and two, so rounding to f32 first changes no result of
// these operations. That does not hold of fma, which stays in f32. The bits of NaN are not pinned.
// Widening made NaN quiet: one that still signals may pass a min or max with a constant.
#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Intrinsic;

bool IsF32(const Expr& e) { return e->dtype.Element() == ir::kF32; }
bool IsF16(const Expr& e) { return e->dtype.Element() == ir::kF16; }

bool IsCallOf(const Expr& e, std::initializer_list<Intrinsic> intrinsics) {
  return e->kind == ExprKind::kCall &&
         std::find(intrinsics.begin(), intrinsics.end(), e->intrinsic) != intrinsics.end();
}

bool IsArithmetic(ExprKind kind) {
  return kind == ExprKind::kAdd || kind == ExprKind::kSub || kind == ExprKind::kMul ||
         kind == ExprKind::kDiv;
}

using Narrowing = Expr (*)(const Expr& e);

// `e` of f16 with its operands from `first` on made narrow; null if one of them cannot be.
Expr OfNarrow(const Expr& e, size_t first, Narrowing narrow) {
  std::vector<Expr> args = e->args;
  for (size_t i = first; i < args.size(); ++i) {
    args[i] = narrow(args[i]);
    if (args[i] == nullptr) return nullptr;
  }
  return ir::WithArgs(e, std::move(args));
}

// The h of f16 for which `e`, of f32, is f32(h); null if there is none.
Expr Exactly(const Expr& e) {
  if (!IsF32(e)) return nullptr;
  switch (e->kind) {
    case ExprKind::kCast:
      return IsF16(e->args[0]) ? e->args[0] : nullptr;
    case ExprKind::kFloatImm:
      return ir::RoundFloat(e->float_value, ir::kF16) == e->float_value
                 ? ir::Float(e->float_value, ir::kF16)
                 : nullptr;
    case ExprKind::kBroadcast:
    case ExprKind::kMin:
    case ExprKind::kMax:
      return OfNarrow(e, 0, Exactly);
    case ExprKind::kSelect:
      return OfNarrow(e, 1, Exactly);
    case ExprKind::kCall:
      if (!IsCallOf(
              e, {Intrinsic::kAbs, Intrinsic::kFloor, Intrinsic::kCeil, Intrinsic::kRoundEven})) {
        return nullptr;
      }
      return OfNarrow(e, 0, Exactly);
    default:
      return nullptr;
  }
}

// f16(e) computed in f16, for an `e` of f32; null if that gives other numbers.
Expr Rounded(const Expr& e) {
  if (Expr exact = Exactly(e)) return exact;
  if (IsArithmetic(e->kind) || IsCallOf(e, {Intrinsic::kSqrt})) return OfNarrow(e, 0, Exactly);
  if (e->kind == ExprKind::kSelect) return OfNarrow(e, 1, Rounded);
  if (e->kind == ExprKind::kBroadcast) return OfNarrow(e, 0, Rounded);
  return nullptr;
}

class Narrower : public ir::Rewriter {
 public:
  Expr RewriteExpr(const Expr& e) override {
    const Expr r = RewriteChildren(e);
    Expr narrow;
    if (r->kind == ExprKind::kCast && IsF16(r) && IsF32(r->args[0])) narrow = Rounded(r->args[0]);
    if (ir::IsComparison(r->kind)) narrow = OfNarrow(r, 0, Exactly);
    return narrow == nullptr ? r : narrow;
  }
};

}  // namespace

absl::StatusOr<Function> NarrowArithmetic(const Function& f, const PassContext& ctx) {
  if (!ctx.target.machine.computes_f16) return f;
  Function result = f;
  result.body = Narrower().RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
