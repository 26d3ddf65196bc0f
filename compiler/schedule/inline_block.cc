// inline: a block's expression takes the place of loads of its result. reverse_inline: a block's
// expression is computed where its operand is.
#include <algorithm>

#include "compiler/ir/build.h"
#include "compiler/ir/structural.h"
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
  auto add = [&](const Expr& value) {
    for (ir::BufferRegion& r : ir::PointReads(value)) {
      if (block.init == nullptr || !Writes(block, r.buffer)) reads.push_back(std::move(r));
    }
  };
  ir::VisitStmts(block.body, [&](const Stmt& s) {
    for (const Stmt& element : s->kind == ir::StmtKind::kCombine ? s->stmts : std::vector<Stmt>())
      add(ir::Load(element->buffer, element->indices));
    if (s->kind == ir::StmtKind::kStore) add(s->value);
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
  for (const BlockSite& site : sites) {
    if (site.block->writes.empty() && Reads(*site.block, out)) {
      return Refuse(step, "prefetched",
                    StrCat("expected consumers that compute with ", out->name, ", found that ",
                           site.block->name, " only fetches it"),
                    site.block);
    }
  }
  std::vector<ir::Var> vars;
  for (int i : written) {
    vars.push_back(i < 0 ? nullptr : block->iters[static_cast<size_t>(i)].var);
  }
  LoadReplacer replacer(out, vars, block->body->value);
  Stmt body = ReplaceAt(path, OwnNest(path), nullptr);
  for (const BlockSite& o : sites) {
    if (!HasLoops(o.block->body) || !Reads(*o.block, out)) continue;
    return Refuse(step, "consumer_form",
                  StrCat("expected consumers without loops in their bodies, found ", o.block->name),
                  o.block);
  }
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

namespace {

// The one read of an intermediate at the block's own iterators, and who writes it.
struct Feed {
  ir::Buffer buffer;
  std::vector<int> iters;  // of the consumer, per dimension of the buffer
  BlockSite producer;
};

absl::StatusOr<Feed> FindFeed(const Step& step, const std::vector<BlockSite>& sites,
                              const Stmt& block) {
  Feed feed;
  for (const ir::BufferRegion& r : block->reads) {
    if (r.buffer->role != ir::Role::kIntermediate) continue;
    bool last = feed.buffer == nullptr;
    if (!last && r.buffer == feed.buffer) {
      return Refuse(step, "read_form", "expected one read of the producer's result, found two",
                    block);
    }
    if (!last) continue;
    std::vector<BlockSite> writers = WritersOf(sites, r.buffer);
    if (writers.size() != 1) {
      return Refuse(step, "several_writers",
                    StrCat("expected one producer of ", r.buffer->name, ", found ", writers.size()),
                    block);
    }
    TW_ASSIGN(feed.iters, ReadIters(step, block, r));
    feed.buffer = r.buffer;
    feed.producer = writers[0];
  }
  if (feed.buffer == nullptr) {
    return Refuse(step, "no_producer", "expected a block that reads an intermediate, found none",
                  block);
  }
  for (const BlockSite& site : sites) {
    if (site.block == block || !Reads(*site.block, feed.buffer)) continue;
    return Refuse(step, "other_consumer",
                  StrCat("expected ", block->name, " alone to read ", feed.buffer->name, ", found ",
                         site.block->name),
                  site.block);
  }
  return feed;
}

size_t CommonLoops(const BlockSite& a, const BlockSite& b) {
  size_t common = 0;
  while (common < a.loops.size() && common < b.loops.size() && a.loops[common] == b.loops[common]) {
    ++common;
  }
  return common;
}

// What else the block reads must be complete where the producer stands, in every iteration.
absl::Status CheckOtherInputs(const Step& step, const std::vector<BlockSite>& sites,
                              const BlockSite& consumer, const Feed& feed) {
  size_t at = 0;
  while (sites[at].block != feed.producer.block) ++at;
  size_t shared = CommonLoops(feed.producer, consumer);
  for (const ir::BufferRegion& input : consumer.block->reads) {
    if (input.buffer == feed.buffer) continue;
    for (size_t i = 0; i < sites.size(); ++i) {
      if (!Writes(*sites[i].block, input.buffer)) continue;
      if (i < at && CommonLoops(sites[i], feed.producer) <= shared) continue;
      return Refuse(step, "input_later",
                    StrCat("expected that ", input.buffer->name, " is complete at ",
                           feed.producer.block->name, ", found that ", sites[i].block->name,
                           " writes it later or concurrently"),
                    sites[i].block);
    }
  }
  return absl::OkStatus();
}

bool SameDomain(const ir::Range& a, const ir::Range& b) {
  return ir::StructuralEqual(a.min, b.min) && ir::StructuralEqual(a.extent, b.extent);
}

// consumer's iterators → the producer's, where both run over the same points.
absl::StatusOr<ir::VarMap> MatchIters(const Step& step, const Stmt& block, const Feed& feed) {
  TW_ASSIGN(std::vector<int> written, WrittenIters(step, feed.producer.block));
  ir::VarMap map;
  for (size_t d = 0; d < written.size(); ++d) {
    if (feed.iters[d] < 0 && written[d] < 0) continue;
    bool both = feed.iters[d] >= 0 && written[d] >= 0;
    const ir::IterVar* to =
        both ? &feed.producer.block->iters[static_cast<size_t>(written[d])] : nullptr;
    const ir::IterVar* from = both ? &block->iters[static_cast<size_t>(feed.iters[d])] : nullptr;
    if (!both || !SameDomain(to->domain, from->domain)) {
      return Refuse(step, "domain",
                    StrCat("expected that ", block->name, " and ", feed.producer.block->name,
                           " run over the same points, found another dimension ", d),
                    block);
    }
    map[from->var.get()] = to->var;
  }
  for (const ir::IterVar& iter : block->iters) {
    if (map.count(iter.var.get()) != 0) continue;
    if (ir::IsInt(iter.domain.extent, 1)) {
      map[iter.var.get()] = iter.domain.min;
      continue;
    }
    return Refuse(step, "domain",
                  StrCat("expected that ", block->name, " runs over the points of ",
                         feed.buffer->name, " only, found ", iter.var->name),
                  block);
  }
  return map;
}

}  // namespace

absl::Status ApplyReverseInline(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt block = path.back();
  TW_TRY(WrittenIters(step, block).status());
  TW_TRY(CheckInjective(step, block));
  std::vector<BlockSite> sites = BlocksIn(path[0]);
  TW_ASSIGN(Feed feed, FindFeed(step, sites, block));
  const Stmt producer = feed.producer.block;
  if (producer->init != nullptr || producer->body->kind != ir::StmtKind::kStore ||
      producer->body->mask != nullptr || Reads(*producer, feed.buffer)) {
    return Refuse(step, "reduction", "expected a producer of one store without reduction",
                  producer);
  }
  if (WritersOf(sites, block->writes[0].buffer).size() != 1) {
    return Refuse(
        step, "several_writers",
        StrCat("expected one block that writes ", block->writes[0].buffer->name, ", found more"),
        block);
  }
  TW_ASSIGN(ir::VarMap iters, MatchIters(step, block, feed));
  TW_TRY(CheckOtherInputs(step, sites, {block, LoopsOf(path)}, feed));

  auto node = std::make_shared<StmtNode>(*producer);
  LoadReplacer replacer(feed.buffer, std::vector<ir::Var>(feed.buffer->shape.size()),
                        producer->body->value);
  Stmt store = replacer.RewriteStmt(ir::Substitute(block->body, iters));
  if (CountNodes(store) > kMaxExpressionNodes) {
    return Refuse(
        step, "too_large",
        StrCat("expected at most ", kMaxExpressionNodes, " nodes after inlining, found more"),
        block);
  }
  node->writes = block->writes;
  for (ir::Range& r : node->writes[0].region) r.min = ir::Substitute(r.min, iters);
  node->body = store;
  node->reads = ReadsOf(*node);
  Stmt body = ReplaceAt(path, OwnNest(path), nullptr);
  Path to = FindBlock(body, producer->name);
  body = ReplaceAt(to, to.size() - 1, std::move(node));
  TW_TRY(CheckConcurrentLoops(step, s.function(), body));
  for (size_t i = OwnNest(path); i < path.size(); ++i) {
    if (path[i]->kind == ir::StmtKind::kFor) s.KillLoop(path[i]->var);
  }
  s.KillBlock(block->name);
  s.SetBody(std::move(body));
  std::erase(s.mutable_function().allocs, feed.buffer);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
