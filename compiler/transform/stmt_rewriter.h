// A rewriter of statements alone: their expressions stay as they are.
#pragma once

#include "compiler/ir/visit.h"

namespace tilewright::transform {

class StmtRewriter : public ir::Rewriter {
 public:
  ir::Expr RewriteExpr(const ir::Expr& e) final { return e; }
};

}  // namespace tilewright::transform
