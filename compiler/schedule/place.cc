// compute_at, reverse_compute_at: where in a loop nest a block is computed.
#include <algorithm>
#include <optional>

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

// One dimension of a box: [min, min + extent), over the loops that stay fixed; nothing means the
// whole dimension.
struct Dim {
  AffineSum min;
  int64_t extent = 1;
};
using Box = std::vector<std::optional<Dim>>;

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

// The variables of a block's loops that run inside `loop`.
std::vector<ir::Var> InnerVars(const BlockSite& site, const ir::Var& loop) {
  std::vector<ir::Var> vars;
  bool inside = false;
  for (const Stmt& l : site.loops) {
    if (inside) vars.push_back(l->var);
    inside = inside || l->var == loop;
  }
  return vars;
}

bool OnlyMentions(const AffineSum& sum, const std::vector<ir::Var>& vars) {
  bool only = true;
  for (const AffineTerm& t : sum.terms) {
    ir::VisitExprs(t.atom, [&](const Expr& e) {
      if (e->kind == ir::ExprKind::kVar && std::find(vars.begin(), vars.end(), e) == vars.end()) {
        only = false;
      }
      return only;
    });
  }
  return only;
}

// Bounds that hold among the inner variables alone: they cut boxes without naming outer loops.
std::vector<UpperBound> InnerBounds(const std::vector<UpperBound>& bounds,
                                    const std::vector<ir::Var>& inner) {
  std::vector<UpperBound> kept;
  for (const UpperBound& b : bounds) {
    if (OnlyMentions(b.terms, inner)) kept.push_back(b);
  }
  return kept;
}

