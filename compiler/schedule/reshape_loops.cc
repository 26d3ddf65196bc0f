// split, fuse, reorder: the same iterations under other loops.
#include <algorithm>

#include "compiler/analysis/footprint.h"
#include "compiler/analysis/injective.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/split_tail.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::AffineSum;
using analysis::Analyzer;
using analysis::UpperBound;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;
using support::StrCat;

// More iterations than any program has; products stay far from overflow.
constexpr int64_t kMaxIterations = int64_t{1} << 40;

// Rewrites everything below in terms of the analyzer's definitions of `replaced`; `guard` (may be
// null) joins every block's predicate.
Stmt SubstituteBelow(const Stmt& s, const std::vector<ir::Var>& replaced, const Expr& guard,
                     Analyzer* analyzer) {
  auto uses = [&](const Expr& e) {
    return std::any_of(replaced.begin(), replaced.end(),
                       [&](const ir::Var& v) { return ir::UsesVar(e, v); });
  };
  switch (s->kind) {
    case StmtKind::kFor: {
      auto node = std::make_shared<StmtNode>(*s);
      for (Expr* e : {&node->range.min, &node->range.extent}) {
        if (uses(*e)) *e = analyzer->Normal(*e);
      }
      analyzer->SetRange(node->var, node->range);
      node->body = SubstituteBelow(s->body, replaced, guard, analyzer);
      return node;
    }
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) {
        stmts.push_back(SubstituteBelow(child, replaced, guard, analyzer));
      }
      return ir::MakeSeq(std::move(stmts));
    }
    default: {
      auto node = std::make_shared<StmtNode>(*s);
      for (ir::IterVar& iter : node->iters) {
        if (uses(iter.binding)) iter.binding = analyzer->Normal(iter.binding);
      }
      if (guard != nullptr || (s->predicate != nullptr && uses(s->predicate))) {
        std::vector<Expr> parts = ir::Conjuncts(s->predicate);
        if (guard != nullptr) parts.push_back(guard);
        node->predicate = analyzer->NormalPredicate(ir::Conjunction(parts));
      }
      return node;
    }
  }
}

// The extents of a split, `?` filled in. A symbolic loop's `?` must come first.
struct SplitPlan {
  std::vector<Expr> extents;
  std::vector<int64_t> strides;
  bool ragged = true;
};

absl::StatusOr<SplitPlan> PlanSplit(const Step& step, const Stmt& loop) {
  SplitPlan plan;
  const ir::DType type = loop->var->dtype;
  const int64_t* extent = ir::AsInt(loop->range.extent);
  int64_t product = 1;
  bool infers = false;
  for (int64_t f : step.factors) {
    infers = infers || f == kInfer;
    product = f == kInfer ? product : product * f;
    if (product > kMaxIterations) {
      return Refuse(step, "too_large",
                    StrCat("expected at most ", kMaxIterations, " iterations, found more"), loop);
    }
  }
  if (extent == nullptr && (!infers || step.factors[0] != kInfer)) {
    return Refuse(step, "symbolic_extent",
                  "expected ? as the first factor of a loop without a constant extent, found none",
                  loop);
  }
  int64_t inferred =
      extent == nullptr ? 0 : std::max<int64_t>(1, (*extent + product - 1) / product);
  if (extent != nullptr && !infers && product < *extent) {
    return Refuse(step, "too_few",
                  StrCat("expected factors that cover ", *extent, " iterations, found ", product),
                  loop);
  }
  for (int64_t f : step.factors) {
    if (f != kInfer) {
      plan.extents.push_back(ir::Int(f, type));
    } else if (extent != nullptr) {
      plan.extents.push_back(ir::Int(inferred, type));
    } else {
      plan.extents.push_back(
          ir::FloorDiv(loop->range.extent + ir::Int(product - 1, type), ir::Int(product, type)));
    }
  }
  plan.strides.assign(step.factors.size(), 1);
  for (size_t i = step.factors.size() - 1; i-- > 0;) {
    int64_t f = step.factors[i + 1] == kInfer ? inferred : step.factors[i + 1];
    plan.strides[i] = plan.strides[i + 1] * f;
  }
  plan.ragged = extent == nullptr || product * (infers ? inferred : 1) != *extent;
  return plan;
}

