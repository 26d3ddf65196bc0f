// TRANSFORMATIONS of drop_zero_terms (kLoops → kLoops), after unrolling has decided what lies
// outside of a padded image:
//   S[i] = S[i] + 0.0 * W[j]   →   nothing, for a private sum S and constants W
//   S[i] = dot4(S[i], 0, W[j])   →   nothing; of bf16 for such S and W
// The padding of a convolution is not there: its definition leaves those products out, and so does
// what checks it. The state before the first step of a recurrent layer is left out alike. A sum
// that starts from +0.0 is never -0.0, so that adding +0.0 is nothing, too. (Products with a weight
// that is infinite would be NaN; by the definition they are left out.)
#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

bool IsZero(const Expr& e) {
  const Expr& x = ir::OfEachLane(e);
  if (x->kind == ExprKind::kIntImm) return x->int_value == 0;
  return x->kind == ExprKind::kFloatImm && x->float_value == 0;
}

bool IsConstantLoad(const Expr& e) {
  const Expr& x = ir::OfEachLane(e);
  return x->kind == ExprKind::kLoad && x->buffer->role == ir::Role::kConstant;
}

bool IsZeroProduct(const Expr& e) {
  const Expr& x = ir::OfEachLane(e);
  if (x->kind != ExprKind::kMul || !x->dtype.is_float()) return false;
  return (IsZero(x->args[0]) && IsConstantLoad(x->args[1])) ||
         (IsZero(x->args[1]) && IsConstantLoad(x->args[0]));
}

// Whether `e` is what the store is about to overwrite.
bool IsOwnValue(const Expr& e, const Stmt& store) {
  if (e->kind != ExprKind::kLoad || e->buffer != store->buffer || e->mask != nullptr) return false;
  for (size_t d = 0; d < e->args.size(); ++d) {
    if (!ir::StructuralEqual(e->args[d], store->indices[d])) return false;
  }
  return true;
}

// Nobody else reads it, or gives it its first value.
bool IsPrivate(const ir::Buffer& buffer) { return buffer->role == ir::Role::kIntermediate; }

// A sum of dot products that stays what it is.
bool IsZeroDot(const Stmt& store) {
  const Expr& e = store->value;
  if (e->kind != ExprKind::kCall || e->intrinsic != ir::Intrinsic::kDot4 ||
      !IsOwnValue(e->args[0], store)) {
    return false;
  }
  if (e->dtype.is_int()) return IsZero(e->args[1]) || IsZero(e->args[2]);
  return IsPrivate(store->buffer) && IsZero(e->args[1]) && IsConstantLoad(e->args[2]);
}

class Dropper : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kStore) return RewriteChildren(s);
    const Expr& value = s->value;
    if (IsZeroDot(s)) {
      dropped_ = true;
      return ir::MakeSeq({});
    }
    if (!IsPrivate(s->buffer) || value->kind != ExprKind::kAdd) return s;
    const bool nothing = (IsOwnValue(value->args[0], s) && IsZeroProduct(value->args[1])) ||
                         (IsOwnValue(value->args[1], s) && IsZeroProduct(value->args[0]));
    if (!nothing) return s;
    dropped_ = true;
    return ir::MakeSeq({});
  }
  bool dropped() const { return dropped_; }

 private:
  bool dropped_ = false;
};

}  // namespace

absl::StatusOr<Function> DropZeroTerms(const Function& f, const PassContext&) {
  Dropper dropper;
  Function result = f;
  result.body = dropper.RewriteStmt(f.body);
  if (!dropper.dropped()) return f;
  return analysis::Simplify(result, {.remove_unit_loops = true});  // loops that are empty now
}

}  // namespace tilewright::transform
