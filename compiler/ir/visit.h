// Visitors and rewriters over the tensor IR. Rewriters preserve identity: an unchanged subtree
// comes back as the same pointer, so callers can test for change by address. Not thread-safe per
// object; make one per use.
#pragma once

#include <functional>
#include <unordered_map>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// Pre-order walk; return false from a callback to skip the children.
void VisitExprs(const Expr& e, const std::function<bool(const Expr&)>& f);
void VisitStmts(const Stmt& s, const std::function<bool(const Stmt&)>& f);
// Every expression that stands in `s` (loop bounds, bindings, predicates, regions, indices, values,
// masks).
void VisitExprsIn(const Stmt& s, const std::function<bool(const Expr&)>& f);

// Post-order rewriting. Override what you need; call the base to rewrite the children.
class Rewriter {
 public:
  virtual ~Rewriter() = default;
  virtual Expr RewriteExpr(const Expr& e);
  virtual Stmt RewriteStmt(const Stmt& s);

 protected:
  // Rebuild with children rewritten by RewriteExpr / RewriteStmt; same pointer when nothing
  // changed.
  Expr RewriteChildren(const Expr& e);
  Stmt RewriteChildren(const Stmt& s);
  virtual Buffer RewriteBuffer(const Buffer& b) { return b; }
};

// `e` with other operands, rebuilt through the factories (so constants fold and types are checked).
Expr WithArgs(const Expr& e, std::vector<Expr> args);

using VarMap = std::unordered_map<const ExprNode*, Expr>;
using BufferMap = std::unordered_map<const BufferNode*, Buffer>;
// Replaces uses of variables; binding sites (For, Let, block iters) keep their variable. Variables
// are addresses, so nothing is ever captured.
Expr Substitute(const Expr& e, const VarMap& map);
Stmt Substitute(const Stmt& s, const VarMap& map);
Stmt ReplaceBuffers(const Stmt& s, const BufferMap& map);
// A copy in which every variable bound inside has a new identity (names stay): for passes that
// clone statements.
Stmt CloneWithFreshVars(const Stmt& s);
bool UsesVar(const Expr& e, const Var& var);
bool HasLoad(const Expr& e);  // reads a buffer
bool UsesVar(const Stmt& s, const Var& var);
bool Touches(const Stmt& s, const BufferNode* buffer);  // reads or writes it

}  // namespace tilewright::ir