// Where the outermost of the new loops puts its tile.
Expr TileStart(const SplitPlan& plan, const ir::Var& outer, const Expr& extent, bool overlaps) {
  const ir::DType type = outer->dtype;
  Expr start = plan.strides[0] == 1 ? outer : outer * ir::Int(plan.strides[0], type);
  return overlaps ? ir::Min(start, ir::Int(*ir::AsInt(extent) - plan.strides[0], type)) : start;
}

absl::Status CheckTail(const Step& step, const SplitPlan& plan, const Path& path) {
  const int64_t* extent = ir::AsInt(path.back()->range.extent);
  if (extent == nullptr) {
    return Refuse(step, "symbolic_extent",
                  "expected a constant extent for this tail, found another", path.back());
  }
  if (step.Option("tail") != "overlap") return absl::OkStatus();
  if (*extent < plan.strides[0]) {
    return Refuse(step, "too_short",
                  StrCat("expected at least one whole tile of ", plan.strides[0], ", found ",
                         *extent, " iterations"),
                  path.back());
  }
  return CheckRepeatable(step, path);
}

std::string BaseName(const ir::Var& var) { return var->name.substr(0, kMaxNameBytes); }

}  // namespace

absl::Status ApplySplit(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  Stmt loop = path.back();
  if (loop->for_kind != ir::ForKind::kSerial) {
    return Refuse(step, "not_serial", "expected a serial loop, found a mapped one", loop);
  }
  TW_ASSIGN(SplitPlan plan, PlanSplit(step, loop));
  const std::string_view tail = step.Option("tail");
  const bool overlaps = plan.ragged && tail == "overlap", pads = plan.ragged && tail == "pad";
  if (overlaps || pads) TW_TRY(CheckTail(step, plan, path));
  if (pads) {
    TW_TRY(PadLoop(s, step, path, plan.strides[0] * *ir::AsInt(plan.extents[0])));
    plan.ragged = false;
    TW_ASSIGN(path, LoopPath(s, step, 0));
    loop = path.back();
  }

  std::vector<ir::Var> vars;
  Expr offset;
  for (size_t i = 0; i < plan.extents.size(); ++i) {
    vars.push_back(
        ir::MakeVar(s.UniqueName(BaseName(loop->var) + "_" + std::to_string(i)), loop->var->dtype));
    Expr part =
        plan.strides[i] == 1 ? vars[i] : vars[i] * ir::Int(plan.strides[i], loop->var->dtype);
    if (i == 0) part = TileStart(plan, vars[0], loop->range.extent, overlaps);
    offset = offset == nullptr ? part : offset + part;
  }
  Analyzer analyzer = AnalyzerOf(s.function(), LoopsOf(path, path.size() - 1));
  Expr zero = ir::Int(0, loop->var->dtype);
  for (size_t i = 0; i < vars.size(); ++i) analyzer.SetRange(vars[i], {zero, plan.extents[i]});
  Expr guard = plan.ragged && !overlaps ? offset < loop->range.extent : nullptr;
  analyzer.Define(loop->var, loop->range.min + offset);
  Stmt body = SubstituteBelow(loop->body, {loop->var}, guard, &analyzer);
  for (size_t i = vars.size(); i-- > 0;) {
    ir::Annotations annotations;
    if (i == 0) {
      annotations = loop->annotations;
      if (plan.ragged && tail == "peel") annotations["tail"] = "peel";
    }
    body = ir::MakeFor(vars[i], zero, plan.extents[i], std::move(body), ir::ForKind::kSerial,
                       std::move(annotations));
  }
  s.SetBody(ReplaceAt(path, path.size() - 1, std::move(body)));
  s.KillLoop(loop->var);
  for (const ir::Var& v : vars) s.AddLoop(v);
  return absl::OkStatus();
}

