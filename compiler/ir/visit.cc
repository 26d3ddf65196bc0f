#include "compiler/ir/visit.h"

#include <utility>

namespace tilewright::ir {
namespace {

// The expressions and statements directly below a statement, in text order.
template <typename OnExpr, typename OnStmt>
void ForEachChild(const StmtNode& s, const OnExpr& on_expr, const OnStmt& on_stmt) {
  auto expr = [&](const Expr& e) {
    if (e != nullptr) on_expr(e);
  };
  auto range = [&](const Range& r) {
    expr(r.min);
    expr(r.extent);
  };
  range(s.range);
  for (const IterVar& iter : s.iters) {
    range(iter.domain);
    expr(iter.binding);
  }
  expr(s.predicate);
  for (const auto* regions : {&s.reads, &s.writes}) {
    for (const BufferRegion& r : *regions) {
      for (const Range& dim : r.region) range(dim);
    }
  }
  expr(s.condition);
  for (const Expr& i : s.indices) expr(i);
  expr(s.mask);
  expr(s.value);
  for (const Stmt* child : {&s.init, &s.body, &s.else_body}) {
    if (*child != nullptr) on_stmt(*child);
  }
  for (const Stmt& child : s.stmts) on_stmt(child);
}

class SubstituteRewriter : public Rewriter {
 public:
  explicit SubstituteRewriter(const VarMap& map) : map_(map) {}
  Expr RewriteExpr(const Expr& e) override {
    if (e->kind != ExprKind::kVar) return RewriteChildren(e);
    auto it = map_.find(e.get());
    return it == map_.end() ? e : it->second;
  }

 private:
  const VarMap& map_;
};

class BufferRewriter : public Rewriter {
 public:
  explicit BufferRewriter(const BufferMap& map) : map_(map) {}

 protected:
  Buffer RewriteBuffer(const Buffer& b) override {
    auto it = map_.find(b.get());
    return it == map_.end() ? b : it->second;
  }

 private:
  const BufferMap& map_;
};

// Gives every variable bound inside a statement a new identity.
class FreshenRewriter : public Rewriter {
 public:
  Expr RewriteExpr(const Expr& e) override {
    if (e->kind != ExprKind::kVar) return RewriteChildren(e);
    auto it = map_.find(e.get());
    return it == map_.end() ? e : it->second;
  }
  Stmt RewriteStmt(const Stmt& s) override {
    const bool named = s->kind == StmtKind::kFor || s->kind == StmtKind::kLet;
    if (!named && s->iters.empty()) return RewriteChildren(s);
    auto copy = std::make_shared<StmtNode>(*s);
    auto fresh = [&](Var& var) {
      Var renamed = MakeVar(var->name, var->dtype);
      map_[var.get()] = renamed;
      var = renamed;
    };
    if (named) fresh(copy->var);
    for (IterVar& iter : copy->iters) fresh(iter.var);
    return RewriteChildren(copy);
  }

 private:
  VarMap map_;
};

}  // namespace

void VisitExprs(const Expr& e, const std::function<bool(const Expr&)>& f) {
  if (!f(e)) return;
  for (const Expr& a : e->args) VisitExprs(a, f);
  if (e->mask != nullptr) VisitExprs(e->mask, f);
}

void VisitStmts(const Stmt& s, const std::function<bool(const Stmt&)>& f) {
  if (!f(s)) return;
  ForEachChild(*s, [](const Expr&) {}, [&](const Stmt& child) { VisitStmts(child, f); });
}

void VisitExprsIn(const Stmt& s, const std::function<bool(const Expr&)>& f) {
  ForEachChild(
      *s, [&](const Expr& e) { VisitExprs(e, f); },
      [&](const Stmt& child) { VisitExprsIn(child, f); });
}

Expr Rewriter::RewriteExpr(const Expr& e) { return RewriteChildren(e); }
Stmt Rewriter::RewriteStmt(const Stmt& s) { return RewriteChildren(s); }

Expr Rewriter::RewriteChildren(const Expr& e) {
  if (e->args.empty() && e->buffer == nullptr) return e;
  std::vector<Expr> args;  // made by the first change
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr r = RewriteExpr(e->args[i]);
    if (r == e->args[i]) continue;
    if (args.empty()) args = e->args;
    args[i] = std::move(r);
  }
  const bool changed = !args.empty();
  if (e->kind != ExprKind::kLoad) return changed ? WithArgs(e, std::move(args)) : e;
  Expr mask = e->mask == nullptr ? nullptr : RewriteExpr(e->mask);
  Buffer buffer = RewriteBuffer(e->buffer);
  if (!changed && mask == e->mask && buffer == e->buffer) return e;
  if (!changed) args = e->args;
  return Load(std::move(buffer), std::move(args), std::move(mask));
}

