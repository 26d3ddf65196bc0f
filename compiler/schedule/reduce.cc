// decompose_reduction: the init of a reduction as a block of its own.
#include <algorithm>

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

// The loops of a block split at the loop before which its init goes.
struct Cut {
  std::vector<Stmt> spatial;  // at or below the loop, feeding spatial iterators
  std::vector<Stmt> reduce;   // at or below the loop, feeding reduction iterators
};

absl::StatusOr<Cut> CutLoops(const Step& step, const BlockSite& site, const ir::Var& at) {
  Cut cut;
  bool below = false;
  for (const Stmt& loop : site.loops) {
    below = below || loop->var == at;
    Feeds feeds = FeedsOf(*site.block, loop->var);
    if (feeds.reduce && (!below || feeds.spatial)) {
      return Refuse(step, feeds.spatial ? "mixed_loop" : "reduction_outside",
                    StrCat("expected ",
                           feeds.spatial ? "loops over spatial or over reduction iterators"
                                         : "reduction loops at or below the loop",
                           ", found ", loop->var->name),
                    site.loops[0]);
    }
    if (!below) continue;
    if (feeds.reduce) cut.reduce.push_back(loop);
    if (feeds.spatial) cut.spatial.push_back(loop);
  }
  return cut;
}

// Every iteration at or below the loop must be work of its own: otherwise a point would be added to
// twice after one init.
absl::Status CheckOnce(const Step& step, const ir::Function& f, const BlockSite& site,
                       const ir::Var& at) {
  AffineContext context = BlockContext(f, site);
  std::vector<ir::Var> vars;
  for (const Stmt& l : site.loops) {
    if (!vars.empty() || l->var == at) vars.push_back(l->var);
  }
  std::vector<AffineSum> sums = BindingSums(context, *site.block);
  std::vector<bool> known =
      Determined(sums, vars, UpperBounds(context, site.block->predicate), context);
  for (size_t i = 0; i < vars.size(); ++i) {
    if (known[i]) continue;
    return Refuse(
        step, "repeated",
        StrCat("expected that each iteration of ", vars[i]->name, " is work of its own for ",
               site.block->name, ", found that it may be repeated"),
        site.loops[0]);
  }
  return absl::OkStatus();
}

// Of the predicate what speaks about spatial loops; a conjunct over reduction loops only says which
// steps of the reduction there are.
absl::StatusOr<std::vector<Expr>> SpatialConjuncts(const Step& step, const BlockSite& site,
                                                   const Cut& cut) {
  std::vector<Expr> kept;
  for (const Expr& part : Conjuncts(site.block->predicate)) {
    bool reduces = std::any_of(cut.reduce.begin(), cut.reduce.end(),
                               [&](const Stmt& l) { return ir::UsesVar(part, l->var); });
    if (!reduces) {
      kept.push_back(part);
      continue;
    }
    for (const Stmt& l : site.loops) {
      if (FeedsOf(*site.block, l->var).spatial && ir::UsesVar(part, l->var)) {
        return Refuse(
            step, "mixed_predicate",
            "expected predicates over spatial or over reduction loops, found one over both",
            site.block);
      }
    }
  }
  return kept;
}

// The init block over loops of its own.
struct InitNest {
  Stmt nest;
  std::string block;
  std::vector<ir::Var> loops;
};

InitNest MakeInitNest(Schedule& s, const StmtNode& block, const Cut& cut,
                      const std::vector<Expr>& conjuncts) {
  InitNest result;
  ir::VarMap loop_map, iter_map;
  for (const Stmt& l : cut.spatial) {
    result.loops.push_back(ir::MakeVar(s.UniqueName(l->var->name + "_i"), l->var->dtype));
    loop_map[l->var.get()] = result.loops.back();
  }
  StmtNode init{.kind = ir::StmtKind::kBlock};
  result.block = init.name = s.UniqueName(block.name + "_init");
  for (const ir::IterVar& iter : block.iters) {
    if (iter.type != ir::IterType::kSpatial) continue;
    ir::Var var = ir::MakeVar(s.UniqueName(iter.var->name + "_i"), iter.var->dtype);
    iter_map[iter.var.get()] = var;
    init.iters.push_back({var, iter.domain, iter.type, ir::Substitute(iter.binding, loop_map)});
  }
  std::vector<Expr> predicate;
  for (const Expr& part : conjuncts) predicate.push_back(ir::Substitute(part, loop_map));
  init.predicate = Conjunction(predicate);
  init.writes = block.writes;
  for (ir::BufferRegion& w : init.writes) {
    for (ir::Range& r : w.region) r.min = ir::Substitute(r.min, iter_map);
  }
  init.body = ir::Substitute(block.init, iter_map);
  result.nest = ir::MakeBlock(std::move(init));
  for (size_t i = cut.spatial.size(); i-- > 0;) {
    const ir::Range& r = cut.spatial[i]->range;
    result.nest = ir::MakeFor(result.loops[i], ir::Substitute(r.min, loop_map),
                              ir::Substitute(r.extent, loop_map), std::move(result.nest));
  }
  return result;
}

}  // namespace

absl::Status ApplyDecomposeReduction(Schedule& s, const Step& step) {
  TW_ASSIGN(Path block_path, BlockPath(s, step, 0));
  TW_ASSIGN(Path loop_path, LoopPath(s, step, 1));
  const BlockSite site{block_path.back(), LoopsOf(block_path)};
  const StmtNode& block = *site.block;
  const ir::Var at = loop_path.back()->var;
  if (block.init == nullptr) {
    return Refuse(step, "no_init", "expected a reduction with its init, found none", site.block);
  }
  if (!IsBelow(site, at)) {
    return Refuse(step, "not_around",
                  StrCat("expected a loop around ", block.name, ", found ", at->name),
                  loop_path[0]);
  }
  if (HasLoopOfKind(LoopsOf(loop_path, loop_path.size() - 1), ir::ForKind::kVectorized)) {
    return Refuse(step, "vectorized", "expected a place outside vectorised loops, found one inside",
                  loop_path[0]);
  }
  TW_TRY(WrittenIters(step, site.block).status());
  TW_ASSIGN(Cut cut, CutLoops(step, site, at));
  TW_TRY(CheckOnce(step, s.function(), site, at));

  TW_ASSIGN(std::vector<Expr> conjuncts, SpatialConjuncts(step, site, cut));
  Schedule trial = s;  // names and handles are taken only when the step is accepted
  InitNest init = MakeInitNest(trial, block, cut, conjuncts);

  auto update = std::make_shared<StmtNode>(block);
  update->init = nullptr;  // from now on it reads what the init block wrote
  update->reads.insert(update->reads.end(), block.writes.begin(), block.writes.end());
  Stmt body = ReplaceAt(block_path, block_path.size() - 1, std::move(update));
  Path path = FindLoop(body, at);
  body = ReplaceAt(path, path.size() - 1, ir::MakeSeq({std::move(init.nest), path.back()}));
  TW_TRY(CheckConcurrentLoops(step, trial.function(), body));
  trial.SetBody(std::move(body));
  trial.AddBlock(init.block);
  for (const ir::Var& v : init.loops) trial.AddLoop(v);
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