namespace {

// The extent of the outer one of loops that are fused: it ends where the predicate of the one block
// below does, and that part of the predicate goes. Behind it, the row of an iteration is a quotient
// by an open length, of which the loop's end says more than a condition.
Expr EndOfRows(const std::vector<Stmt>& fused, const Analyzer& analyzer, Stmt* below) {
  const Stmt& rows = fused[0];
  Path path = {*below};
  while (path.back()->kind == ir::StmtKind::kFor) path.push_back(path.back()->body);
  if (path.back()->kind != ir::StmtKind::kBlock || path.back()->predicate == nullptr)
    return rows->range.extent;
  std::vector<Expr> parts = ir::Conjuncts(path.back()->predicate);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p]->kind != ir::ExprKind::kLt) continue;
    // rows + rest < 0
    AffineSum rest = analyzer.Affine(parts[p]->args[0]);
    AddScaled(&rest, analyzer.Affine(parts[p]->args[1]), -1);
    const bool of_rows = std::erase_if(rest.terms, [&](const analysis::AffineTerm& t) {
                           return t.atom == rows->var && t.coeff == 1;
                         }) == 1;
    AffineSum negative;
    negative.dtype = rest.dtype;
    AddScaled(&negative, rest, -1);
    const Expr left = ToExpr(negative);
    const auto moves = [&](const Stmt& s) {
      return s->kind == ir::StmtKind::kFor && ir::UsesVar(left, s->var);
    };
    if (!of_rows || std::ranges::any_of(fused, moves) || std::ranges::any_of(path, moves)) continue;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(p));
    auto block = std::make_shared<ir::StmtNode>(*path.back());
    block->predicate = ir::Conjunction(parts);
    *below = ReplaceAt(path, path.size() - 1, std::move(block));
    return ir::Min(rows->range.extent, left);
  }
  return rows->range.extent;
}

}  // namespace

