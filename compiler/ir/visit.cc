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
    StmtNode copy = *s;
    bool binds = false;
    auto fresh = [&](Var& var) {
      Var renamed = MakeVar(var->name, var->dtype);
      map_[var.get()] = renamed;
      var = renamed;
      binds = true;
    };
    if (s->kind == StmtKind::kFor || s->kind == StmtKind::kLet) fresh(copy.var);
    for (IterVar& iter : copy.iters) fresh(iter.var);
    return RewriteChildren(binds ? std::make_shared<const StmtNode>(std::move(copy)) : s);
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
  bool changed = false;
  std::vector<Expr> args;
  args.reserve(e->args.size());
  for (const Expr& a : e->args) {
    args.push_back(RewriteExpr(a));
    changed |= args.back() != a;
  }
  if (e->kind != ExprKind::kLoad) return changed ? WithArgs(e, std::move(args)) : e;
  Expr mask = e->mask == nullptr ? nullptr : RewriteExpr(e->mask);
  Buffer buffer = RewriteBuffer(e->buffer);
  if (!changed && mask == e->mask && buffer == e->buffer) return e;
  return Load(std::move(buffer), std::move(args), std::move(mask));
}

Stmt Rewriter::RewriteChildren(const Stmt& s) {
  StmtNode copy = *s;
  bool changed = false;
  auto expr = [&](Expr& e) {
    if (e == nullptr) return;
    Expr r = RewriteExpr(e);
    if (r == e) return;
    changed = true;
    e = std::move(r);
  };
  auto range = [&](Range& r) {
    expr(r.min);
    expr(r.extent);
  };
  auto buffer = [&](Buffer& b) {
    if (b == nullptr) return;
    Buffer r = RewriteBuffer(b);
    changed |= r != b;
    b = std::move(r);
  };
  auto stmt = [&](Stmt& child) {
    if (child == nullptr) return;
    Stmt r = RewriteStmt(child);
    changed |= r != child;
    child = std::move(r);
  };
  range(copy.range);
  for (IterVar& iter : copy.iters) {
    range(iter.domain);
    expr(iter.binding);
  }
  expr(copy.predicate);
  for (auto* regions : {&copy.reads, &copy.writes}) {
    for (BufferRegion& r : *regions) {
      buffer(r.buffer);
      for (Range& dim : r.region) range(dim);
    }
  }
  expr(copy.condition);
  buffer(copy.buffer);
  for (Expr& i : copy.indices) expr(i);
  expr(copy.mask);
  expr(copy.value);
  stmt(copy.init);
  stmt(copy.body);
  stmt(copy.else_body);
  for (Stmt& child : copy.stmts) stmt(child);
  if (!changed) return s;
  if (s->kind == StmtKind::kCombine) return MakeCombine(copy.combiner, std::move(copy.stmts));
  if (s->kind == StmtKind::kSeq)
    return MakeSeq(std::move(copy.stmts));  // a rewritten child may be a sequence itself
  return std::make_shared<const StmtNode>(std::move(copy));
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

}  // namespace tilewright::ir
