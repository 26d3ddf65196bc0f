// blockize: a tile of a block's instances becomes one instance.
#include <algorithm>

#include "compiler/analysis/access_region.h"
#include "compiler/analysis/injective.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::AffineSum;
using analysis::AffineTerm;
using analysis::Analyzer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;
using support::StrCat;

// The loops of a block divided at the loop that is blockized.
struct LoopTile {
  BlockSite site;
  std::vector<Stmt> inner;
  size_t depth = 0;  // of the blockized loop on the path to it
};

absl::StatusOr<LoopTile> FindTile(const Step& step, const Path& path) {
  LoopTile tile;
  tile.depth = path.size() - 1;
  tile.site.loops = LoopsOf(path, path.size() - 1);
  if (HasLoopOfKind(tile.site.loops, ir::ForKind::kVectorized)) {
    return Refuse(step, "vectorized", "expected a place outside vectorised loops, found one inside",
                  path[0]);
  }
  Stmt at = path.back();
  for (; at->kind == StmtKind::kFor; at = at->body) {
    const int64_t* extent = ir::AsInt(at->range.extent);
    if (at->for_kind != ir::ForKind::kSerial || !ir::IsInt(at->range.min, 0) || extent == nullptr) {
      return Refuse(
          step, "not_serial",
          StrCat("expected serial loops from 0 with constant extents, found ", at->var->name),
          path.back());
    }
    tile.inner.push_back(at);
    tile.site.loops.push_back(at);
  }
  if (at->kind != StmtKind::kBlock) {
    return Refuse(step, "not_perfect",
                  "expected one block below the loop in a perfect nest, found more", path.back());
  }
  if (HasLoops(at->body) || (at->init != nullptr && HasLoops(at->init))) {
    return Refuse(step, "body_form", "expected a block without loops in its body, found some", at);
  }
  tile.site.block = at;
  return tile;
}

// What decides that inner loops may become part of the body.
absl::Status CheckLoops(const Step& step, const ir::Function& f, const LoopTile& tile) {
  const StmtNode& block = *tile.site.block;
  for (const Stmt& loop : tile.inner) {
    Feeds feeds = FeedsOf(block, loop->var);
    if (feeds.ordered) {
      return Refuse(step, "ordered",
                    StrCat("expected loops over spatial and reduction iterators, found that ",
                           loop->var->name, " feeds an ordered one"),
                    loop);
    }
    if (block.init != nullptr && feeds.spatial && feeds.reduce) {
      return Refuse(step, "mixed_loop",
                    StrCat("expected loops over spatial or over reduction iterators, found ",
                           loop->var->name),
                    loop);
    }
    if (block.predicate != nullptr && ir::UsesVar(block.predicate, loop->var)) {
      return Refuse(
          step, "predicate",
          StrCat("expected a tile that is always whole, found a condition on ", loop->var->name),
          tile.site.block);
    }
  }
  if (block.init == nullptr) return absl::OkStatus();
  Analyzer analyzer = BlockAnalyzer(f, tile.site);
  std::vector<AffineSum> sums = BindingSums(analyzer, block);
  std::vector<ir::Var> inner = VarsOf(tile.inner);
  std::vector<bool> known = InjectiveIn(sums, inner, {}, analyzer);
  for (size_t i = 0; i < inner.size(); ++i) {
    const int64_t* extent = ir::AsInt(tile.inner[i]->range.extent);
    if (known[i] || *extent <= 1) continue;
    return Refuse(step, "repeated",
                  StrCat("expected that each iteration of ", inner[i]->name,
                         " is work of its own, found that it may be repeated"),
                  tile.inner[i]);
  }
  return absl::OkStatus();
}

// What becomes of the block's iterators.
struct NewIters {
  std::vector<ir::IterVar> iters;
  ir::VarMap values;  // of the old iterators, over the new ones and the inner loops
};