absl::Status ApplyFuse(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  std::vector<Stmt> loops;
  for (size_t i = 0; i < step.handles.size(); ++i) {
    TW_ASSIGN(ir::Var var, s.Loop(step.handles[i]));
    const Stmt& next = i == 0 ? path.back() : loops.back()->body;
    if (next->kind != StmtKind::kFor || next->var != var) {
      return Refuse(
          step, "not_nested",
          StrCat("expected loop ", var->name, " directly inside ",
                 i == 0 ? "the function" : loops.back()->var->name, ", found another statement"),
          path.back());
    }
    if (next->for_kind != ir::ForKind::kSerial) {
      return Refuse(step, "not_serial", "expected serial loops, found a mapped one", path.back());
    }
    if (const int64_t* known = ir::AsInt(next->range.extent); i > 0 && known && *known < 1) {
      return Refuse(step, "empty",
                    StrCat("expected iterations of the inner loop ", var->name, ", found none"),
                    path.back());
    }
    for (const Stmt& o : loops) {
      if (ir::UsesVar(next->range.min, o->var) || ir::UsesVar(next->range.extent, o->var)) {
        return Refuse(step, "dependent_range",
                      StrCat("expected a range that does not depend on ", o->var->name,
                             ", found that of ", var->name),
                      path.back());
      }
    }
    loops.push_back(next);
  }
  const ir::DType type = loops[0]->var->dtype;
  bool open = false;
  int64_t iterations = 1;  // of the inner loops of constant extents
  Expr inner;
  std::string name;
  for (size_t i = 0; i < loops.size(); ++i) {
    name += (i > 0 ? "_" : "") + loops[i]->var->name;
    if (i == 0) continue;
    const int64_t* known = ir::AsInt(loops[i]->range.extent);
    open = open || known == nullptr;
    iterations *= known == nullptr ? 1 : *known;
    inner = inner == nullptr ? loops[i]->range.extent : inner * loops[i]->range.extent;
    if (iterations > kMaxIterations) {
      return Refuse(step, "too_large",
                    StrCat("expected at most ", kMaxIterations, " iterations, found more"),
                    path.back());
    }
  }
  Stmt below = loops.back()->body;
  Analyzer analyzer = AnalyzerOf(s.function(), LoopsOf(path, path.size() - 1));
  const Expr outer = open ? EndOfRows(loops, analyzer, &below) : loops[0]->range.extent;
  ir::Var fused = ir::MakeVar(s.UniqueName(name.substr(0, kMaxNameBytes) + "_f"), type);
  const Expr extent = inner == nullptr ? outer : outer * inner;
  analyzer.SetRange(fused, {ir::Int(0, type), extent});
  std::vector<ir::Var> replaced;
  ir::Annotations annotations;
  bool single = true;  // the loops so far have one iteration each
  for (size_t i = 0; i < loops.size(); ++i) {
    const ir::Range& range = loops[i]->range;
    Expr value = fused;
    for (size_t j = loops.size(); --j > i;) value = ir::FloorDiv(value, loops[j]->range.extent);
    if (i > 0 && !single) value = ir::FloorMod(value, range.extent);
    single = single && ir::IsInt(range.extent, 1);
    analyzer.Define(loops[i]->var, range.min + value);
    replaced.push_back(loops[i]->var);
    annotations.insert(loops[i]->annotations.begin(), loops[i]->annotations.end());
  }
  Stmt body = SubstituteBelow(below, replaced, nullptr, &analyzer);
  s.SetBody(ReplaceAt(path, path.size() - 1,
                      ir::MakeFor(fused, ir::Int(0, type), extent, std::move(body),
                                  ir::ForKind::kSerial, std::move(annotations))));
  for (const ir::Var& v : replaced) s.KillLoop(v);
  s.AddLoop(fused);
  return absl::OkStatus();
}

namespace {

// One block under the reordered loops `chain` (a part of its loops). Returns a reason, or "".
// Loops that feed no reduction commute: their iterations are complete in themselves. Where a
// reduction loop changes places with others, each iteration must do work of its own (or a value
// would be added twice), and the first visit of a point must stay the one where every reduction
// iterator is at its minimum, which holds for any order as long as no loop feeds both kinds.
std::string WhyNotReorder(const ir::Function& f, const BlockSite& site,
                          const std::vector<Stmt>& chain) {
  bool reduce = false, other = false;
  const Stmt& body = site.block->body;
  const bool ordered = body->kind == StmtKind::kCombine && body->combiner->ordered;
  for (const Stmt& loop : chain) {
    Feeds feeds = FeedsOf(*site.block, loop->var);
    if (feeds.ordered) {
      return StrCat("expected no ordered iterator, found that ", loop->var->name, " feeds one of ",
                    site.block->name);
    }
    if (feeds.reduce && feeds.spatial && site.block->init != nullptr) {
      return StrCat("expected loops over spatial or over reduction iterators, found that ",
                    loop->var->name, " feeds both kinds of ", site.block->name);
    }
    if (ordered && reduce && feeds.reduce && !ir::IsInt(loop->range.extent, 1)) {
      return StrCat("expected at most one loop over the values of an ordered combiner, found ",
                    loop->var->name, " of ", site.block->name);
    }
    reduce = reduce || (feeds.reduce && !(ordered && ir::IsInt(loop->range.extent, 1)));
    other = other || feeds.spatial || !feeds.reduce;
  }
  if (!reduce || !other) return "";
  Analyzer analyzer = BlockAnalyzer(f, site);
  std::vector<AffineSum> sums = BindingSums(analyzer, *site.block);
  size_t first = 0;
  while (site.loops[first]->var != chain[0]->var) ++first;
  std::vector<ir::Var> vars;
  for (size_t i = first; i < site.loops.size(); ++i) vars.push_back(site.loops[i]->var);
  std::vector<UpperBound> bounds = UpperBounds(analyzer, site.block->predicate);
  std::vector<bool> known = InjectiveIn(sums, vars, bounds, analyzer);
  for (size_t i = 0; i < chain.size(); ++i) {
    if (!known[i] && !ir::IsInt(chain[i]->range.extent, 1)) {
      return StrCat("expected that each iteration of ", chain[i]->var->name,
                    " is work of its own for the reduction ", site.block->name,
                    ", found that it may be repeated");
    }
  }
  return "";
}

}  // namespace

