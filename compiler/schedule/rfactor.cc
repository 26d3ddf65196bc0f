// rfactor: partial results of a reduction, and their combination.
#include <algorithm>
#include <utility>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/reduce.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// What the step found out about the block before anything is built.
struct FactorPlan {
  BlockSite site;
  Stmt factor;              // the loop whose iterations get results of their own
  Cut cut;                  // of the block's own nest
  std::vector<Expr> where;  // the predicate's conjuncts over spatial loops
  Combine combine;
  bool factor_last = true;
};

// Whether the loop has the same range wherever it runs: numbers, or the function's sizes.
bool HasOneRange(const Stmt& loop, const std::vector<ir::Var>& sizes) {
  bool same = true;
  for (const Expr& bound : {loop->range.min, loop->range.extent}) {
    ir::VisitExprs(bound, [&](const Expr& e) {
      same = same && e->kind != ir::ExprKind::kLoad &&
             (e->kind != ir::ExprKind::kVar || std::ranges::count(sizes, e) > 0);
      return same;
    });
  }
  return same;
}

absl::Status CheckFactorLoop(const Step& step, const BlockSite& site, const Stmt& loop,
                             const std::vector<ir::Var>& sizes) {
  Feeds feeds = FeedsOf(*site.block, loop->var);
  if (!feeds.reduce || feeds.spatial || feeds.ordered) {
    return Refuse(step, "not_reduction",
                  StrCat("expected a loop over reduction iterators only, found ", loop->var->name),
                  site.loops[0]);
  }
  if (loop->for_kind != ir::ForKind::kSerial && loop->for_kind != ir::ForKind::kUnrolled) {
    return Refuse(step, "not_serial", "expected a serial or unrolled loop, found another", loop);
  }
  for (const Stmt& l : site.loops) {
    if (!FeedsOf(*site.block, l->var).reduce) continue;
    const bool is_factor = l->var == loop->var;
    const bool counted = ir::IsInt(l->range.min, 0) && ir::AsInt(l->range.extent) != nullptr;
    if (is_factor ? counted : HasOneRange(l, sizes)) continue;
    return Refuse(step, "extent",
                  StrCat("expected reduction loops whose ranges depend on no other loop, that of "
                         "the step with a number as extent, found ",
                         l->var->name),
                  l);
  }
  return absl::OkStatus();
}

absl::StatusOr<FactorPlan> MakeFactorPlan(const Schedule& s, const Step& step,
                                          const Path& block_path, const Stmt& loop) {
  FactorPlan plan;
  plan.site = {block_path.back(), LoopsOf(block_path)};
  plan.factor = loop;
  const Stmt& block = plan.site.block;
  if (block->init == nullptr) {
    return Refuse(step, "no_init", "expected a reduction with its init, found none", block);
  }
  TW_TRY(WrittenIters(step, block).status());
  const Stmt& root = block_path[OwnNest(block_path)];
  bool own = root->kind == ir::StmtKind::kFor &&
             IsBelow({block, LoopsOf(FindLoop(root, loop->var))}, loop->var);
  if (!own) {
    return Refuse(
        step, "not_around",
        StrCat("expected a loop of the nest of ", block->name, ", found ", loop->var->name),
        block_path[0]);
  }
  TW_TRY(CheckFactorLoop(step, plan.site, loop, s.function().size_params));
  TW_ASSIGN(plan.cut, CutLoops(step, plan.site, root->var));
  TW_TRY(CheckOnce(step, s.function(), plan.site, root->var));
  TW_ASSIGN(plan.where, SpatialConjuncts(step, plan.site, plan.cut));
  std::optional<Combine> combine = CombineOf(*block);
  if (!combine.has_value()) {
    return Refuse(
        step, "combiner",
        "expected an update B = B op value with the identity of op as init, found another", block);
  }
  plan.combine = *combine;
  plan.factor_last = step.Option("axis") == "last";
  return plan;
}

// p with the factor's index at its end or start.
template <typename T>
std::vector<T> WithFactor(const FactorPlan& plan, std::vector<T> p, T factor) {
  p.insert(plan.factor_last ? p.end() : p.begin(), std::move(factor));
  return p;
}

ir::BufferRegion PointOf(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
  ir::BufferRegion region{buffer, {}};
  for (const Expr& i : indices) region.region.push_back({i, ir::Int(1, i->dtype)});
  return region;
}

ir::Buffer PartialBuffer(Schedule& s, const FactorPlan& plan) {
  const ir::Buffer& out = plan.site.block->writes[0].buffer;
  return ir::MakeBuffer(s.UniqueName(out->name + "_rf"), out->dtype,
                        WithFactor(plan, out->shape, plan.factor->range.extent),
                        ir::Role::kIntermediate,
                        out->role == ir::Role::kIntermediate ? out->scope : ir::Scope::kGlobal);
}

