// inline: a block's expression takes the place of loads of its result.
#include <algorithm>

#include "compiler/ir/build.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// Expressions larger than this are not inlined any further: every load of the result multiplies.
constexpr int kMaxExpressionNodes = 4096;

class LoadReplacer : public ir::Rewriter {
 public:
  LoadReplacer(ir::Buffer buffer, std::vector<ir::Var> vars, Expr value)
      : buffer_(std::move(buffer)), vars_(std::move(vars)), value_(std::move(value)) {}

  Expr RewriteExpr(const Expr& e) override {
    Expr rewritten = RewriteChildren(e);
    if (rewritten->kind != ir::ExprKind::kLoad || rewritten->buffer != buffer_) return rewritten;
    ir::VarMap map;
    for (size_t d = 0; d < vars_.size(); ++d) {
      if (vars_[d] != nullptr) map[vars_[d].get()] = rewritten->args[d];
    }
    return ir::Substitute(value_, map);
  }

 private:
  ir::Buffer buffer_;
  std::vector<ir::Var> vars_;  // null where the dimension has no iterator
  Expr value_;
};

int CountNodes(const Stmt& s) {
  int count = 0;
  ir::VisitExprsIn(s, [&](const Expr&) { return ++count <= kMaxExpressionNodes; });
  return count;
}

// What the body loads, point by point; without the block's own result where an init makes it.
std::vector<ir::BufferRegion> ReadsOf(const StmtNode& block) {
  std::vector<ir::BufferRegion> reads;
  ir::VisitStmts(block.body, [&](const Stmt& s) {
    if (s->kind != ir::StmtKind::kStore) return true;
    for (ir::BufferRegion& r : ir::PointReads(s->value)) {
      if (block.init == nullptr || !Writes(block, r.buffer)) reads.push_back(std::move(r));
    }
    return true;
  });
  return reads;
}

absl::Status CheckInjective(const Step& step, const Stmt& block) {
  bool plain = block->init == nullptr && block->body->kind == ir::StmtKind::kStore &&
               block->body->mask == nullptr && block->body->buffer == block->writes[0].buffer;
  for (const ir::IterVar& iter : block->iters) {
    plain = plain && iter.type == ir::IterType::kSpatial;
  }
  if (!plain || Reads(*block, block->writes[0].buffer)) {
    return Refuse(step, "not_injective", "expected one store without reduction, found another body",
                  block);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyInline(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt block = path.back();
  TW_ASSIGN(std::vector<int> written, WrittenIters(step, block));
  TW_TRY(CheckInjective(step, block));
  const ir::Buffer out = block->writes[0].buffer;
  std::vector<BlockSite> sites = BlocksIn(path[0]);
  if (out->role != ir::Role::kIntermediate) {
    return Refuse(step, "output", StrCat("expected an intermediate result, found ", out->name),
                  block);
  }
  bool one = WritersOf(sites, out).size() == 1;
  bool consumed = std::any_of(sites.begin(), sites.end(),
                              [&](const BlockSite& o) { return Reads(*o.block, out); });
  if (!one || !consumed) {
    return Refuse(step, one ? "no_consumer" : "several_writers",
                  StrCat("expected one producer and a consumer of ", out->name, ", found ",
                         one ? "no consumer" : "several producers"),
                  block);
  }
  std::vector<ir::Var> vars;
  for (int i : written) {
    vars.push_back(i < 0 ? nullptr : block->iters[static_cast<size_t>(i)].var);
  }
  LoadReplacer replacer(out, vars, block->body->value);
  Stmt body = ReplaceAt(path, OwnNest(path), nullptr);
  bool too_large = false;
  body = MapBlocks(body, [&](const Stmt& consumer) -> Stmt {
    if (!Reads(*consumer, out)) return consumer;
    auto node = std::make_shared<StmtNode>(*consumer);
    node->body = replacer.RewriteStmt(consumer->body);
    too_large = too_large || CountNodes(node->body) > kMaxExpressionNodes;
    if (too_large) return consumer;
    node->reads = ReadsOf(*node);
    return node;
  });
  if (too_large) {
    return Refuse(
        step, "too_large",
        StrCat("expected at most ", kMaxExpressionNodes, " nodes after inlining, found more"),
        block);
  }
  TW_TRY(CheckConcurrentLoops(step, s.function(), body));
  for (size_t i = OwnNest(path); i < path.size(); ++i) {
    if (path[i]->kind == ir::StmtKind::kFor) s.KillLoop(path[i]->var);
  }
  s.KillBlock(block->name);
  s.SetBody(std::move(body));
  std::erase(s.mutable_function().allocs, out);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