absl::Status ApplyReorder(Schedule& s, const Step& step) {
  std::vector<ir::Var> wanted;
  for (int h : step.handles) {
    TW_ASSIGN(ir::Var var, s.Loop(h));
    if (std::find(wanted.begin(), wanted.end(), var) != wanted.end()) {
      return Refuse(step, "repeated",
                    StrCat("expected each loop once, found ", var->name, " twice"), nullptr);
    }
    wanted.push_back(var);
  }
  Path path;  // of the outermost of the loops
  for (size_t i = 0; i < step.handles.size(); ++i) {
    TW_ASSIGN(Path p, LoopPath(s, step, i));
    if (path.empty() || p.size() < path.size()) path = std::move(p);
  }
  auto is_wanted = [&](const Stmt& l) {
    return std::find(wanted.begin(), wanted.end(), l->var) != wanted.end();
  };
  std::vector<Stmt> chain;
  size_t found = 0;
  for (Stmt at = path.back(); found < wanted.size(); at = at->body) {
    if (at->kind != StmtKind::kFor) {
      return Refuse(step, "not_nested",
                    "expected loops of one perfect nest, found another statement between them",
                    path.back());
    }
    chain.push_back(at);
    if (!is_wanted(at)) continue;
    ++found;
    if (ir::IsConcurrent(at->for_kind)) {
      return Refuse(step, "not_serial",
                    StrCat("expected serial or unrolled loops, found ", at->var->name),
                    path.back());
    }
  }
  for (const Stmt& l : chain) {
    for (const Stmt& o : chain) {
      if (ir::UsesVar(l->range.min, o->var) || ir::UsesVar(l->range.extent, o->var)) {
        return Refuse(step, "dependent_range",
                      StrCat("expected ranges that do not depend on each other, found that of ",
                             l->var->name),
                      path.back());
      }
    }
  }
  for (const BlockSite& site : BlocksIn(path.back(), LoopsOf(path, path.size() - 1))) {
    std::string why = WhyNotReorder(s.function(), site, chain);
    if (!why.empty()) return Refuse(step, "order_matters", why, path.back());
  }
  // The named loops fill the named places in the wanted order.
  std::vector<Stmt> order = chain;
  size_t next = 0;
  for (Stmt& place : order) {
    if (!is_wanted(place)) continue;
    const ir::Var& var = wanted[next++];
    place = *std::find_if(chain.begin(), chain.end(), [&](const Stmt& l) { return l->var == var; });
  }
  Stmt body = chain.back()->body;
  for (size_t i = order.size(); i-- > 0;) {
    auto node = std::make_shared<StmtNode>(*order[i]);
    node->body = std::move(body);
    body = std::move(node);
  }
  Stmt whole = ReplaceAt(path, path.size() - 1, std::move(body));
  // Iterations that ran one after the other around a concurrent loop may now run inside of it.
  bool around_concurrent = std::any_of(chain.begin(), chain.end(),
                                       [](const Stmt& l) { return ir::IsConcurrent(l->for_kind); });
  if (around_concurrent) TW_TRY(CheckConcurrentLoops(step, s.function(), whole));
  s.SetBody(std::move(whole));
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
