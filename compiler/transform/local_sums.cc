// TRANSFORMATIONS of local_sums (kLoops → kLoops), for loops marked local_sums=1:
//   for t in 0..n @local_sums {
//     for i in 0..4 { S[t·4 + i] = 0 }
//     for k in 0..m { for i in 0..4 { S[t·4 + i] = S[t·4 + i] + … } }
//   }
//     → for t in 0..n { alloc local: f32[4] {
//         for i in 0..4 { local[i] = 0 }
//         for k in 0..m { for i in 0..4 { local[i] = local[i] + … } }
//         for i in 0..4 { S[t·4 + i] = local[i] }
//       } }
// The sums are numbered by the loops that run over them, not by where they lie: so they are local
// also where their places are no box (the loop is part of two fused ones). Only where the body is
// an init and its reduction, where no two sums lie in one place, and where registers hold them.
#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/analysis/injective.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"
#include "deploy/support/strings.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// Loops and conditions, one in the other, around one store.
struct Nest {
  std::vector<Stmt> around;  // outermost first
  Stmt store;

  // The loops whose variables the store's place depends on.
  std::vector<Stmt> Loops() const {
    std::vector<Stmt> loops;
    for (const Stmt& s : around) {
      if (s->kind == StmtKind::kFor && Moves(s->var)) loops.push_back(s);
    }
    return loops;
  }
  bool Moves(const ir::Var& var) const {
    return std::ranges::any_of(store->indices, [&](const Expr& e) { return ir::UsesVar(e, var); });
  }
  std::vector<Expr> Conditions() const {
    std::vector<Expr> found;
    for (const Stmt& s : around) {
      if (s->kind == StmtKind::kIf) found.push_back(s->condition);
    }
    return found;
  }
};

std::optional<Nest> NestOf(Stmt s) {
  Nest nest;
  while (s->kind != StmtKind::kStore) {
    const bool loop =
        s->kind == StmtKind::kFor && ir::IsInt(s->range.min, 0) &&
        (s->for_kind == ir::ForKind::kSerial || s->for_kind == ir::ForKind::kUnrolled ||
         s->for_kind == ir::ForKind::kVectorized);
    const bool condition = s->kind == StmtKind::kIf && s->else_body == nullptr;
    if (!loop && !condition) return std::nullopt;
    nest.around.push_back(s);
    s = s->body;
  }
  if (s->mask != nullptr) return std::nullopt;
  nest.store = std::move(s);
  return nest;
}

// The init and the reduction of sums that have the same loops around them.
struct LocalSet {
  Nest init, update;
  std::vector<Stmt> loops, update_loops;  // over the sums, of either
  Buffer buffer() const { return init.store->buffer; }
};

// Whether the update reads the sums where it writes them, and the init does not.
bool ReadsOwnPlaces(const LocalSet& sums) {
  bool own = false, others = false;
  const auto visit = [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->buffer != sums.buffer()) return true;
    const bool same =
        e->mask == nullptr && ir::StructuralEqual(e->args, sums.update.store->indices);
    own = own || same;
    others = others || !same;
    return true;
  };
  ir::VisitExprs(sums.init.store->value, visit);
  const bool fresh = !own && !others;
  ir::VisitExprs(sums.update.store->value, visit);
  return fresh && own && !others;
}

std::optional<LocalSet> SetOf(const Stmt& body) {
  if (body->kind != StmtKind::kSeq || body->stmts.size() != 2) return std::nullopt;
  std::optional<Nest> init = NestOf(body->stmts[0]), update = NestOf(body->stmts[1]);
  if (!init || !update || init->store->buffer != update->store->buffer) return std::nullopt;
  LocalSet sums{*std::move(init), *std::move(update), {}, {}};
  const Buffer& buffer = sums.buffer();
  if (buffer->role != ir::Role::kIntermediate || buffer->scope != ir::Scope::kGlobal) return {};
  sums.loops = sums.init.Loops();
  sums.update_loops = sums.update.Loops();
  if (sums.loops.size() != sums.update_loops.size()) return std::nullopt;
  ir::VarMap same;
  for (size_t i = 0; i < sums.loops.size(); ++i) {
    const Stmt &a = sums.loops[i], &b = sums.update_loops[i];
    const bool known = ir::AsInt(a->range.extent) != nullptr;
    if (!known || !ir::StructuralEqual(a->range.extent, b->range.extent)) return std::nullopt;
    same[b->var.get()] = a->var;
  }
  const auto as_init = [&](std::vector<Expr> of) {
    for (Expr& e : of) e = ir::Substitute(e, same);
    return of;
  };
  if (!ir::StructuralEqual(as_init(sums.update.store->indices), sums.init.store->indices))
    return {};
  // What is added to was set.
  const std::vector<Expr> update_if = as_init(sums.update.Conditions());
  for (const Expr& e : sums.init.Conditions()) {
    if (!std::ranges::any_of(update_if, [&](const Expr& u) { return StructuralEqual(u, e); }))
      return {};
  }
  if (!ReadsOwnPlaces(sums)) return std::nullopt;
  return sums;
}

