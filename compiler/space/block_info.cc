#include "compiler/space/block_info.h"

#include <algorithm>
#include <set>

#include "compiler/analysis/address.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/loop_tree.h"

namespace tilewright::space {
namespace {

using ir::Expr;

std::vector<int64_t> Strides(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                             const std::vector<ir::IterVar>& iters) {
  std::vector<double> dim_strides(indices.size(), 1);
  for (size_t d = indices.size(); d-- > 1;) {
    const int64_t* extent = ir::AsInt(buffer->shape[d]);
    dim_strides[d - 1] = dim_strides[d] * static_cast<double>(extent != nullptr ? *extent : 1);
  }
  std::vector<analysis::FirstValue> first;
  for (const ir::IterVar& iter : iters) first.push_back({iter.var, 0});
  return analysis::FirstSteps(indices, dim_strides, first, {});
}

bool IsAtIterators(const std::vector<Expr>& indices, const std::vector<ir::IterVar>& iters) {
  if (indices.size() != iters.size()) return false;
  for (size_t d = 0; d < iters.size(); ++d) {
    const bool single = ir::IsInt(iters[d].domain.extent, 1) && ir::IsInt(indices[d], 0);
    if (indices[d] != iters[d].var && !single) return false;
  }
  return true;
}

void AddLoads(const Expr& value, const ir::StmtNode& block, BlockInfo* info) {
  ir::VisitExprs(value, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && e->buffer != info->writes) {
      if (std::find(info->reads.begin(), info->reads.end(), e->buffer) == info->reads.end()) {
        info->reads.push_back(e->buffer);
      }
      info->load_strides.push_back(Strides(e->buffer, e->args, block.iters));
      if (!IsAtIterators(e->args, block.iters)) info->moved_reads.push_back(e->buffer);
    }
    return true;
  });
}

BlockInfo Describe(const ir::StmtNode& block, const std::vector<const ir::StmtNode*>& loops) {
  BlockInfo info;
  info.name = block.name;
  info.has_init = block.init != nullptr;
  ir::VisitExprsIn(block.body, [&info](const ir::Expr& e) {
    info.calls = info.calls || ir::IsMathCall(*e);
    return true;
  });
  info.perfect_nest = loops.size() == block.iters.size() && block.predicate == nullptr;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const ir::IterVar& iter = block.iters[i];
    const int64_t* extent = ir::AsInt(iter.domain.extent);
    info.iters.push_back(
        {iter.var->name, extent != nullptr ? *extent : 0, iter.type == ir::IterType::kReduce});
    info.plain = info.plain && extent != nullptr &&
                 (iter.type == ir::IterType::kSpatial || iter.type == ir::IterType::kReduce);
    info.perfect_nest = info.perfect_nest && iter.binding == loops[i]->var;
  }
  if (!block.body || block.body->kind != ir::StmtKind::kStore) {
    info.plain = false;
    return info;
  }
  const ir::StmtNode& store = *block.body;
  info.writes = store.buffer;
  info.store_strides = Strides(store.buffer, store.indices, block.iters);
  size_t d = 0;
  info.identity_store = true;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    if (info.iters[i].reduce) continue;
    info.identity_store =
        info.identity_store && d < store.indices.size() && store.indices[d++] == block.iters[i].var;
  }
  info.identity_store = info.identity_store && d == store.indices.size();
  AddLoads(store.value, block, &info);
  info.dot = FindDotProduct(block);
  return info;
}

void Walk(const ir::Stmt& s, std::vector<const ir::StmtNode*>* loops, std::vector<BlockInfo>* out) {
  switch (s->kind) {
    case ir::StmtKind::kFor:
      loops->push_back(s.get());
      Walk(s->body, loops, out);
      loops->pop_back();
      break;
    case ir::StmtKind::kSeq:
      for (const ir::Stmt& child : s->stmts) Walk(child, loops, out);
      break;
    case ir::StmtKind::kBlock:
      out->push_back(Describe(*s, *loops));
      break;
    default:
      break;
  }
}

}  // namespace

bool HasStage(const ir::Function& function, std::string_view suffix) {
  const auto is_stage = [&](const schedule::BlockSite& site) {
    return site.block->name.ends_with(suffix);
  };
  return std::ranges::any_of(schedule::BlocksIn(function.body), is_stage);
}

std::vector<BlockInfo> DescribeBlocks(const ir::Function& function) {
  std::vector<BlockInfo> blocks;
  std::vector<const ir::StmtNode*> loops;
  if (function.body) Walk(function.body, &loops, &blocks);
  return blocks;
}

