// TRANSFORMATIONS of unroll_loops (kLoops → kFlat once accesses have one index and no vectorised
// loop is left)
//   for i in m..m+n unrolled { S }
//     → S[i := m]; …; S[i := m+n-1]     (n constant; else the loop becomes serial)
//   for i in … { … L[… i …] … }, L local and small
//     → the same, so that L's indices are constants and L lives in registers
//   for i in … { … X[…] masked(… i …) … }, short
//     → the same, so that loops around it need each mask once
//   for i in … { loops inside } annotated unroll_max=N
//     → loops inside are unrolled, innermost first, while that gives at most N statements
#include <algorithm>
#include <set>
#include <vector>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/stmt_rewriter.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

// Statements that one unrolled loop may become.
constexpr int64_t kMaxUnrolledLeaves = 8192;
// Locals up to this many elements are worth registers, and loops over them up to so many statements
// worth unrolling.
constexpr int64_t kMaxLocalElements = 1024;
constexpr int64_t kMaxLocalLeaves = 512;

class Unroller : public StmtRewriter {
 public:
  // `max_masked_leaves`: statements that a loop with its variable in masks may become.
  Unroller(const ir::Function& f, int64_t max_masked_leaves)
      : cloner_(f), max_masked_leaves_(max_masked_leaves) {}

  Stmt RewriteStmt(const Stmt& s) override {
    switch (s->kind) {
      case StmtKind::kFor:
        return WalkFor(s);
      case StmtKind::kAlloc: {
        // The place of a fragment is a register's.
        const bool fragments = ir::IsFragmentScope(s->buffer->scope);
        bool small = fragments || (s->buffer->scope == ir::Scope::kLocal && IsSmall(s->buffer));
        if (small) small_.insert(s->buffer.get());
        return RewriteChildren(s);
      }
      default:
        return RewriteChildren(s);
    }
  }

 private:
  static bool IsSmall(const ir::Buffer& buffer) {
    int64_t elements = 1;
    for (const Expr& dim : buffer->shape) {
      const int64_t* extent = ir::AsInt(dim);
      if (extent == nullptr || *extent > kMaxLocalElements) return false;
      elements *= *extent;
    }
    return elements <= kMaxLocalElements;
  }

  Stmt WalkFor(const Stmt& s) {
    // One instruction, or one operation on the elements of a fragment or a tile.
    if (!ir::TensorNameOf(*s).empty() || ir::IsFragmentMap(s) || ir::IsBulkCopy(s)) return s;
    int64_t outer_max = unroll_max_;
    auto hint = s->annotations.find("unroll_max");
    if (hint != s->annotations.end() && std::holds_alternative<int64_t>(hint->second)) {
      unroll_max_ = std::get<int64_t>(hint->second);
    }
    Stmt body = RewriteStmt(s->body);
    unroll_max_ = outer_max;
    const int64_t* extent = ir::AsInt(s->range.extent);
    int64_t leaves = extent == nullptr ? 0 : *extent * std::max<int64_t>(1, CountLeaves(body));
    bool unroll = false;
    if (s->for_kind == ir::ForKind::kUnrolled)
      unroll = extent != nullptr && leaves <= kMaxUnrolledLeaves;
    if (s->for_kind == ir::ForKind::kSerial && extent != nullptr) {
      unroll = (leaves <= unroll_max_ && !HasLoop(body)) ||
               (leaves <= kMaxLocalLeaves && IndexesSmallLocal(body, s->var)) ||
               (leaves <= max_masked_leaves_ && !HasLoop(body) && IsInMask(body, s->var));
    }
    if (unroll) return Replicate(s, body, *extent);
    ir::ForKind kind = s->for_kind == ir::ForKind::kUnrolled ? ir::ForKind::kSerial : s->for_kind;
    return ir::MakeFor(s->var, s->range.min, s->range.extent, body, kind, s->annotations);
  }

  Stmt Replicate(const Stmt& s, const Stmt& body, int64_t extent) {
    std::vector<Stmt> stmts;
    for (int64_t i = 0; i < extent; ++i) {
      Expr value = s->range.min + ir::Int(i, s->var->dtype);
      Stmt copy = ir::Substitute(body, {{s->var.get(), value}});
      stmts.push_back(i == 0 ? copy : cloner_.Clone(copy));
    }
    return ir::MakeSeq(std::move(stmts));
  }

  bool IndexesSmallLocal(const Stmt& body, const ir::Var& var) const {
    bool found = false;
    auto indexes = [&](const ir::Buffer& buffer, const std::vector<Expr>& indices) {
      if (!small_.contains(buffer.get())) return;
      for (const Expr& i : indices) found = found || ir::UsesVar(i, var);
    };
    ir::VisitStmts(body, [&](const Stmt& s) {
      if (s->kind == StmtKind::kStore) indexes(s->buffer, s->indices);
      return !found;
    });
    ir::VisitExprsIn(body, [&](const Expr& e) {
      if (e->kind == ir::ExprKind::kLoad) indexes(e->buffer, e->args);
      return !found;
    });
    return found;
  }

  static bool IsInMask(const Stmt& body, const ir::Var& var) {
    bool found = false;
    ir::VisitExprsIn(body, [&](const Expr& e) {
      found = found ||
              (e->kind == ir::ExprKind::kLoad && e->mask != nullptr && ir::UsesVar(e->mask, var));
      return !found;
    });
    return found;
  }

  Cloner cloner_;
  const int64_t max_masked_leaves_;
  std::set<const ir::BufferNode*> small_;
  int64_t unroll_max_ = 0;
};

// Whether the body meets kFlat.
bool IsFlat(const Stmt& body) {
  bool flat = true;
  ir::VisitStmts(body, [&](const Stmt& s) {
    bool vector = s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kVectorized;
    flat = flat && !vector && (s->kind != StmtKind::kStore || s->indices.size() == 1);
    return flat;
  });
  ir::VisitExprsIn(body, [&](const Expr& e) {
    flat = flat && (e->kind != ir::ExprKind::kLoad || e->args.size() == 1);
    return flat;
  });
  return flat;
}

}  // namespace

absl::StatusOr<Function> UnrollLoops(const Function& f, const PassContext& context) {
  Function result = f;
  result.body = Unroller(f, context.target.machine.body_ops).RewriteStmt(f.body);
  if (result.stage == ir::Stage::kLoops && IsFlat(result.body)) result.stage = ir::Stage::kFlat;
  return result;
}

}  // namespace tilewright::transform