Stmt Rewriter::RewriteChildren(const Stmt& s) {
  std::shared_ptr<StmtNode> copy;  // made by the first change: most statements have none
  // `place` finds in a node what `child` is in `s`.
  auto put = [&](const auto& child, auto rewritten, const auto& place) {
    if (rewritten == child) return;
    if (copy == nullptr) copy = std::make_shared<StmtNode>(*s);
    place(*copy) = std::move(rewritten);
  };
  auto expr = [&](const Expr& e, const auto& place) {
    if (e != nullptr) put(e, RewriteExpr(e), place);
  };
  auto range = [&](const Range& r, const auto& place) {
    expr(r.min, [&](StmtNode& n) -> Expr& { return place(n).min; });
    expr(r.extent, [&](StmtNode& n) -> Expr& { return place(n).extent; });
  };
  auto regions = [&](const std::vector<BufferRegion>& all, const auto& place) {
    for (size_t i = 0; i < all.size(); ++i) {
      auto region = [&](StmtNode& n) -> BufferRegion& { return place(n)[i]; };
      if (all[i].buffer != nullptr) {
        put(all[i].buffer, RewriteBuffer(all[i].buffer),
            [&](StmtNode& n) -> Buffer& { return region(n).buffer; });
      }
      for (size_t d = 0; d < all[i].region.size(); ++d) {
        range(all[i].region[d], [&](StmtNode& n) -> Range& { return region(n).region[d]; });
      }
    }
  };
  auto stmt = [&](const Stmt& child, const auto& place) {
    if (child != nullptr) put(child, RewriteStmt(child), place);
  };
  range(s->range, [](StmtNode& n) -> Range& { return n.range; });
  for (size_t i = 0; i < s->iters.size(); ++i) {
    range(s->iters[i].domain, [&](StmtNode& n) -> Range& { return n.iters[i].domain; });
    expr(s->iters[i].binding, [&](StmtNode& n) -> Expr& { return n.iters[i].binding; });
  }
  expr(s->predicate, [](StmtNode& n) -> Expr& { return n.predicate; });
  regions(s->reads, [](StmtNode& n) -> std::vector<BufferRegion>& { return n.reads; });
  regions(s->writes, [](StmtNode& n) -> std::vector<BufferRegion>& { return n.writes; });
  expr(s->condition, [](StmtNode& n) -> Expr& { return n.condition; });
  if (s->buffer != nullptr) {
    put(s->buffer, RewriteBuffer(s->buffer), [](StmtNode& n) -> Buffer& { return n.buffer; });
  }
  for (size_t i = 0; i < s->indices.size(); ++i) {
    expr(s->indices[i], [&](StmtNode& n) -> Expr& { return n.indices[i]; });
  }
  expr(s->mask, [](StmtNode& n) -> Expr& { return n.mask; });
  expr(s->value, [](StmtNode& n) -> Expr& { return n.value; });
  stmt(s->init, [](StmtNode& n) -> Stmt& { return n.init; });
  stmt(s->body, [](StmtNode& n) -> Stmt& { return n.body; });
  stmt(s->else_body, [](StmtNode& n) -> Stmt& { return n.else_body; });
  for (size_t i = 0; i < s->stmts.size(); ++i) {
    stmt(s->stmts[i], [&](StmtNode& n) -> Stmt& { return n.stmts[i]; });
  }
  if (copy == nullptr) return s;
  if (s->kind == StmtKind::kCombine) return MakeCombine(copy->combiner, std::move(copy->stmts));
  if (s->kind == StmtKind::kSeq)
    return MakeSeq(std::move(copy->stmts));  // a rewritten child may be a sequence itself
  return copy;
}

Expr WithArgs(const Expr& e, std::vector<Expr> args) {
  switch (e->kind) {
    case ExprKind::kVar:
    case ExprKind::kIntImm:
    case ExprKind::kFloatImm:
      return e;
    case ExprKind::kCast:
      return Cast(e->dtype.WithLanes(args[0]->dtype.lanes), args[0]);
    case ExprKind::kNot:
      return Not(args[0]);
    case ExprKind::kSelect:
      return Select(args[0], args[1], args[2]);
    case ExprKind::kLoad:
      return Load(e->buffer, std::move(args), e->mask);
    case ExprKind::kRamp:
      return Ramp(args[0], args[1], e->dtype.lanes);
    case ExprKind::kBroadcast:
      return Broadcast(args[0], e->dtype.lanes);
    case ExprKind::kCall:
      return Call(e->intrinsic, std::move(args));
    default:
      return Binary(e->kind, args[0], args[1]);
  }
}

Expr Substitute(const Expr& e, const VarMap& map) {
  return map.empty() ? e : SubstituteRewriter(map).RewriteExpr(e);
}
Stmt Substitute(const Stmt& s, const VarMap& map) {
  return map.empty() ? s : SubstituteRewriter(map).RewriteStmt(s);
}
Stmt ReplaceBuffers(const Stmt& s, const BufferMap& map) {
  return map.empty() ? s : BufferRewriter(map).RewriteStmt(s);
}
Stmt CloneWithFreshVars(const Stmt& s) { return FreshenRewriter().RewriteStmt(s); }

bool HasLoad(const Expr& e) {
  bool loads = false;
  VisitExprs(e, [&](const Expr& x) {
    loads = loads || x->kind == ExprKind::kLoad;
    return !loads;
  });
  return loads;
}

bool UsesVar(const Expr& e, const Var& var) {
  if (e == var) return true;
  for (const Expr& a : e->args) {
    if (UsesVar(a, var)) return true;
  }
  return e->mask != nullptr && UsesVar(e->mask, var);
}

bool UsesVar(const Stmt& s, const Var& var) {
  bool used = false;
  ForEachChild(
      *s, [&](const Expr& e) { used = used || UsesVar(e, var); },
      [&](const Stmt& child) { used = used || UsesVar(child, var); });
  return used;
}

bool Touches(const Stmt& s, const BufferNode* buffer) {
  bool found = false;
  VisitStmts(s, [&](const Stmt& part) {
    found = found || (part->kind == StmtKind::kStore && part->buffer.get() == buffer);
    return !found;
  });
  if (found) return true;
  VisitExprsIn(s, [&](const Expr& e) {
    found = found || (e->kind == ExprKind::kLoad && e->buffer.get() == buffer);
    return !found;
  });
  return found;
}

}  // namespace tilewright::ir
