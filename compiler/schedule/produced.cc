#include "compiler/schedule/produced.h"

#include <algorithm>

#include "compiler/analysis/footprint.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::AffineSum;
using analysis::AffineTerm;
using analysis::Analyzer;
using analysis::Footprint;
using analysis::Interval;
using analysis::kIndexLimit;
using analysis::UpperBound;
using ir::Expr;
using ir::Stmt;
using support::StrCat;

// Whether a bound says no more than that one whole index stays inside the buffer.
bool IsDomainBound(const UpperBound& bound, const std::vector<AffineSum>& sums,
                   const ir::Buffer& buffer) {
  for (size_t d = 0; d < sums.size(); ++d) {
    AffineSum terms = sums[d];
    int64_t offset = terms.constant;
    terms.constant = 0;
    const int64_t* size = ir::AsInt(buffer->shape[d]);
    if (SameSum(terms, bound.terms) && size != nullptr && bound.limit + offset >= *size - 1) {
      return true;
    }
  }
  return false;
}

// The inner loops at their start.
ir::VarMap FirstIteration(const BlockSite& site, const std::vector<ir::Var>& inner) {
  ir::VarMap first;
  for (const Stmt& l : site.loops) {
    if (std::find(inner.begin(), inner.end(), l->var) == inner.end()) continue;
    first[l->var.get()] = ir::Substitute(l->range.min, first);
  }
  return first;
}

// Whether the bounded terms are smallest where all inner loops are at their start.
bool LeastAtFirst(const UpperBound& bound, const std::vector<ir::Var>& inner,
                  const ir::VarMap& first, const Analyzer& analyzer) {
  return std::all_of(bound.terms.terms.begin(), bound.terms.terms.end(), [&](const AffineTerm& t) {
    AffineSum alone;
    alone.terms = {t};
    bool moves = std::any_of(inner.begin(), inner.end(),
                             [&](const ir::Var& v) { return ir::UsesVar(t.atom, v); });
    if (!moves) return true;
    if (t.coeff <= 0) return false;
    if (t.atom->kind == ir::ExprKind::kVar) return true;
    Interval start = analyzer.Range(ir::Substitute(t.atom, first));
    return OnlyMentions(alone, inner) && start == Interval::Point(t.range.min);
  });
}

}  // namespace

std::vector<ir::Var> InnerVars(const BlockSite& site, const ir::Var& loop) {
  std::vector<ir::Var> vars;
  bool inside = loop == nullptr;
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

absl::StatusOr<Produced> ProducedAt(const Step& step, const ir::Function& f, const BlockSite& site,
                                    const ir::Var& loop) {
  auto inexact = [&](std::string_view what) {
    return Refuse(step, "inexact_region",
                  StrCat("expected that ",
                         loop == nullptr ? "the nest" : StrCat("an iteration of ", loop->name),
                         " produces a box, found ", what, " in ", site.block->name),
                  site.block);
  };
  bool around = loop != nullptr;
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
  Analyzer analyzer = BlockAnalyzer(f, site);
  std::vector<ir::Var> inner = InnerVars(site, loop);
  std::vector<AffineSum> sums = WriteSums(analyzer, *site.block);
  if (sums.empty()) return inexact("a written region that is not a point");
  const ir::Buffer& buffer = site.block->writes[0].buffer;

  ir::VarMap first = FirstIteration(site, inner);
  Produced produced;
  std::vector<UpperBound> cutting;
  for (const Expr& part : ir::Conjuncts(site.block->predicate)) {
    std::vector<UpperBound> bound = UpperBounds(analyzer, part);
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
    } else if (!over_points) {
      // Loops that repeat a point or reduce: where not even their first iteration runs, nothing is
      // produced.
      if (bound.size() != 1 || !LeastAtFirst(bound[0], inner, first, analyzer)) {
        return inexact("a predicate that is not a bound of the buffer");
      }
      Expr runs = ir::Substitute(part, first);
      if (analyzer.Decide(runs) <= 0) produced.guards.push_back(std::move(runs));
    } else if (bound.size() == 1 && OnlyMentions(bound[0].terms, inner)) {
      cutting.push_back(bound[0]);
    } else if (bound.size() != 1 || !IsDomainBound(bound[0], sums, buffer)) {
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
      int64_t before = RangeOf(TightenByBounds(sum, all.first(i))).max;
      cut += RangeOf(TightenByBounds(sum, all.first(i + 1))).max < before ? 1 : 0;
    }
    if (cut != 1) return inexact("a predicate over several dimensions");
  }
  for (size_t d = 0; d < sums.size(); ++d) {
    Footprint footprint = FootprintOf(TightenByBounds(sums[d], cutting), inner, analyzer);
    if (!footprint.exact || footprint.width >= kIndexLimit) return inexact("gaps");
    for (size_t e = 0; e < d; ++e) {
      for (const ir::Var& v : inner) {
        if (Mentions(sums[d], v) && Mentions(sums[e], v))
          return inexact("a loop over two dimensions");
      }
    }
    produced.box.push_back(Dim{footprint.min, footprint.width + 1});
  }
  return produced;
}

