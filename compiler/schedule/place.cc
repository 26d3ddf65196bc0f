// compute_at, reverse_compute_at: where in a loop nest a block is computed.
#include <algorithm>
#include <optional>

#include "compiler/analysis/footprint.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/produced.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::AffineSum;
using analysis::Analyzer;
using analysis::Footprint;
using analysis::kIndexLimit;
using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// Whether block b (path `from`) can be moved next to what is in loop l (path `to`): b stands in a
// nest of its own beside the subtree that holds l. On success the depth of that nest.
struct Move {
  size_t own = 0;
  bool block_first = false;
};

absl::StatusOr<Move> PlanMove(const Step& step, const Path& from, const Path& to) {
  const StmtNode& block = *from.back();
  const StmtNode& loop = *to.back();
  Move move{.own = OwnNest(from)};
  size_t common = 0;
  while (common < from.size() && common < to.size() && from[common] == to[common]) ++common;
  if (common == to.size()) {
    return Refuse(step, "already_below",
                  StrCat("expected a block outside loop ", loop.var->name, ", found ", block.name,
                         " below it"),
                  to.back());
  }
  if (move.own > common) {
    return Refuse(step, "shared_nest",
                  StrCat("expected that no other block shares the loops that ", block.name,
                         " would leave, found one"),
                  from[common]);
  }
  if (HasLoopOfKind(LoopsOf(to), ir::ForKind::kVectorized)) {
    return Refuse(step, "vectorized",
                  StrCat("expected a place outside vectorised loops, found ", loop.var->name),
                  to.back());
  }
  for (const Stmt& child : from[common - 1]->stmts) {
    if (child == from[common]) move.block_first = true;
    if (child == from[common] || child == to[common]) break;
  }
  return move;
}

// The block's new nest: one loop per iterator, spatial ones over their part of the box.
struct NewNest {
  Stmt nest;
  std::vector<ir::Var> loops;
};

// `box[i]` belongs to block.iters[i]; iterators without a part run over their whole domain. `outer`
// knows the loops around the new place. Parts of the box outside the domain are cut by the
// predicate, which starts from `guards`. Without `exact` a box as large as the domain may become
// the whole domain.
NewNest MakeNest(Schedule& s, const StmtNode& block, const Box& box, Analyzer outer,
                 std::vector<Expr> guards, bool exact) {
  NewNest result;
  auto node = std::make_shared<StmtNode>(block);
  std::vector<Expr> extents;
  for (size_t i = 0; i < node->iters.size(); ++i) {
    ir::IterVar& iter = node->iters[i];
    const ir::DType type = iter.var->dtype;
    const int64_t* whole = ir::AsInt(iter.domain.extent);
    bool part = box[i].has_value() && (exact || whole == nullptr || box[i]->extent < *whole);
    Expr extent = part ? ir::Int(box[i]->extent, type) : iter.domain.extent;
    ir::Var loop = ir::MakeVar(s.UniqueName(LoopNameFor(iter) + "_a"), type);
    outer.SetRange(loop, {ir::Int(0, type), extent});
    Expr base = part ? ToExpr(box[i]->min) : iter.domain.min;
    iter.binding = outer.Normal(base + loop);
    if (part) {
      guards.push_back(iter.binding < iter.domain.min + iter.domain.extent);
      guards.push_back(iter.binding >= iter.domain.min);
    }
    result.loops.push_back(loop);
    extents.push_back(extent);
  }
  node->predicate = outer.NormalPredicate(ir::Conjunction(guards));
  Stmt nest = std::move(node);
  for (size_t i = result.loops.size(); i-- > 0;) {
    nest = ir::MakeFor(result.loops[i], ir::Int(0, result.loops[i]->dtype), extents[i],
                       std::move(nest));
  }
  result.nest = std::move(nest);
  return result;
}

