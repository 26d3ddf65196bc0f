#include "compiler/schedule/split_tail.h"

#include <utility>

#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/produced.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

}  // namespace

// A point computed again starts again with its init, or from nothing; all steps of its reduction
// must then follow before another point is touched, so they may not lie around the loop.
absl::Status CheckRepeatable(const Step& step, const Path& path) {
  const Stmt& loop = path.back();
  for (const BlockSite& site : BlocksIn(loop, LoopsOf(path, path.size() - 1))) {
    const StmtNode& block = *site.block;
    auto bad = [&](std::string_view found) {
      return Refuse(step, "not_repeatable",
                    StrCat("expected that ", block.name,
                           " computes a point from scratch whenever it is visited, found ", found),
                    loop);
    };
    for (const ir::IterVar& iter : block.iters) {
      if (iter.type == ir::IterType::kSequential || iter.type == ir::IterType::kOpaque) {
        return bad("an ordered iterator");
      }
    }
    for (const ir::BufferRegion& w : block.writes) {
      if (block.init == nullptr && Reads(block, w.buffer)) return bad("an update of its result");
    }
    for (const Stmt& l : site.loops) {
      if (FeedsOf(block, l->var).reduce) {
        return bad(StrCat("its reduction loop ", l->var->name, " at or around ", loop->var->name));
      }
      if (l->var == loop->var) break;
    }
  }
  return absl::OkStatus();
}

namespace {

// The block's iterator that the loop is, and nothing else of the block depends on the loop.
absl::StatusOr<size_t> PaddedIter(const Step& step, const BlockSite& site, const Stmt& loop) {
  const StmtNode& block = *site.block;
  size_t found = block.iters.size();
  bool plain = block.body->kind == ir::StmtKind::kStore && block.body->mask == nullptr &&
               (block.predicate == nullptr || !ir::UsesVar(block.predicate, loop->var));
  for (const Stmt& l : site.loops) {
    plain =
        plain && !ir::UsesVar(l->range.min, loop->var) && !ir::UsesVar(l->range.extent, loop->var);
  }
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const ir::IterVar& iter = block.iters[i];
    if (!ir::UsesVar(iter.binding, loop->var)) continue;
    const int64_t *domain = ir::AsInt(iter.domain.extent), *extent = ir::AsInt(loop->range.extent);
    plain = plain && found == block.iters.size() && iter.binding == loop->var &&
            iter.type == ir::IterType::kSpatial && ir::IsInt(iter.domain.min, 0) &&
            ir::IsInt(loop->range.min, 0) && domain != nullptr && extent != nullptr &&
            *domain == *extent;
    found = i;
  }
  if (plain && found < block.iters.size()) return found;
  return Refuse(step, "pad_form",
                StrCat("expected that loop ", loop->var->name, " is one spatial iterator of ",
                       block.name, " from 0, found another use of it"),
                site.block);
}

// Whether the value may be computed for padded points as it is: what it reads there is defined, and
// no division can fault on it.
bool DefinedOnPadding(const Step& step, const ir::Function& f, const StmtNode& block,
                      const ir::Var& iter, int64_t extent) {
  std::vector<BlockSite> sites = BlocksIn(f.body);
  bool defined = true;
  ir::VisitExprs(block.body->value, [&](const Expr& e) {
    bool divides = e->kind == ir::ExprKind::kDiv || e->kind == ir::ExprKind::kMod ||
                   e->kind == ir::ExprKind::kFloorDiv || e->kind == ir::ExprKind::kFloorMod;
    if (divides && !e->dtype.is_float() && ir::AsInt(e->args[1]) == nullptr) defined = false;
    if (e->kind != ir::ExprKind::kLoad || Writes(block, e->buffer)) return defined;
    for (size_t d = 0; d < e->args.size(); ++d) {
      if (!ir::UsesVar(e->args[d], iter)) continue;
      const int64_t* size = ir::AsInt(e->buffer->shape[d]);
      defined = defined && e->args[d] == iter && size != nullptr && *size >= extent &&
                (IsGiven(e->buffer) || CheckWhollyWritten(step, f, sites, e->buffer).ok());
    }
    return defined;
  });
  return defined;
}

ir::Buffer Grown(const ir::Buffer& buffer, size_t dim, int64_t extent) {
  auto node = std::make_shared<ir::BufferNode>(*buffer);
  node->shape[dim] = ir::Int(extent, node->shape[dim]->dtype);
  return node;
}

absl::Status PadBlock(Schedule& s, const Step& step, const BlockSite& site, const ir::Var& loop_var,
                      int64_t old_extent, int64_t extent) {
  const Stmt& block = site.block;
  Path loop_path = FindLoop(s.function().body, loop_var);
  // The loop has its new extent already: the old one is what the iterator still has.
  auto old_loop = std::make_shared<StmtNode>(*loop_path.back());
  old_loop->range.extent = ir::Int(old_extent, loop_var->dtype);
  TW_ASSIGN(size_t at, PaddedIter(step, site, old_loop));
  TW_ASSIGN(std::vector<int> written, WrittenIters(step, block));
  const ir::Buffer out = block->writes[0].buffer;
  if (out->role != ir::Role::kIntermediate) {
    return Refuse(step, "output",
                  StrCat("expected blocks that write intermediates, found ", out->name), block);
  }
  size_t dim = static_cast<size_t>(std::find(written.begin(), written.end(), static_cast<int>(at)) -
                                   written.begin());
  bool one = WritersOf(BlocksIn(s.function().body), out).size() == 1;
  const int64_t* size = ir::AsInt(out->shape[dim]);
  if (!one || size == nullptr || *size != old_extent) {
    return Refuse(step, one ? "pad_form" : "several_writers",
                  StrCat("expected one block that writes all of dimension ", dim, " of ", out->name,
                         ", found another"),
                  block);
  }
  auto node = std::make_shared<StmtNode>(*block);
  ir::IterVar& iter = node->iters[at];
  Expr inside = iter.var < iter.domain.extent;
  iter.domain.extent = ir::Int(extent, iter.var->dtype);
  if (!DefinedOnPadding(step, s.function(), *block, iter.var, extent)) {
    const StmtNode& store = *block->body;
    node->body = ir::MakeStore(store.buffer, store.indices,
                               ir::Select(inside, store.value, ir::Zero(store.value->dtype)));
  }
  ir::Buffer grown = Grown(out, dim, extent);
  Path path = FindBlock(s.function().body, block->name);
  Stmt body = ReplaceAt(path, path.size() - 1, std::move(node));
  s.SetBody(std::move(body));
  ReplaceIntermediate(s, out, grown);
  return absl::OkStatus();
}

}  // namespace

absl::Status PadLoop(Schedule& s, const Step& step, const Path& path, int64_t extent) {
  const Stmt& loop = path.back();
  const int64_t* old_extent = ir::AsInt(loop->range.extent);
  if (old_extent == nullptr) {
    return Refuse(step, "pad_form", "expected a loop with a constant extent, found another", loop);
  }
  Schedule trial = s;
  auto node = std::make_shared<StmtNode>(*loop);
  node->range.extent = ir::Int(extent, loop->var->dtype);
  trial.SetBody(ReplaceAt(path, path.size() - 1, std::move(node)));
  std::vector<std::string> names;
  for (const BlockSite& site : BlocksIn(loop)) names.push_back(site.block->name);
  for (const std::string& name : names) {
    Path block_path = FindBlock(trial.function().body, name);
    TW_TRY(PadBlock(trial, step, {block_path.back(), LoopsOf(block_path)}, loop->var, *old_extent,
                    extent));
  }
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