namespace {

// Bounds that hold among the inner variables alone: they cut boxes without naming outer loops.
std::vector<UpperBound> InnerBounds(const std::vector<UpperBound>& bounds,
                                    const std::vector<ir::Var>& inner) {
  std::vector<UpperBound> kept;
  for (const UpperBound& b : bounds) {
    if (OnlyMentions(b.terms, inner)) kept.push_back(b);
  }
  return kept;
}

}  // namespace

void GrowBox(const ir::Function& f, const BlockSite& site, const ir::BufferRegion& region,
             const ir::Var& loop, bool first, Box* box) {
  Analyzer analyzer = BlockAnalyzer(f, site);
  std::vector<ir::Var> inner = InnerVars(site, loop);
  std::vector<UpperBound> bounds = InnerBounds(UpperBounds(analyzer, site.block->predicate), inner);
  for (size_t d = 0; d < region.region.size(); ++d) {
    const int64_t* extent = ir::AsInt(region.region[d].extent);
    AffineSum point = TightenByBounds(analyzer.Affine(region.region[d].min), bounds);
    Footprint footprint = FootprintOf(point, inner, analyzer);
    Dim dim{footprint.min, 0};
    if (extent == nullptr || footprint.width >= kIndexLimit) {
      (*box)[d] = std::nullopt;
      continue;
    }
    dim.extent = footprint.width + *extent;
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

absl::StatusOr<Box> OwnPoints(const Step& step, const ir::Function& f, const BlockSite& site,
                              const std::vector<ir::Var>& own) {
  Analyzer analyzer = BlockAnalyzer(f, site);
  std::vector<UpperBound> bounds = InnerBounds(UpperBounds(analyzer, site.block->predicate), own);
  Box box(site.block->iters.size());
  for (size_t d = 0; d < box.size(); ++d) {
    AffineSum point = analyzer.Affine(site.block->iters[d].binding);
    if (OnlyMentions(point, own)) continue;
    Footprint footprint = FootprintOf(TightenByBounds(point, bounds), own, analyzer);
    if (!footprint.exact || footprint.width >= kIndexLimit) {
      return Refuse(step, "inexact_region",
                    StrCat("expected that the loops of ", site.block->name,
                           " that it would leave run over a box, found gaps"),
                    site.loops[0]);
    }
    box[d] = Dim{footprint.min, footprint.width + 1};
  }
  return box;
}

namespace {

// One loop per dimension over all of it: the form of the builder, whatever the extents are.
bool IsPlainNest(const BlockSite& site, const ir::Buffer& buffer) {
  if (site.block->predicate != nullptr || site.block->writes.size() != 1) return false;
  std::vector<ir::Var> seen;
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    const ir::Range& at = site.block->writes[0].region[d];
    auto iter = std::find_if(site.block->iters.begin(), site.block->iters.end(),
                             [&](const ir::IterVar& i) { return i.var == at.min; });
    if (iter == site.block->iters.end() || !ir::IsInt(at.extent, 1)) return false;
    auto loop = std::find_if(site.loops.begin(), site.loops.end(),
                             [&](const Stmt& l) { return l->var == iter->binding; });
    if (loop == site.loops.end() || !ir::IsInt((*loop)->range.min, 0) ||
        !ir::StructuralEqual((*loop)->range.extent, buffer->shape[d]) ||
        std::find(seen.begin(), seen.end(), (*loop)->var) != seen.end()) {
      return false;
    }
    seen.push_back((*loop)->var);
  }
  return true;
}

bool WritesAll(const Step& step, const ir::Function& f, const BlockSite& site,
               const ir::Buffer& buffer) {
  if (IsPlainNest(site, buffer)) return true;
  absl::StatusOr<Produced> produced = ProducedAt(step, f, site, nullptr);
  if (!produced.ok() || !produced->guards.empty()) return false;
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    const Dim& dim = *produced->box[d];
    const int64_t* size = ir::AsInt(buffer->shape[d]);
    bool all = size != nullptr && dim.min.terms.empty() && dim.min.constant <= 0 &&
               dim.min.constant + dim.extent >= *size;
    if (!all) return false;
  }
  return true;
}

}  // namespace

absl::Status CheckWhollyWritten(const Step& step, const ir::Function& f,
                                const std::vector<BlockSite>& sites, const ir::Buffer& buffer) {
  for (const BlockSite& site : WritersOf(sites, buffer)) {
    if (WritesAll(step, f, site, buffer)) return absl::OkStatus();
  }
  return Refuse(step, "partial_write",
                StrCat("expected a block that writes all of ", buffer->name, ", found none"),
                f.body);
}

}  // namespace tilewright::schedule