// Grows `box` to hold `region` (of a block at `site`) while the loops inside `loop` run.
void GrowBox(const ir::Function& f, const BlockSite& site, const ir::BufferRegion& region,
             const ir::Var& loop, bool first, Box* box) {
  AffineContext context = BlockContext(f, site);
  std::vector<ir::Var> inner = InnerVars(site, loop);
  std::vector<UpperBound> bounds = InnerBounds(UpperBounds(context, site.block->predicate), inner);
  for (size_t d = 0; d < region.region.size(); ++d) {
    const int64_t* extent = ir::AsInt(region.region[d].extent);
    AffineSum point = TightenByBounds(context.Normalize(region.region[d].min), bounds, context);
    Sweep sweep = SweepOver(point, inner, context);
    Dim dim{sweep.min, 0};
    if (extent == nullptr || sweep.width >= kUnboundedIndex) {
      (*box)[d] = std::nullopt;
      continue;
    }
    dim.extent = sweep.width + *extent;
    if (first) {
      (*box)[d] = std::move(dim);
      continue;
    }
    if (!(*box)[d].has_value()) continue;
    Dim& old = *(*box)[d];
    AffineSum apart = dim.min;
    AddScaled(&apart, old.min, -1);
    if (!apart.terms.empty()) {
      (*box)[d] = std::nullopt;
      continue;
    }
    int64_t end = std::max(old.extent, apart.constant + dim.extent);
    if (apart.constant < 0) {
      old.min = dim.min;
      end -= apart.constant;
    }
    old.extent = end;
  }
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
NewNest MakeNest(Schedule& s, const StmtNode& block, const Box& box, AffineContext outer,
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
    iter.binding = outer.Simplify(base + loop);
    if (part) {
      guards.push_back(iter.binding < iter.domain.min + iter.domain.extent);
      guards.push_back(iter.binding >= iter.domain.min);
    }
    result.loops.push_back(loop);
    extents.push_back(extent);
  }
  node->predicate = outer.SimplifyPredicate(Conjunction(guards));
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

// Consumers must all stand below the loop, the block's own inputs must be complete before it.
absl::Status CheckProducerPlace(const Step& step, const std::vector<BlockSite>& sites,
                                const Stmt& block, const Path& to) {
  const ir::Var& loop = to.back()->var;
  const ir::Buffer& out = block->writes[0].buffer;
  if (WritersOf(sites, out).size() != 1) {
    return Refuse(step, "several_writers",
                  StrCat("expected one block that writes ", out->name, ", found more"), to[0]);
  }
  bool consumed = false;
  for (const BlockSite& site : sites) {
    if (site.block == block || !Reads(*site.block, out)) continue;
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
  TW_ASSIGN(std::vector<int> written, WrittenIters(step, block));
  const ir::Buffer& out = block->writes[0].buffer;
  if (out->role != ir::Role::kIntermediate) {
    return Refuse(step, "output", StrCat("expected an intermediate result, found ", out->name),
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

  Box region(out->shape.size());
  bool first = true;
  for (const BlockSite& site : sites) {
    if (site.block == block) continue;
    for (const ir::BufferRegion& r : site.block->reads) {
      if (r.buffer != out) continue;
      GrowBox(s.function(), site, r, loop, first, &region);
      first = false;
    }
  }
  Box parts(block->iters.size());
  for (size_t d = 0; d < written.size(); ++d) {
    if (written[d] >= 0) parts[static_cast<size_t>(written[d])] = region[d];
  }
  NewNest nest = MakeNest(s, *block, parts, ContextOf(s.function(), LoopsOf(to)), {},
                          /*exact=*/false);
  FinishMove(s, from, move.own, nest, MovedBody(from, move.own, loop, nest.nest, /*at_end=*/false));
  return absl::OkStatus();
}

namespace {

// What one producer below the loop has completed at the end of an iteration: a box, and conditions
// over outer loops under which it ran at all.
struct Produced {
  Box box;
  std::vector<Expr> guards;
};

// Whether a bound says no more than that one whole index stays inside the buffer.
bool IsDomainBound(const UpperBound& bound, const std::vector<AffineSum>& sums,
                   const ir::Buffer& buffer) {
  for (size_t d = 0; d < sums.size(); ++d) {
    AffineSum terms = sums[d];
    int64_t offset = terms.constant;
    terms.constant = 0;
    const int64_t* size = ir::AsInt(buffer->shape[d]);
    if (SameSum(terms, bound.terms) && size != nullptr && bound.hi + offset >= *size - 1) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Produced> ProducedAt(const Step& step, const ir::Function& f, const BlockSite& site,
                                    const ir::Var& loop) {
  auto inexact = [&](std::string_view what) {
    return Refuse(step, "inexact_region",
                  StrCat("expected that an iteration of ", loop->name, " produces a box, found ",
                         what, " in ", site.block->name),
                  site.block);
  };
  bool around = true;
  for (const Stmt& l : site.loops) {
    Feeds feeds = FeedsOf(*site.block, l->var);
    if (around && (feeds.reduce || feeds.ordered)) {
      return Refuse(
          step, "incomplete",
          StrCat("expected that ", site.block->name, " is complete after an iteration of ",
                 loop->name, ", found its reduction loop ", l->var->name, " around"),
          site.loops[0]);
    }
    if (l->var == loop) around = false;
  }
  AffineContext context = BlockContext(f, site);
  std::vector<ir::Var> inner = InnerVars(site, loop);
  std::vector<AffineSum> sums = WriteSums(context, *site.block);
  if (sums.empty()) return inexact("a written region that is not a point");
  const ir::Buffer& buffer = site.block->writes[0].buffer;

  Produced produced;
  std::vector<UpperBound> cutting;
  for (const Expr& part : Conjuncts(site.block->predicate)) {
    std::vector<UpperBound> bound = UpperBounds(context, part);
    bool over_inner = std::any_of(inner.begin(), inner.end(),
                                  [&](const ir::Var& v) { return ir::UsesVar(part, v); });
    // A ragged reduction skips steps of the reduction, never a point.
    bool over_points = std::any_of(sums.begin(), sums.end(), [&](const AffineSum& sum) {
      return std::any_of(inner.begin(), inner.end(), [&](const ir::Var& v) {
        return ir::UsesVar(part, v) && Mentions(sum, v);
      });
    });
    if (!over_inner) {
      produced.guards.push_back(part);
    } else if (bound.size() == 1 && over_points && OnlyMentions(bound[0].terms, inner)) {
      cutting.push_back(bound[0]);
    } else if (bound.size() != 1 || (over_points && !IsDomainBound(bound[0], sums, buffer))) {
      return inexact("a predicate that is not a bound of the buffer");
    }
  }
  std::stable_sort(cutting.begin(), cutting.end(), [](const UpperBound& a, const UpperBound& b) {
    return a.terms.terms.size() < b.terms.terms.size();
  });
  // Each bound must cut one dimension's own loops: then the box below is what it leaves.
  for (size_t i = 0; i < cutting.size(); ++i) {
    std::span<const UpperBound> all(cutting);
    size_t cut = 0;
    for (const AffineSum& sum : sums) {
      int64_t before = context.RangeOf(TightenByBounds(sum, all.first(i), context)).hi;
      cut += context.RangeOf(TightenByBounds(sum, all.first(i + 1), context)).hi < before ? 1 : 0;
    }
    if (cut != 1) return inexact("a predicate over several dimensions");
  }
  for (size_t d = 0; d < sums.size(); ++d) {
    Sweep sweep = SweepOver(TightenByBounds(sums[d], cutting, context), inner, context);
    if (!sweep.exact || sweep.width >= kUnboundedIndex) return inexact("gaps");
    for (size_t e = 0; e < d; ++e) {
      for (const ir::Var& v : inner) {
        if (Mentions(sums[d], v) && Mentions(sums[e], v))
          return inexact("a loop over two dimensions");
      }
    }
    produced.box.push_back(Dim{sweep.min, sweep.width + 1});
  }
  return produced;
}

// The iterator that each dimension of a read is, where it is one; -1 for a constant 0.
absl::StatusOr<std::vector<int>> ReadIters(const Step& step, const Stmt& block,
                                           const ir::BufferRegion& region) {
  std::vector<int> iters;
  for (size_t d = 0; d < region.region.size(); ++d) {
    int found = -1;
    for (size_t i = 0; i < block->iters.size(); ++i) {
      if (block->iters[i].var == region.region[d].min) found = static_cast<int>(i);
    }
    bool zero = ir::IsInt(region.region[d].min, 0) && ir::IsInt(region.buffer->shape[d], 1);
    bool twice = found >= 0 && std::find(iters.begin(), iters.end(), found) != iters.end();
    if (!ir::IsInt(region.region[d].extent, 1) || (found < 0 && !zero) || twice) {
      return Refuse(step, "read_form",
                    StrCat("expected that ", block->name, " reads ", region.buffer->name,
                           " at its own iterators, found another index"),
                    block);
    }
    iters.push_back(found);
  }
  return iters;
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
  bool fed = false;
  for (const ir::BufferRegion& input : block->reads) {
    for (size_t i = 0; i < sites.size(); ++i) {
      if (i == at || !Writes(*sites[i].block, input.buffer)) continue;
      if (!IsBelow(sites[i], loop)) {
        // Between the loop and the block's old place?
        size_t last = 0;
        for (size_t k = 0; k < sites.size(); ++k) last = IsBelow(sites[k], loop) ? k : last;
        if (i < last) continue;
        return Refuse(step, "input_later",
                      StrCat("expected that ", input.buffer->name, " is complete at loop ",
                             loop->name, ", found that ", sites[i].block->name, " writes it later"),
                      from[0]);
      }
      fed = true;
      TW_ASSIGN(std::vector<int> iters, ReadIters(step, block, input));
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
  Schedule trial = s;  // names and handles are taken only when the move is accepted
  NewNest nest = MakeNest(trial, *block, parts, ContextOf(s.function(), LoopsOf(to)), guards,
                          /*exact=*/true);
  Stmt body = MovedBody(from, move.own, loop, nest.nest, /*at_end=*/true);
  TW_TRY(CheckConcurrentLoops(step, s.function(), body));
  FinishMove(trial, from, move.own, nest, std::move(body));
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
