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
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;

bool IsArithmetic(ExprKind kind) {
  return kind == ExprKind::kAdd || kind == ExprKind::kSub || kind == ExprKind::kMul ||
         kind == ExprKind::kDiv;
}

// f16(e) computed in f16, for an `e` of f32; null if that gives other numbers.
Expr Rounded(const Expr& e) {
  if (Expr exact = ir::ExactF16(e)) return exact;
  const bool is_root = e->kind == ExprKind::kCall && e->intrinsic == ir::Intrinsic::kSqrt;
  if (IsArithmetic(e->kind) || is_root) return ir::WithMappedArgs(e, 0, ir::ExactF16);
  if (e->kind == ExprKind::kSelect) return ir::WithMappedArgs(e, 1, Rounded);
  if (e->kind == ExprKind::kBroadcast) return ir::WithMappedArgs(e, 0, Rounded);
  return nullptr;
}

class Narrower : public ir::Rewriter {
 public:
  // A tensor intrinsic's nest stays what its description says.
  ir::Stmt RewriteStmt(const ir::Stmt& s) override {
    return ir::TensorNameOf(*s).empty() ? RewriteChildren(s) : s;
  }
  Expr RewriteExpr(const Expr& e) override {
    const Expr r = RewriteChildren(e);
    Expr narrow;
    const bool rounds = r->kind == ExprKind::kCast && r->dtype.Element() == ir::kF16 &&
                        r->args[0]->dtype.Element() == ir::kF32;
    if (rounds) narrow = Rounded(r->args[0]);
    if (ir::IsComparison(r->kind)) narrow = ir::WithMappedArgs(r, 0, ir::ExactF16);
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