// The block that computes partial results, in the place of the old one.
Stmt PartialBlock(Schedule& s, const FactorPlan& plan, const ir::Buffer& partial) {
  const StmtNode& old = *plan.site.block;
  StmtNode block{.kind = ir::StmtKind::kBlock};
  block.name = partial->name;
  block.predicate = ir::Conjunction(plan.where);
  ir::VarMap loops, values;  // loops → new iterators; old iterators → their value
  Expr factor;
  for (const Stmt& l : plan.cut.reduce) {
    bool is_factor = l->var == plan.factor->var;
    ir::Var var = ir::MakeVar(s.UniqueName("v" + l->var->name), l->var->dtype);
    block.iters.push_back(
        {var, l->range, is_factor ? ir::IterType::kSpatial : ir::IterType::kReduce, l->var});
    loops[l->var.get()] = var;
    if (is_factor) factor = var;
  }
  for (size_t i = 0; i < old.iters.size(); ++i) {
    const ir::IterVar& iter = old.iters[i];
    if (iter.type == ir::IterType::kReduce) {
      values[iter.var.get()] = ir::Substitute(iter.binding, loops);
      continue;
    }
    ir::IterVar moved = iter;
    moved.var = ir::MakeVar(s.UniqueName(iter.var->name + "_rf"), iter.var->dtype);
    values[iter.var.get()] = moved.var;
    block.iters.push_back(moved);
  }
  auto spatial_first = [](const ir::IterVar& i) { return i.type == ir::IterType::kSpatial; };
  std::stable_partition(block.iters.begin(), block.iters.end(), spatial_first);
  std::vector<Expr> point;
  for (const Expr& i : old.body->indices) point.push_back(ir::Substitute(i, values));
  point = WithFactor(plan, std::move(point), factor);
  block.reads = old.reads;
  for (ir::BufferRegion& r : block.reads) {
    for (ir::Range& d : r.region) d.min = ir::Substitute(d.min, values);
  }
  block.writes = {PointOf(partial, point)};
  // Steps that the tail of a split leaves out add nothing: every point of the iteration space runs.
  std::vector<Expr> steps;
  for (const Expr& part : ir::Conjuncts(old.predicate)) {
    Expr inside = ir::Substitute(part, loops);
    if (inside != part) steps.push_back(std::move(inside));
  }
  Expr value = ir::Substitute(plan.combine.value, values);
  if (!steps.empty()) value = ir::Select(ir::Conjunction(steps), value, plan.combine.identity);
  bool reduces = !std::all_of(block.iters.begin(), block.iters.end(), spatial_first);
  if (reduces) {
    block.init = ir::MakeStore(partial, point, plan.combine.identity);
    value = plan.combine.Apply(ir::Load(partial, point), value);
  }
  block.body = ir::MakeStore(partial, point, std::move(value));
  return ir::MakeBlock(std::move(block));
}

// The old block over the partial results, in a nest of copies of its spatial loops.
struct Combination {
  Stmt nest;
  std::vector<ir::Var> loops;
};

Combination CombineNest(Schedule& s, const FactorPlan& plan, const ir::Buffer& partial) {
  const StmtNode& old = *plan.site.block;
  Combination result;
  std::vector<ir::Range> ranges;
  ir::VarMap loops, iters;
  std::vector<Stmt> copied = plan.cut.spatial;
  copied.push_back(plan.factor);
  for (const Stmt& l : copied) {
    result.loops.push_back(ir::MakeVar(s.UniqueName(l->var->name + "_w"), l->var->dtype));
    ranges.push_back({ir::Substitute(l->range.min, loops), ir::Substitute(l->range.extent, loops)});
    loops[l->var.get()] = result.loops.back();
  }
  StmtNode block{.kind = ir::StmtKind::kBlock};
  block.name = old.name;
  block.annotations = old.annotations;
  for (const ir::IterVar& iter : old.iters) {
    if (iter.type != ir::IterType::kSpatial) continue;
    ir::Var var = ir::MakeVar(s.UniqueName(iter.var->name + "_w"), iter.var->dtype);
    iters[iter.var.get()] = var;
    block.iters.push_back({var, iter.domain, iter.type, ir::Substitute(iter.binding, loops)});
  }
  ir::Var factor =
      ir::MakeVar(s.UniqueName("v" + plan.factor->var->name + "_w"), plan.factor->var->dtype);
  block.iters.push_back({factor, plan.factor->range, ir::IterType::kReduce, result.loops.back()});
  std::vector<Expr> where, point;
  for (const Expr& part : plan.where) where.push_back(ir::Substitute(part, loops));
  block.predicate = ir::Conjunction(where);
  for (const Expr& i : old.body->indices) point.push_back(ir::Substitute(i, iters));
  std::vector<Expr> from = WithFactor(plan, point, Expr(factor));
  const ir::Buffer& out = old.writes[0].buffer;
  block.reads = {PointOf(partial, from)};
  block.writes = {PointOf(out, point)};
  block.init = ir::MakeStore(out, point, plan.combine.identity);
  block.body =
      ir::MakeStore(out, point, plan.combine.Apply(ir::Load(out, point), ir::Load(partial, from)));
  result.nest = ir::MakeBlock(std::move(block));
  for (size_t i = result.loops.size(); i-- > 0;) {
    result.nest =
        ir::MakeFor(result.loops[i], ranges[i].min, ranges[i].extent, std::move(result.nest));
  }
  return result;
}

}  // namespace

absl::Status ApplyRfactor(Schedule& s, const Step& step) {
  TW_ASSIGN(Path block_path, BlockPath(s, step, 0));
  TW_ASSIGN(Path loop_path, LoopPath(s, step, 1));
  TW_ASSIGN(FactorPlan plan, MakeFactorPlan(s, step, block_path, loop_path.back()));
  Schedule trial = s;  // names and handles are taken only when the step is accepted
  ir::Buffer partial = PartialBuffer(trial, plan);
  Stmt first = PartialBlock(trial, plan, partial);
  Combination second = CombineNest(trial, plan, partial);
  const size_t own = OwnNest(block_path);
  Stmt body = ReplaceAt(block_path, block_path.size() - 1, first);
  Path moved = FindBlock(body, first->name);
  body = ReplaceAt(moved, own, ir::MakeSeq({moved[own], second.nest}));
  TW_TRY(CheckConcurrentLoops(step, trial.function(), body));
  trial.SetBody(std::move(body));
  trial.mutable_function().allocs.push_back(partial);
  trial.AddBlock(first->name);
  for (const ir::Var& v : second.loops) trial.AddLoop(v);
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
