// TRANSFORMATION of hoist_open_buffers (kLoops → kLoops): buffers whose size is an expression over
// size parameters stand around the whole body, where a kernel knows how much scratch they take.
// Iterations of a parallel loop get one each. Buffers of one size that do not live at the same
// time, as those of the copies that partition_loops makes, are one.
//   parallel i in 0..m { alloc B: f32[n]; … B[j] … }
//     → alloc B: f32[m, n]; parallel i in 0..m { … B[i, j] … }
#include <algorithm>
#include <vector>

#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

class Hoister : public ir::Rewriter {
 public:
  Stmt Around(Stmt body) const {
    for (size_t i = made_.size(); i-- > 0;) body = ir::MakeAlloc(made_[i], std::move(body));
    return body;
  }

  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    if (r->kind != ExprKind::kLoad) return r;
    const Moved* moved = Find(r->buffer);
    return moved == nullptr ? r : ir::Load(moved->to, Index(*moved, r->args), r->mask);
  }
  Stmt RewriteStmt(const Stmt& s) override {
    // Below a parallel loop, the others run one iteration after the other.
    const bool task =
        s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kParallel && task_ == nullptr;
    if (task) task_ = s;
    if (s->kind == StmtKind::kAlloc && !ir::ConstantBytes(*s->buffer)) Move(s->buffer);
    Stmt r = RewriteChildren(s);
    if (task) task_ = nullptr;
    if (r->buffer == nullptr) return r;
    const Moved* moved = Find(r->buffer);
    if (moved == nullptr) return r;
    if (r->kind == StmtKind::kAlloc) {
      free_.push_back(moved->to);
      return r->body;
    }
    if (r->kind != StmtKind::kStore) return r;
    return ir::MakeStore(moved->to, Index(*moved, r->indices), r->value, r->mask);
  }

 private:
  struct Moved {
    Buffer from, to;
    Expr task;  // its place in the first dimension; null where there is none
  };

  const Moved* Find(const Buffer& buffer) const {
    for (const Moved& moved : moved_) {
      if (moved.from == buffer) return &moved;
    }
    return nullptr;
  }

  void Move(const Buffer& buffer) {
    Moved moved{buffer, buffer, nullptr};
    if (task_ != nullptr) {
      auto wide = std::make_shared<ir::BufferNode>(*buffer);
      wide->shape.insert(wide->shape.begin(), task_->range.extent);
      wide->scope = ir::Scope::kGlobal;
      moved.to = wide;
      moved.task =
          ir::IsInt(task_->range.min, 0) ? Expr(task_->var) : Expr(task_->var) - task_->range.min;
    }
    moved.to = Reused(moved.to);
    moved_.push_back(std::move(moved));
  }

  // One that is free and like `wanted`; else that one.
  Buffer Reused(const Buffer& wanted) {
    const auto found = std::ranges::find_if(free_, [&](const Buffer& free) {
      return free->dtype == wanted->dtype && free->scope == wanted->scope &&
             ir::StructuralEqual(free->shape, wanted->shape);
    });
    if (found == free_.end()) return made_.emplace_back(wanted);
    const Buffer free = *found;
    free_.erase(found);
    return free;
  }

  static std::vector<Expr> Index(const Moved& moved, std::vector<Expr> indices) {
    if (moved.task != nullptr) indices.insert(indices.begin(), moved.task);
    return indices;
  }

  std::vector<Moved> moved_;
  std::vector<Buffer> made_, free_;
  Stmt task_;  // the parallel loop around
};

}  // namespace

absl::StatusOr<Function> HoistOpenBuffers(const Function& f, const PassContext&) {
  if (f.size_params.empty()) return f;
  Function result = f;
  Hoister hoister;
  const Stmt body = hoister.RewriteStmt(f.body);
  result.body = hoister.Around(body);
  return result;
}

}  // namespace tilewright::transform
