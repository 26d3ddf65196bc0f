// TRANSFORMATIONS of share_loads
//   for v in 0..V virtual { for k in 0..K { alloc B { load B = X[k];  use B[i], v } } }
//     → alloc B[V, …] { for v in 0..V virtual { for k in 0..K {
//         load B[k mod V] = X[k];  use B[k mod V, i], v } } }
//   where all that writes B are loads of parameters that do not depend on v. The version counts the
//   iterations of all loops around the allocation, as far out as their sizes are known.
#include "compiler/targets/vta/vta_shared_loads.h"

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"

namespace tilewright::vta {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

// Whether a tensor nest loads an input or a constant, the same for all threads.
bool LoadsTheSame(const Stmt& nest, const ir::Var& thread) {
  Stmt marked = nest;
  while (ir::TensorNameOf(*marked).empty()) marked = marked->body;
  const auto match = ir::MatchTensor(marked, ir::TensorNameOf(*marked));
  if (!match.ok() || match->intrinsic->op != ir::TensorOp::kLoad) return false;
  const ir::Role role = match->operands[1].buffer->role;
  return (role == ir::Role::kInput || role == ir::Role::kConstant) && !ir::UsesVar(nest, thread);
}

bool Writes(const Stmt& s, const Buffer& buffer) {
  bool writes = false;
  ir::VisitStmts(s, [&](const Stmt& part) {
    writes = writes || (part->kind == StmtKind::kStore && part->buffer == buffer);
    return !writes;
  });
  return writes;
}

// Whether all that writes the buffer are such loads.
bool IsSameForAll(const Stmt& body, const Buffer& buffer, const ir::Var& thread) {
  bool loaded = false, same = true;
  ir::VisitStmts(body, [&](const Stmt& s) {
    const bool nest = ir::IsTensorNest(s);
    if ((nest || s->kind == StmtKind::kStore) && Writes(s, buffer)) {
      loaded = true;
      same = same && nest && LoadsTheSame(s, thread);
    }
    return !nest && same;
  });
  return loaded && same;
}

// B[i…] → B'[version, i…]
class Versioned : public ir::Rewriter {
 public:
  Versioned(Buffer from, Buffer to, Expr version)
      : from_(std::move(from)), to_(std::move(to)), version_(std::move(version)) {}
  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    const bool ours = r->kind == ir::ExprKind::kLoad && r->buffer == from_;
    return ours ? ir::Load(to_, WithVersion(r->args), r->mask) : r;
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    const bool ours = r->kind == StmtKind::kStore && r->buffer == from_;
    return ours ? ir::MakeStore(to_, WithVersion(r->indices), r->value, r->mask) : r;
  }

 private:
  std::vector<Expr> WithVersion(const std::vector<Expr>& indices) const {
    std::vector<Expr> all = {version_};
    all.insert(all.end(), indices.begin(), indices.end());
    return all;
  }
  const Buffer from_, to_;
  const Expr version_;
};

class Sharer : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind == StmtKind::kAlloc && thread_ != nullptr) {
      if (Stmt shared = Shared(s); shared != nullptr) return RewriteStmt(shared);
    }
    if (s->kind != StmtKind::kFor || ir::IsTensorNest(s)) return RewriteChildren(s);
    const int64_t* extent = ir::AsInt(s->range.extent);
    const bool is_virtual = s->for_kind == ir::ForKind::kVirtual;
    if (is_virtual && thread_ == nullptr && extent != nullptr && *extent > 1)
      return RewriteThreads(s, *extent);
    loops_.push_back(s);
    Stmt r = RewriteChildren(s);
    loops_.pop_back();
    return r;
  }

 private:
  // The loop of virtual threads, inside of the buffers that its threads share.
  Stmt RewriteThreads(const Stmt& s, int64_t threads) {
    thread_ = s->var;
    threads_ = threads;
    Stmt r = RewriteChildren(s);
    thread_ = nullptr;
    for (; !shared_.empty(); shared_.pop_back()) r = ir::MakeAlloc(shared_.back(), std::move(r));
    return r;
  }

  // The body of an allocation whose buffer all threads share; null if they do not.
  Stmt Shared(const Stmt& alloc) {
    if (!IsSameForAll(alloc->body, alloc->buffer, thread_)) return nullptr;
    auto node = std::make_shared<ir::BufferNode>(*alloc->buffer);
    node->shape.insert(node->shape.begin(), ir::Int(threads_));
    shared_.push_back(node);
    return Versioned(alloc->buffer, node, ir::FloorMod(Iteration(), ir::Int(threads_)))
        .RewriteStmt(alloc->body);
  }

  // Counts the iterations of the loops here.
  Expr Iteration() const {
    Expr count = ir::Int(0);
    for (const Stmt& loop : loops_) {
      const int64_t* extent = ir::AsInt(loop->range.extent);
      const bool known = extent != nullptr && loop->for_kind != ir::ForKind::kVirtual;
      // Loops of unknown size begin to count again.
      count = known ? count * ir::Int(*extent) : ir::Int(0);
      if (known) count = count + (ir::Cast(ir::kI64, loop->var) - loop->range.min);
    }
    return count;
  }

  std::vector<Stmt> loops_;  // around the statement
  ir::Var thread_ = nullptr;
  int64_t threads_ = 1;
  std::vector<Buffer> shared_;
};

}  // namespace

absl::StatusOr<ir::Function> ShareLoads(const ir::Function& f, const transform::PassContext&) {
  ir::Function result = f;
  result.body = Sharer().RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::vta