// Loads of one buffer, all of one place, become another load.
class OfLocal : public ir::Rewriter {
 public:
  OfLocal(const Buffer& buffer, Expr load) : buffer_(buffer), load_(std::move(load)) {}
  Expr RewriteExpr(const Expr& e) override {
    return e->kind == ExprKind::kLoad && e->buffer == buffer_ ? load_ : RewriteChildren(e);
  }

 private:
  const Buffer& buffer_;
  const Expr load_;
};

class Localizer : public ir::Rewriter {
 public:
  Localizer(const Function& f, const target::Machine& machine)
      : function_(f), cloner_(f), machine_(machine) {}

  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kFor) return RewriteChildren(s);
    loops_.push_back(s);
    Stmt result = s;
    const std::optional<LocalSet> sums =
        s->annotations.contains("local_sums") ? SetOf(s->body) : std::nullopt;
    if (sums && Fit(*sums) && AreApart(*sums)) {
      auto node = std::make_shared<ir::StmtNode>(*s);
      node->body = Local(*sums);
      result = node;
    } else {
      result = RewriteChildren(s);
    }
    loops_.pop_back();
    return result;
  }

 private:
  bool Fit(const LocalSet& sums) const {
    int64_t bytes = sums.buffer()->dtype.bytes();
    for (const Stmt& loop : sums.loops) bytes *= *ir::AsInt(loop->range.extent);
    return bytes <= int64_t{machine_.vector_registers} * machine_.vector_bytes;
  }

  // Whether the places of different sums differ.
  bool AreApart(const LocalSet& sums) const {
    if (sums.init.store->indices.empty()) return true;  // one sum
    analysis::Analyzer analyzer(function_);
    for (const Stmt& loop : loops_) analyzer.SetRange(loop->var, loop->range);
    std::vector<ir::Var> vars;
    for (const Stmt& loop : sums.loops) {
      analyzer.SetRange(loop->var, loop->range);
      vars.push_back(loop->var);
    }
    const std::vector<Expr>& shape = sums.buffer()->shape;
    Expr place = sums.init.store->indices[0];
    for (size_t d = 1; d < shape.size(); ++d) {
      place = place * shape[d] + sums.init.store->indices[d];
    }
    const analysis::AffineSum index[] = {analyzer.Affine(analysis::Simplify(place, analyzer))};
    const std::vector<bool> apart = analysis::InjectiveIn(index, vars, {}, analyzer);
    return std::ranges::all_of(apart, [](bool yes) { return yes; });
  }

  Stmt Local(const LocalSet& sums) {
    std::vector<Expr> shape;
    for (const Stmt& loop : sums.loops) shape.push_back(loop->range.extent);
    const Buffer& buffer = sums.buffer();
    const Buffer local = ir::MakeBuffer(cloner_.UnusedName(buffer->name + "_local"), buffer->dtype,
                                        shape, ir::Role::kIntermediate, ir::Scope::kLocal);
    const auto at = [](const std::vector<Stmt>& loops) {
      std::vector<Expr> index;
      for (const Stmt& loop : loops) index.push_back(loop->var);
      return index;
    };
    const std::vector<Expr> first = at(sums.loops), next = at(sums.update_loops);
    const Stmt init = Around(sums.init, ir::MakeStore(local, first, sums.init.store->value));
    const Expr added = OfLocal(buffer, ir::Load(local, next)).RewriteExpr(sums.update.store->value);
    const Stmt update = Around(sums.update, ir::MakeStore(local, next, added));
    const Stmt out = cloner_.Clone(
        Around(sums.init, ir::MakeStore(buffer, sums.init.store->indices, ir::Load(local, first))));
    return ir::MakeAlloc(local, ir::MakeSeq({init, update, out}));
  }

  // The nest around another store.
  static Stmt Around(const Nest& nest, Stmt store) {
    for (size_t i = nest.around.size(); i-- > 0;) {
      auto node = std::make_shared<ir::StmtNode>(*nest.around[i]);
      node->body = std::move(store);
      store = node;
    }
    return store;
  }

  const Function& function_;
  Cloner cloner_;
  const target::Machine& machine_;
  std::vector<Stmt> loops_;
};

}  // namespace

absl::StatusOr<Function> LocalSums(const Function& f, const PassContext& ctx) {
  Function result = f;
  result.body = Localizer(f, ctx.target.machine).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