absl::Status DivideIter(const Step& step, Schedule& s, const LoopTile& tile,
                        const Analyzer& analyzer, const ir::IterVar& iter, NewIters* result) {
  std::vector<ir::Var> inner = VarsOf(tile.inner);
  AffineSum sum = analyzer.Affine(iter.binding);
  AffineSum outside{sum.dtype, {}, sum.constant}, inside{sum.dtype, {}, 0};
  int64_t last = 0;  // of the inner part
  for (const AffineTerm& t : sum.terms) {
    bool uses = std::any_of(inner.begin(), inner.end(),
                            [&](const ir::Var& v) { return ir::UsesVar(t.atom, v); });
    if (!uses) {
      outside.terms.push_back(t);
      continue;
    }
    if (t.atom->kind != ir::ExprKind::kVar || t.coeff < 0) {
      return Refuse(
          step, "binding",
          StrCat("iterator ", iter.var->name, ": expected multiples of the loops below, found ",
                 ir::Print(iter.binding)),
          tile.site.block);
    }
    inside.terms.push_back(t);
    last += t.coeff * t.range.max;
  }
  const bool names_inner = std::any_of(
      inner.begin(), inner.end(), [&](const ir::Var& v) { return ir::UsesVar(iter.binding, v); });
  if (inside.terms.empty() && (!names_inner || !outside.terms.empty() || outside.constant != 0)) {
    result->iters.push_back(iter);
    // Loops of one iteration are no part of the sum.
    if (names_inner) result->iters.back().binding = ToExpr(outside);
    return absl::OkStatus();
  }
  if (outside.terms.empty() && outside.constant == 0) {
    result->values[iter.var.get()] = ToExpr(inside);
    return absl::OkStatus();
  }
  const int64_t size = last + 1;
  const int64_t* extent = ir::AsInt(iter.domain.extent);
  bool aligned = outside.constant % size == 0 && ir::IsInt(iter.domain.min, 0) &&
                 extent != nullptr && *extent % size == 0;
  for (const AffineTerm& t : outside.terms) aligned = aligned && t.coeff % size == 0;
  if (!aligned) {
    return Refuse(step, "unaligned",
                  StrCat("iterator ", iter.var->name, ": expected tiles of ", size,
                         " that start at multiples of it and fill the domain, found ",
                         ir::Print(iter.binding)),
                  tile.site.block);
  }
  outside.constant /= size;
  for (AffineTerm& t : outside.terms) t.coeff /= size;
  ir::IterVar tiles = iter;
  tiles.var = ir::MakeVar(s.UniqueName(iter.var->name + "_o"), iter.var->dtype);
  tiles.domain.extent = ir::Int(*extent / size, iter.domain.extent->dtype);
  tiles.binding = ToExpr(outside);
  Expr first = size == 1 ? tiles.var : tiles.var * ir::Int(size, tiles.var->dtype);
  result->values[iter.var.get()] = first + ToExpr(inside);
  result->iters.push_back(std::move(tiles));
  return absl::OkStatus();
}

Stmt Nested(const std::vector<Stmt>& loops, Stmt body) {
  for (size_t i = loops.size(); i-- > 0;) {
    body = ir::MakeFor(loops[i]->var, loops[i]->range.min, loops[i]->range.extent, std::move(body));
  }
  return body;
}

// The box that a tile touches of what one instance touches.
std::vector<ir::BufferRegion> TileRegions(const std::vector<ir::BufferRegion>& regions,
                                          const ir::VarMap& values, const LoopTile& tile,
                                          const analysis::Analyzer& inside) {
  std::vector<analysis::LoopRange> inner;
  for (const Stmt& l : tile.inner) inner.push_back({l->var, l->range});
  std::vector<ir::BufferRegion> result;
  for (const ir::BufferRegion& r : regions) {
    ir::BufferRegion point = r;
    for (ir::Range& dim : point.region) dim.min = ir::Substitute(dim.min, values);
    ir::BufferRegion box = analysis::RegionOf(r.buffer, {point}, inner, inside);
    for (ir::Range& dim : box.region) {
      dim.min = analysis::Simplify(dim.min, inside);
      dim.extent = analysis::Simplify(dim.extent, inside);
    }
    result.push_back(std::move(box));
  }
  return result;
}

}  // namespace

absl::Status ApplyBlockize(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  TW_ASSIGN(LoopTile tile, FindTile(step, path));
  TW_TRY(CheckLoops(step, s.function(), tile));
  const StmtNode& block = *tile.site.block;
  Schedule trial = s;  // names are taken only when the step is accepted
  Analyzer analyzer = AnalyzerOf(s.function(), tile.site.loops);
  NewIters iters;
  for (const ir::IterVar& iter : block.iters) {
    TW_TRY(DivideIter(step, trial, tile, analyzer, iter, &iters));
  }
  analysis::Analyzer inside(s.function());
  bool reduces = false;
  for (const ir::IterVar& iter : iters.iters) {
    inside.SetRange(iter.var, iter.domain);
    reduces = reduces || iter.type == ir::IterType::kReduce;
  }
  for (const Stmt& l : tile.inner) inside.SetRange(l->var, l->range);

  auto node = std::make_shared<StmtNode>(block);
  node->iters = iters.iters;
  node->reads = TileRegions(block.reads, iters.values, tile, inside);
  node->writes = TileRegions(block.writes, iters.values, tile, inside);
  node->body = Nested(tile.inner, ir::Substitute(block.body, iters.values));
  node->init = nullptr;
  if (block.init != nullptr) {
    std::vector<Stmt> spatial;
    for (const Stmt& l : tile.inner) {
      if (FeedsOf(block, l->var).spatial) spatial.push_back(l);
    }
    Stmt init = ir::CloneWithFreshVars(Nested(spatial, ir::Substitute(block.init, iters.values)));
    if (reduces) {
      node->init = std::move(init);
    } else {
      node->body = ir::MakeSeq({std::move(init), node->body});
      // Without an init of the block, what it accumulates into is read like anything else.
      node->reads.insert(node->reads.end(), node->writes.begin(), node->writes.end());
    }
  }
  Stmt body = ReplaceAt(path, tile.depth, std::move(node));
  TW_TRY(CheckConcurrentLoops(step, s.function(), body));
  for (const Stmt& l : tile.inner) trial.KillLoop(l->var);
  trial.SetBody(std::move(body));
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