std::vector<size_t> LaneAxes(const BlockInfo& p, const std::vector<size_t>& spatial,
                             const std::vector<int64_t>& extents) {
  std::vector<size_t> good, fair;
  for (size_t a = 0; a < spatial.size(); ++a) {
    if (extents[a] < 2) continue;
    bool contiguous = false, clean = true;
    for (const std::vector<int64_t>& load : p.load_strides) {
      const int64_t stride = load[spatial[a]];
      contiguous = contiguous || stride == 1;
      clean = clean && (stride == 0 || stride == 1);
    }
    if (contiguous && clean) good.push_back(a);
    if (contiguous) fair.push_back(a);
  }
  if (!good.empty()) return good;
  if (!fair.empty()) return fair;
  for (size_t a = spatial.size(); a-- > 0;) {
    if (extents[a] >= 2) return {a};
  }
  return {};
}

bool FollowsPointwise(const BlockInfo& p, const BlockInfo& o) {
  std::vector<int64_t> wanted, found;
  for (const IterInfo& iter : p.iters) {
    if (!iter.reduce) wanted.push_back(iter.extent);
  }
  for (const IterInfo& iter : o.iters) found.push_back(iter.extent);
  return o.plain && o.perfect_nest && !o.has_init && o.identity_store && wanted == found &&
         std::find(o.reads.begin(), o.reads.end(), p.writes) != o.reads.end() &&
         std::find(o.moved_reads.begin(), o.moved_reads.end(), p.writes) == o.moved_reads.end();
}

bool IsTileable(const BlockInfo& p) {
  return p.plain && p.perfect_nest && p.has_init && p.identity_store &&
         std::any_of(p.iters.begin(), p.iters.end(), [](const IterInfo& i) { return i.reduce; });
}

std::optional<TiledReduction> FindTiledReduction(const std::vector<BlockInfo>& blocks,
                                                 size_t most) {
  const auto reduces = [](const BlockInfo& block) { return block.has_init; };
  const auto p = std::find_if(blocks.begin(), blocks.end(), reduces);
  const auto reductions = std::count_if(blocks.begin(), blocks.end(), reduces);
  if (p == blocks.end() || reductions != 1 || !IsTileable(*p) || blocks.size() > most) {
    return std::nullopt;
  }
  TiledReduction found{*p, {blocks.begin(), p}, {p + 1, blocks.end()}, ""};
  if (!found.behind.empty() && FollowsPointwise(*p, found.behind[0])) {
    found.consumer = found.behind[0].name;
    found.behind.erase(found.behind.begin());
  }
  return found;
}

std::optional<StageBlocks> StageBlocks::Around(const std::vector<BlockInfo>& blocks,
                                               std::string_view suffix) {
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const BlockInfo& block) {
    return block.has_init && block.name.ends_with(suffix);
  });
  if (found == blocks.end()) return std::nullopt;
  return StageBlocks(blocks, &*found, found->name.substr(0, found->name.size() - suffix.size()));
}

const BlockInfo* StageBlocks::Take(std::string_view suffix) {
  const std::string name = result_ + std::string(suffix);
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const BlockInfo& block) { return block.name == name; });
  if (found == blocks_.end()) return nullptr;
  ++taken_;
  return &*found;
}

bool StageBlocks::Take(std::string_view suffix, std::string* name) {
  const BlockInfo* stage = Take(suffix);
  *name = stage != nullptr ? stage->name : "";
  return stage != nullptr;
}

std::optional<std::string> StageBlocks::Epilogue(size_t rank) const {
  if (blocks_.size() == taken_) return "";
  const BlockInfo& last = blocks_.back();
  const bool follows = blocks_.size() == taken_ + 1 && last.plain && last.perfect_nest &&
                       !last.has_init && last.identity_store && last.name != result_ &&
                       last.iters.size() == rank;
  return follows ? std::optional(last.name) : std::nullopt;
}

std::vector<int64_t> Divisors(int64_t extent, int64_t least, int64_t most) {
  std::vector<int64_t> menu;
  for (int64_t d = least; d <= std::min(extent, most); ++d) {
    if (extent % d == 0) menu.push_back(d);
  }
  return menu;
}

std::vector<int64_t> TileMenu(int64_t extent, int64_t limit) {
  limit = std::min(extent, limit);
  std::set<int64_t> menu = {1};
  for (const int64_t size : {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}) {
    if (size <= limit) menu.insert(size);
  }
  for (int64_t d = 1; d <= limit; ++d) {
    if (extent % d == 0) menu.insert(d);
  }
  if (extent <= limit) menu.insert(extent);
  return {menu.begin(), menu.end()};
}

}  // namespace tilewright::space
