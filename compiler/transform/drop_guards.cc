// TRANSFORMATIONS of drop_guards (kLoops → kLoops), for conditions on open sizes around what a
// function writes to buffers of its own:
//   for v in 0..2 unrolled { if t·2 + v < N { A[v] = B[v] + … } }
//     → for v in 0..2 unrolled { A[v] = B[v] + … }
// where A and B have the element for every v, and who fills B does so for all of them: a tile of
// intermediate results is computed whole, and what is behind its end goes nowhere, for the function
// writes no more of its results. Of a conjunction, each part may go on its own. A loop with such a
// condition inside would keep its sums in memory. Of loops marked tail=peel the conditions stay:
// partition_loops makes remainders of those that compute nothing too much.
#include <algorithm>
#include <set>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/peel.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// A condition around one store, with the statements that it is in, outermost first.
struct Guard {
  Stmt guarded;  // the If
  Expr rest;     // of its condition without what may go; null where all of it may
  std::vector<Stmt> around;
  const ir::StmtNode& store() const { return *guarded->body; }
};

// Whether loops go over other elements where their condition does not hold: a sum of loops, each
// times a constant. What is clamped, or wraps, may write again what is there.
bool IsLinear(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kVar:
    case ExprKind::kIntImm:
      return true;
    case ExprKind::kAdd:
    case ExprKind::kSub:
      return IsLinear(e->args[0]) && IsLinear(e->args[1]);
    case ExprKind::kMul:
      return (ir::AsInt(e->args[0]) != nullptr && IsLinear(e->args[1])) ||
             (ir::AsInt(e->args[1]) != nullptr && IsLinear(e->args[0]));
    default:
      return false;
  }
}

class Guards {
 public:
  explicit Guards(const ir::Function& f) : analyzer_(f) {
    for (const ir::Var& size : f.size_params) sizes_.insert(size.get());
    Collect(f.body);
    Keep([&](const Guard& g) { return !IsSafe(g); });
    // Without its condition a store reads what others without theirs wrote.
    while (Keep([&](const Guard& g) { return TouchesPartial(g.store()); })) {
    }
  }

  bool empty() const { return guards_.empty(); }
  // What goes at this statement; null where nothing does.
  const Guard* Find(const Stmt& s) const {
    const auto it = std::find_if(guards_.begin(), guards_.end(),
                                 [&](const Guard& g) { return g.guarded == s; });
    return it == guards_.end() ? nullptr : &*it;
  }

 private:
  void Collect(const Stmt& s) {
    if (s->kind == StmtKind::kAlloc) own_.insert(s->buffer.get());
    if (s->kind == StmtKind::kStore && conditions_ > 0) partial_.insert(s->buffer.get());
    if (s->kind == StmtKind::kIf && conditions_ == 0 && GuardsOwnStore(*s)) {
      std::vector<Expr> kept = ir::Conjuncts(s->condition);
      if (std::erase_if(kept, [&](const Expr& e) { return MayGo(e); }) > 0) {
        guards_.push_back({s, ir::Conjunction(kept), around_});
        return;
      }
    }
    const bool condition = s->kind == StmtKind::kIf;
    conditions_ += condition ? 1 : 0;
    around_.push_back(s);
    for (const Stmt& child : s->stmts) Collect(child);
    if (s->body != nullptr) Collect(s->body);
    if (s->else_body != nullptr) Collect(s->else_body);
    around_.pop_back();
    conditions_ -= condition ? 1 : 0;
  }

  // Whether it is a condition around one store to a buffer of the function.
  bool GuardsOwnStore(const ir::StmtNode& s) const {
    return s.else_body == nullptr && s.body->kind == StmtKind::kStore &&
           own_.count(s.body->buffer.get()) > 0;
  }

  // Whether it asks about an open size, and not about a loop marked tail=peel.
  bool MayGo(const Expr& condition) const {
    bool open = false, peeled = false;
    ir::VisitExprs(condition, [&](const Expr& e) {
      open = open || sizes_.count(e.get()) > 0;
      peeled = peeled || std::any_of(around_.begin(), around_.end(), [&](const Stmt& loop) {
                 return loop->kind == StmtKind::kFor && loop->var == e && IsPeeled(*loop);
               });
      return true;
    });
    return open && !peeled;
  }

