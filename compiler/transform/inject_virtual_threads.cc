// TRANSFORMATIONS of inject_virtual_threads (kLoops → kLoops)
//   for v in 0..V virtual { alloc B; for k { S1; S2 } }
//     → alloc B[V, …]; for k { S1[v := 0]; …; S1[v := V-1]; S2[v := 0]; …; S2[v := V-1] }
//   Loops around one use of a tensor intrinsic are one statement, and so are loads one after
//   the other: an accelerator loads in order, and what one thread loads must not wait behind what
//   the next thread cannot load yet. A load that is the same for all threads happens once.
//   Loops, conditions and allocations that are the same for all virtual threads are shared;
//   everything else appears once for each. Iterations of a virtual loop are independent, so any
//   interleaving computes the same.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

// B[i…] → B'[v, i…]
class Versioned : public ir::Rewriter {
 public:
  Versioned(Buffer from, Buffer to, const ir::Var& var)
      : from_(std::move(from)), to_(std::move(to)), var_(var) {}
  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    bool ours = r->kind == ir::ExprKind::kLoad && r->buffer == from_;
    return ours ? ir::Load(to_, WithVersion(r->args), r->mask) : r;
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    bool ours = r->kind == StmtKind::kStore && r->buffer == from_;
    return ours ? ir::MakeStore(to_, WithVersion(r->indices), r->value, r->mask) : r;
  }

 private:
  std::vector<Expr> WithVersion(const std::vector<Expr>& indices) const {
    std::vector<Expr> all = {ir::Cast(ir::kI64, var_)};
    all.insert(all.end(), indices.begin(), indices.end());
    return all;
  }
  Buffer from_, to_;
  const ir::Var& var_;
};

class Interleaver {
 public:
  Interleaver(const ir::Var& var, int64_t threads, Cloner* cloner)
      : var_(var), threads_(threads), cloner_(*cloner) {}

  Stmt Walk(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kSeq: {
        const Stmt whole = WithAllocsOutside(s);
        if (whole->kind != StmtKind::kSeq) return Walk(whole);
        std::vector<Stmt> stmts;
        for (size_t i = 0; i < s->stmts.size(); ++i) {
          std::vector<Stmt> run;
          for (; i < s->stmts.size() && IsLoad(s->stmts[i]); ++i) {
            const bool own = ir::UsesVar(s->stmts[i], var_);
            (own ? run : stmts).push_back(s->stmts[i]);
          }
          if (!run.empty()) stmts.push_back(ForEach(ir::MakeSeq(std::move(run))));
          if (i < s->stmts.size()) stmts.push_back(Walk(s->stmts[i]));
        }
        return ir::MakeSeq(std::move(stmts));
      }
      case StmtKind::kFor:
        if (ir::UsesVar(s->range.min, var_) || ir::UsesVar(s->range.extent, var_)) break;
        if (s->for_kind == ir::ForKind::kVectorized || ir::IsTensorNest(s)) break;
        return ir::MakeFor(s->var, s->range.min, s->range.extent, Walk(s->body), s->for_kind,
                           s->annotations);
      case StmtKind::kIf:
        if (ir::UsesVar(s->condition, var_) || ir::HasLoad(s->condition)) break;
        return ir::MakeIf(s->condition, Walk(s->body),
                          s->else_body == nullptr ? nullptr : Walk(s->else_body));
      case StmtKind::kAlloc: {
        auto node = std::make_shared<ir::BufferNode>(*s->buffer);
        node->shape.insert(node->shape.begin(), ir::Int(threads_));
        return ir::MakeAlloc(node, Walk(Versioned(s->buffer, node, var_).RewriteStmt(s->body)));
      }
      case StmtKind::kSync:
        return s;
      default:
        break;
    }
    return ForEach(s);
  }

 private:
  // Whether it is a tensor nest that loads.
  static bool IsLoad(const Stmt& s) {
    if (!ir::IsTensorNest(s)) return false;
    const ir::StmtNode* at = s.get();
    while (ir::TensorNameOf(*at).empty()) at = at->body.get();
    const std::span<const ir::TensorIntrinsic> rows = ir::TensorIntrinsics();
    return std::any_of(rows.begin(), rows.end(), [&](const ir::TensorIntrinsic& row) {
      return row.op == ir::TensorOp::kLoad && row.name == ir::TensorNameOf(*at);
    });
  }

  static void Flatten(const Stmt& s, std::vector<Buffer>* allocs, std::vector<Stmt>* stmts) {
    if (s->kind == StmtKind::kAlloc) {
      allocs->push_back(s->buffer);
      return Flatten(s->body, allocs, stmts);
    }
    if (s->kind != StmtKind::kSeq) return stmts->push_back(s);
    for (const Stmt& child : s->stmts) Flatten(child, allocs, stmts);
  }

  // A sequence with loads as one sequence in its allocations, in the order in
  // which it begins to use them; others as they are.
  static Stmt WithAllocsOutside(const Stmt& s) {
    std::vector<Buffer> allocs;
    std::vector<Stmt> stmts;
    Flatten(s, &allocs, &stmts);
    if (allocs.empty() || std::none_of(stmts.begin(), stmts.end(), IsLoad)) return s;
    const auto first_use = [&](const Buffer& b) {
      return std::find_if(stmts.begin(), stmts.end(),
                          [&](const Stmt& part) { return ir::Touches(part, b.get()); });
    };
    std::stable_sort(allocs.begin(), allocs.end(),
                     [&](const Buffer& a, const Buffer& b) { return first_use(a) < first_use(b); });
    Stmt whole = ir::MakeSeq(stmts);
    for (size_t i = allocs.size(); i-- > 0;) whole = ir::MakeAlloc(allocs[i], std::move(whole));
    return whole;
  }

  Stmt ForEach(const Stmt& s) {
    std::vector<Stmt> copies;
    for (int64_t t = 0; t < threads_; ++t) {
      Stmt copy = ir::Substitute(s, {{var_.get(), ir::Int(t, var_->dtype)}});
      copies.push_back(t == 0 ? copy : cloner_.Clone(copy));
    }
    return ir::MakeSeq(std::move(copies));
  }

  const ir::Var& var_;
  const int64_t threads_;
  Cloner& cloner_;
};

class VirtualLoops : public ir::Rewriter {
 public:
  explicit VirtualLoops(const ir::Function& f) : cloner_(f) {}
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    const int64_t* extent = r->kind == StmtKind::kFor ? ir::AsInt(r->range.extent) : nullptr;
    if (extent == nullptr || r->for_kind != ir::ForKind::kVirtual || !ir::IsInt(r->range.min, 0))
      return r;
    return Interleaver(r->var, *extent, &cloner_).Walk(r->body);
  }

 private:
  Cloner cloner_;
};

}  // namespace

absl::StatusOr<Function> InjectVirtualThreads(const Function& f, const PassContext&) {
  Function result = f;
  result.body = VirtualLoops(f).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