// Takes the old nest away and puts the new one at the start or end of the loop's body.
ir::Stmt MovedBody(const Path& from, size_t own, const ir::Var& loop, Stmt nest, bool at_end) {
  Stmt without = ReplaceAt(from, own, nullptr);
  Path path = FindLoop(without, loop);
  auto node = std::make_shared<StmtNode>(*path.back());
  std::vector<Stmt> stmts = {node->body};
  stmts.insert(at_end ? stmts.end() : stmts.begin(), std::move(nest));
  node->body = ir::MakeSeq(std::move(stmts));
  return ReplaceAt(path, path.size() - 1, std::move(node));
}

void FinishMove(Schedule& s, const Path& from, size_t own, const NewNest& nest, Stmt body) {
  s.SetBody(std::move(body));
  for (const Stmt& l : LoopsOf(from)) {
    bool left = false;
    for (size_t i = own; i < from.size(); ++i) left = left || from[i] == l;
    if (left) s.KillLoop(l->var);
  }
  for (const ir::Var& v : nest.loops) s.AddLoop(v);
}

// Position of a block among all blocks.
size_t IndexOf(const std::vector<BlockSite>& sites, std::string_view name) {
  size_t i = 0;
  while (sites[i].block->name != name) ++i;
  return i;
}

// What the block visits in one iteration of the loops that it stays in.
absl::StatusOr<Box> KeptPoints(const Step& step, const ir::Function& f,
                               const std::vector<BlockSite>& sites, const Path& from, size_t own) {
  std::vector<ir::Var> left;
  for (size_t i = own; i + 1 < from.size(); ++i) left.push_back(from[i]->var);
  return OwnPoints(step, f, sites[IndexOf(sites, from.back()->name)], left);
}

bool ReadsAny(const StmtNode& block, const std::vector<ir::BufferRegion>& written) {
  return std::any_of(written.begin(), written.end(),
                     [&](const ir::BufferRegion& w) { return Reads(block, w.buffer); });
}