  // Those of which `which` is true stay; returns whether there are any.
  template <typename Which>
  bool Keep(const Which& which) {
    std::vector<const ir::BufferNode*> written;
    std::erase_if(guards_, [&](const Guard& g) {
      const bool stays = which(g);
      if (stays) written.push_back(g.store().buffer.get());
      return stays;
    });
    partial_.insert(written.begin(), written.end());
    return !written.empty();
  }

  bool TouchesPartial(const ir::StmtNode& store) const {
    bool found = partial_.count(store.buffer.get()) > 0;
    ir::VisitExprs(store.value, [&](const Expr& e) {
      found = found || (e->kind == ExprKind::kLoad && partial_.count(e->buffer.get()) > 0);
      return !found;
    });
    return found;
  }

  // Whether all that the store touches is there without its condition: of statements that run where
  // something is missing, none is left.
  bool IsSafe(const Guard& guard) const {
    const ir::StmtNode& store = guard.store();
    if (store.mask != nullptr || !std::ranges::all_of(store.indices, IsLinear)) return false;
    std::vector<Stmt> missing;
    Ask(store.buffer, store.indices, guard.guarded->body, &missing);
    AskLoads(store.value, guard.guarded->body, &missing);
    Stmt probe = ir::MakeSeq(std::move(missing));
    if (guard.rest != nullptr) probe = ir::MakeIf(guard.rest, probe);
    for (auto outer = guard.around.rbegin(); outer != guard.around.rend(); ++outer) {
      const ir::StmtNode& s = **outer;
      if (s.kind == StmtKind::kFor) {
        probe = ir::MakeFor(s.var, s.range.min, s.range.extent, probe, ir::ForKind::kSerial);
      }
      if (s.kind == StmtKind::kLet) probe = ir::MakeLet(s.var, s.value, probe);
    }
    probe = analysis::Simplify(probe, analyzer_);
    return probe->kind == StmtKind::kSeq && probe->stmts.empty();
  }

  // Adds statements that run where an index is outside of the buffer.
  static void Ask(const Buffer& buffer, const std::vector<Expr>& indices, const Stmt& mark,
                  std::vector<Stmt>* missing) {
    const Stmt nothing = ir::MakeSeq({});
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr& index = indices[d];
      missing->push_back(ir::MakeIf(ir::Int(-1, index->dtype) < index, nothing, mark));
      missing->push_back(ir::MakeIf(index < buffer->shape[d], nothing, mark));
    }
  }

  // The same of all loads in `e`; of a choice's only where it takes them.
  static void AskLoads(const Expr& e, const Stmt& mark, std::vector<Stmt>* missing) {
    if (e->kind == ExprKind::kSelect) {
      std::vector<Stmt> taken, other;
      AskLoads(e->args[0], mark, missing);
      AskLoads(e->args[1], mark, &taken);
      AskLoads(e->args[2], mark, &other);
      missing->push_back(
          ir::MakeIf(e->args[0], ir::MakeSeq(std::move(taken)), ir::MakeSeq(std::move(other))));
      return;
    }
    if (e->kind == ExprKind::kLoad) Ask(e->buffer, e->args, mark, missing);
    for (const Expr& part : e->args) AskLoads(part, mark, missing);
  }

  analysis::Analyzer analyzer_;
  std::set<const ir::ExprNode*> sizes_;
  std::set<const ir::BufferNode*> own_, partial_;  // partial: of some store, a condition stays
  std::vector<Stmt> around_;
  int conditions_ = 0;  // in `around_`
  std::vector<Guard> guards_;
};

class WithoutGuards : public ir::Rewriter {
 public:
  explicit WithoutGuards(const Guards& guards) : guards_(guards) {}
  Stmt RewriteStmt(const Stmt& s) override {
    const Guard* guard = s->kind == StmtKind::kIf ? guards_.Find(s) : nullptr;
    if (guard == nullptr) return RewriteChildren(s);
    return guard->rest == nullptr ? s->body : ir::MakeIf(guard->rest, s->body);
  }

 private:
  const Guards& guards_;
};

}  // namespace

absl::StatusOr<Function> DropGuards(const Function& f, const PassContext&) {
  if (f.size_params.empty()) return f;
  const Guards guards(f);
  if (guards.empty()) return f;
  Function result = f;
  result.body = WithoutGuards(guards).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
