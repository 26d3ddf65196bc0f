#include "compiler/schedule/reduce.h"

#include <algorithm>

#include "compiler/analysis/footprint.h"
#include "compiler/analysis/injective.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {

using analysis::AffineSum;
using analysis::Analyzer;
using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

namespace {

bool IsIdentity(ir::ExprKind op, const Expr& e) {
  const Expr identity = ir::IdentityOf(op, e->dtype);
  return identity != nullptr && e->kind == identity->kind && e->int_value == identity->int_value &&
         e->float_value == identity->float_value;
}

}  // namespace

std::optional<Combine> CombineOf(const StmtNode& block) {
  if (block.init == nullptr || block.init->kind != ir::StmtKind::kStore ||
      block.body->kind != ir::StmtKind::kStore || block.body->mask != nullptr) {
    return std::nullopt;
  }
  const Expr& update = block.body->value;
  if (update->args.size() != 2 || !IsIdentity(update->kind, block.init->value)) return std::nullopt;
  for (size_t side = 0; side < 2; ++side) {
    const Expr& load = update->args[side];
    bool accumulates = load->kind == ir::ExprKind::kLoad && load->buffer == block.body->buffer &&
                       load->args.size() == block.body->indices.size();
    for (size_t d = 0; accumulates && d < load->args.size(); ++d) {
      accumulates = ir::StructuralEqual(load->args[d], block.body->indices[d]);
    }
    const Expr& value = update->args[1 - side];
    bool again = false;
    ir::VisitExprs(value, [&](const Expr& e) {
      again = again || (e->kind == ir::ExprKind::kLoad && e->buffer == block.body->buffer);
      return !again;
    });
    if (accumulates && !again) return Combine{update->kind, value, block.init->value, side == 0};
  }
  return std::nullopt;
}

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

absl::Status CheckOnce(const Step& step, const ir::Function& f, const BlockSite& site,
                       const ir::Var& at) {
  Analyzer analyzer = BlockAnalyzer(f, site);
  std::vector<ir::Var> vars;
  for (const Stmt& l : site.loops) {
    if (!vars.empty() || l->var == at) vars.push_back(l->var);
  }
  std::vector<AffineSum> sums = BindingSums(analyzer, *site.block);
  std::vector<bool> known =
      InjectiveIn(sums, vars, UpperBounds(analyzer, site.block->predicate), analyzer);
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

absl::StatusOr<std::vector<Expr>> SpatialConjuncts(const Step& step, const BlockSite& site,
                                                   const Cut& cut) {
  std::vector<Expr> kept;
  for (const Expr& part : ir::Conjuncts(site.block->predicate)) {
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

namespace {

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
  init.predicate = ir::Conjunction(predicate);
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
  TW_TRY(WrittenIters(step, site.block, /*tuples=*/true).status());
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