// Consumers must all stand below the loop, the block's own inputs must be complete before it.
absl::Status CheckProducerPlace(const Step& step, const std::vector<BlockSite>& sites,
                                const Stmt& block, const Path& to) {
  const ir::Var& loop = to.back()->var;
  for (const ir::BufferRegion& w : block->writes) {
    if (WritersOf(sites, w.buffer).size() == 1) continue;
    return Refuse(step, "several_writers",
                  StrCat("expected one block that writes ", w.buffer->name, ", found more"), to[0]);
  }
  bool consumed = false;
  for (const BlockSite& site : sites) {
    if (site.block == block || !ReadsAny(*site.block, block->writes)) continue;
    consumed = true;
    if (!IsBelow(site, loop)) {
      return Refuse(step, "consumer_outside",
                    StrCat("expected all consumers of ", block->name, " below loop ", loop->name,
                           ", found ", site.block->name, " outside"),
                    to[0]);
    }
  }
  if (!consumed) {
    return Refuse(
        step, "no_consumer",
        StrCat("expected a consumer of ", block->name, " below loop ", loop->name, ", found none"),
        to[0]);
  }
  size_t at = IndexOf(sites, block->name);
  for (const ir::BufferRegion& input : block->reads) {
    for (size_t i = 0; i < sites.size(); ++i) {
      if (i == at || !Writes(*sites[i].block, input.buffer)) continue;
      if (i > at || IsBelow(sites[i], loop)) {
        return Refuse(step, "input_later",
                      StrCat("expected that ", input.buffer->name, " is complete before loop ",
                             loop->name, ", found that ", sites[i].block->name, " writes it later"),
                      to[0]);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyComputeAt(Schedule& s, const Step& step) {
  TW_ASSIGN(Path from, BlockPath(s, step, 0));
  TW_ASSIGN(Path to, LoopPath(s, step, 1));
  const Stmt block = from.back();
  const ir::Var loop = to.back()->var;
  TW_ASSIGN(Move move, PlanMove(step, from, to));
  TW_ASSIGN(std::vector<int> written, WrittenIters(step, block, /*tuples=*/true));
  for (const ir::BufferRegion& w : block->writes) {
    if (w.buffer->role == ir::Role::kIntermediate) continue;
    return Refuse(step, "output", StrCat("expected an intermediate result, found ", w.buffer->name),
                  block);
  }
  if (!move.block_first) {
    return Refuse(step, "after",
                  StrCat("expected that ", block->name, " comes before loop ", loop->name,
                         ", found it after"),
                  from[move.own - 1]);
  }
  std::vector<BlockSite> sites = BlocksIn(from[0]);
  TW_TRY(CheckProducerPlace(step, sites, block, to));

  Box region(written.size());
  bool first = true;
  for (const BlockSite& site : sites) {
    if (site.block == block) continue;
    for (const ir::BufferRegion& r : site.block->reads) {
      if (!Writes(*block, r.buffer)) continue;
      GrowBox(s.function(), site, r, loop, first, &region);
      first = false;
    }
  }
  // Where no box of consumers says more: what it did there, its inputs are complete for no more.
  TW_ASSIGN(Box parts, KeptPoints(step, s.function(), sites, from, move.own));
  for (size_t d = 0; d < written.size(); ++d) {
    if (written[d] >= 0 && region[d].has_value()) {
      parts[static_cast<size_t>(written[d])] = region[d];
    }
  }
  NewNest nest = MakeNest(s, *block, parts, AnalyzerOf(s.function(), LoopsOf(to)), {},
                          /*exact=*/false);
  FinishMove(s, from, move.own, nest, MovedBody(from, move.own, loop, nest.nest, /*at_end=*/false));
  return absl::OkStatus();
}

namespace {

// A block that pads what it reads has points that no producer leads to.
absl::Status CheckInsideInput(const Step& step, const Stmt& block, const std::vector<int>& iters,
                              const ir::Buffer& input) {
  for (size_t d = 0; d < iters.size(); ++d) {
    if (iters[d] < 0) continue;
    const ir::Range& domain = block->iters[static_cast<size_t>(iters[d])].domain;
    const int64_t *min = ir::AsInt(domain.min), *extent = ir::AsInt(domain.extent),
                  *size = ir::AsInt(input->shape[d]);
    bool inside = min != nullptr && *min >= 0 &&
                  ((extent != nullptr && size != nullptr && *min + *extent <= *size) ||
                   (*min == 0 && ir::StructuralEqual(domain.extent, input->shape[d])));
    if (inside) continue;
    return Refuse(step, "domain",
                  StrCat("expected that ", block->name, " runs over points of ", input->name,
                         " only, found more in dimension ", d),
                  block);
  }
  return absl::OkStatus();
}

// Whether `part`, while the loops `inner` run, stays inside of `kept`.
bool StaysInside(const Dim& part, const Dim& kept, const std::vector<ir::Var>& inner,
                 const Analyzer& analyzer) {
  Footprint footprint = FootprintOf(part.min, inner, analyzer);
  if (footprint.width >= kIndexLimit) return false;
  AffineSum apart = footprint.min;
  AddScaled(&apart, kept.min, -1);
  return apart.terms.empty() && apart.constant >= 0 &&
         apart.constant + footprint.width + part.extent <= kept.extent;
}

// In loops that the block stays in, inputs that do not come from below `to` may be complete for
// what the block does in one iteration only: `parts` must not be more; iterators without a part get
// it.
absl::Status KeepToOwnPoints(const Step& step, const ir::Function& f,
                             const std::vector<BlockSite>& sites, const Path& from, size_t own,
                             const Path& to, bool partial_inputs, Box* parts) {
  TW_ASSIGN(Box kept, KeptPoints(step, f, sites, from, own));
  const std::vector<Stmt> around = LoopsOf(to);
  std::vector<ir::Var> inner;
  for (size_t i = LoopsOf(from, own).size(); i < around.size(); ++i)
    inner.push_back(around[i]->var);
  Analyzer analyzer = AnalyzerOf(f, around);
  for (size_t d = 0; d < kept.size(); ++d) {
    std::optional<Dim>& part = (*parts)[d];
    if (!kept[d].has_value()) continue;
    if (!part.has_value()) {
      part = kept[d];
    } else if (partial_inputs && !StaysInside(*part, *kept[d], inner, analyzer)) {
      return Refuse(
          step, "input_later",
          StrCat("expected that all inputs of ", from.back()->name, " are complete for what ",
                 to.back()->var->name, " produces, found more than in its old place"),
          from[0]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyReverseComputeAt(Schedule& s, const Step& step) {
  TW_ASSIGN(Path from, BlockPath(s, step, 0));
  TW_ASSIGN(Path to, LoopPath(s, step, 1));
  const Stmt block = from.back();
  const ir::Var loop = to.back()->var;
  TW_ASSIGN(Move move, PlanMove(step, from, to));
  TW_TRY(WrittenIters(step, block).status());
  if (move.block_first) {
    return Refuse(step, "before",
                  StrCat("expected that ", block->name, " comes after loop ", loop->name,
                         ", found it before"),
                  from[move.own - 1]);
  }
  for (const ir::IterVar& iter : block->iters) {
    if (iter.type != ir::IterType::kSpatial) {
      return Refuse(step, "reduction", "expected a block without reduction iterators, found one",
                    block);
    }
  }
  std::vector<BlockSite> sites = BlocksIn(from[0]);
  size_t at = IndexOf(sites, block->name);
  Box parts(block->iters.size());
  std::vector<Expr> guards;
  bool fed = false, partial_inputs = false;
  for (const ir::BufferRegion& input : block->reads) {
    for (size_t i = 0; i < sites.size(); ++i) {
      if (i == at || !Writes(*sites[i].block, input.buffer)) continue;
      if (!IsBelow(sites[i], loop)) {
        // Between the loop and the block's old place?
        size_t last = 0;
        for (size_t k = 0; k < sites.size(); ++k) last = IsBelow(sites[k], loop) ? k : last;
        for (const Stmt& l : LoopsOf(from, move.own)) partial_inputs |= IsBelow(sites[i], l->var);
        if (i < last) continue;
        return Refuse(step, "input_later",
                      StrCat("expected that ", input.buffer->name, " is complete at loop ",
                             loop->name, ", found that ", sites[i].block->name, " writes it later"),
                      from[0]);
      }
      fed = true;
      TW_ASSIGN(std::vector<int> iters, ReadIters(step, block, input));
      TW_TRY(CheckInsideInput(step, block, iters, input.buffer));
      TW_ASSIGN(Produced produced, ProducedAt(step, s.function(), sites[i], loop));
      for (size_t d = 0; d < iters.size(); ++d) {
        if (iters[d] < 0) continue;
        std::optional<Dim>& part = parts[static_cast<size_t>(iters[d])];
        const Dim& dim = *produced.box[d];
        if (part.has_value() && (part->extent != dim.extent || !SameSum(part->min, dim.min))) {
          return Refuse(step, "mismatch",
                        StrCat("expected that all inputs of ", block->name,
                               " are complete over one box, found two"),
                        to.back());
        }
        part = dim;
      }
      guards.insert(guards.end(), produced.guards.begin(), produced.guards.end());
    }
  }
  if (!fed) {
    return Refuse(
        step, "no_producer",
        StrCat("expected a producer of ", block->name, " below loop ", loop->name, ", found none"),
        to.back());
  }
  TW_TRY(KeepToOwnPoints(step, s.function(), sites, from, move.own, to, partial_inputs, &parts));
  Schedule trial = s;  // names and handles are taken only when the move is accepted
  NewNest nest = MakeNest(trial, *block, parts, AnalyzerOf(s.function(), LoopsOf(to)), guards,
                          /*exact=*/true);
  Stmt body = MovedBody(from, move.own, loop, nest.nest, /*at_end=*/true);
  TW_TRY(CheckConcurrentLoops(step, s.function(), body));
  FinishMove(trial, from, move.own, nest, std::move(body));
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
