#include "compiler/analysis/footprint.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Var;

bool UsesAny(const Expr& e, std::span<const Var> vars) {
  if (e->kind == ExprKind::kVar) return std::find(vars.begin(), vars.end(), e) != vars.end();
  if (e->kind == ExprKind::kIntImm) return false;
  bool used = false;
  ir::VisitExprs(e, [&](const Expr& x) {
    used =
        used || (x->kind == ExprKind::kVar && std::find(vars.begin(), vars.end(), x) != vars.end());
    return !used;
  });
  return used;
}

// Sums of swept terms have no gaps when each coefficient is at most one more than what the smaller
// ones reach.
bool NoGaps(std::vector<std::pair<int64_t, int64_t>> coeff_width) {
  std::sort(coeff_width.begin(), coeff_width.end());
  int64_t reach = 0;
  for (auto [coeff, width] : coeff_width) {
    if (width == 0) continue;
    if (coeff > reach + 1) return false;
    reach = AddWidths(reach, MulWidths(width, coeff));
  }
  return true;
}

// Of one atom: what it contributes to a footprint.
Footprint AtomFootprint(const AffineTerm& term, std::span<const Var> inner,
                        const Analyzer& analyzer) {
  Footprint result;
  result.min.dtype = term.atom->dtype;
  if (!UsesAny(term.atom, inner)) {
    result.min.terms.push_back({term.atom, 1, term.range});
    return result;
  }
  int64_t width = WidthOf(term.range);
  if (term.atom->kind == ExprKind::kVar) {
    if (width < kIndexLimit) result.min.constant = term.range.min;
    result.width = width;
    return result;
  }
  const bool div = term.atom->kind == ExprKind::kFloorDiv;
  const int64_t* divisor =
      div || term.atom->kind == ExprKind::kFloorMod ? ir::AsInt(term.atom->args[1]) : nullptr;
  if (div && divisor != nullptr && *divisor > 0) {
    Footprint arg = FootprintOf(analyzer.Affine(term.atom->args[0]), inner, analyzer);
    if (!arg.min.terms.empty() && arg.width < kIndexLimit) {
      // The position inside the divisor is not known: at most one more quotient than for aligned.
      int64_t sure = (arg.width + *divisor - 1) / *divisor;
      if (sure < width) {
        result.min =
            analyzer.Affine(ir::FloorDiv(ToExpr(arg.min), ir::Int(*divisor, term.atom->dtype)));
        result.width = sure;
        result.exact = false;
        return result;
      }
    }
    if (arg.min.terms.empty())
      result.exact = arg.exact;
    else
      result.exact = false;
  } else if (divisor != nullptr) {
    // A whole period is swept only by at least that many steps without a gap.
    Footprint arg = FootprintOf(analyzer.Affine(term.atom->args[0]), inner, analyzer);
    result.exact = arg.exact && arg.width + 1 >= *divisor;
  } else {
    // A tightened group has no gaps where its parts have none; anything else is not known.
    result.exact = term.atom->kind == ExprKind::kAdd &&
                   FootprintOf(analyzer.Affine(term.atom), inner, analyzer).exact;
  }
  if (width < kIndexLimit) result.min.constant = term.range.min;
  result.width = width;
  return result;
}

}  // namespace

Footprint FootprintOf(const AffineSum& sum, std::span<const Var> inner, const Analyzer& analyzer) {
  Footprint result;
  result.min.dtype = sum.dtype;
  result.min.constant = sum.constant;
  std::vector<std::pair<int64_t, int64_t>> steps;
  // An inner variable in two atoms (x + floordiv(x, 4)) correlates them: the box is not exact.
  std::vector<const AffineTerm*> moving;
  for (const AffineTerm& t : sum.terms) {
    Footprint atom = AtomFootprint(t, inner, analyzer);
    AddScaled(&result.min, atom.min, t.coeff);
    if (atom.width >= kIndexLimit) result.width = kIndexLimit;
    result.width = AddWidths(result.width, MulWidths(atom.width, std::abs(t.coeff)));
    result.exact = result.exact && atom.exact;
    if (t.coeff < 0 && atom.width < kIndexLimit) {
      result.min.constant += t.coeff * atom.width;
    }
    if (atom.width > 0) {
      steps.emplace_back(std::abs(t.coeff), atom.width);
      moving.push_back(&t);
    }
  }
  if (!NoGaps(std::move(steps))) result.exact = false;
  for (size_t i = 0; i + 1 < moving.size() && result.exact; ++i) {
    for (size_t j = i + 1; j < moving.size(); ++j) {
      for (const Var& v : inner) {
        if (ir::UsesVar(moving[i]->atom, v) && ir::UsesVar(moving[j]->atom, v)) {
          result.exact = false;
        }
      }
    }
  }
  return result;
}

std::vector<UpperBound> UpperBounds(const Analyzer& analyzer, const Expr& predicate) {
  std::vector<UpperBound> bounds;
  for (const Expr& part : ir::Conjuncts(predicate)) {
    bool less = part->kind == ExprKind::kLt || part->kind == ExprKind::kLe;
    if (!less || part->args[0]->dtype.code != ir::TypeCode::kInt) continue;
    AffineSum d = analyzer.Affine(part->args[0]);
    AddScaled(&d, analyzer.Affine(part->args[1]), -1);
    bool positive = std::all_of(d.terms.begin(), d.terms.end(),
                                [](const AffineTerm& t) { return t.coeff > 0; });
    if (!positive || d.terms.empty()) continue;
    UpperBound bound;
    bound.limit = -d.constant - (part->kind == ExprKind::kLt ? 1 : 0);
    d.constant = 0;
    bound.terms = std::move(d);
    bounds.push_back(std::move(bound));
  }
  // Inner groups first, so that outer ones see them already joined.
  std::stable_sort(bounds.begin(), bounds.end(), [](const UpperBound& a, const UpperBound& b) {
    return a.terms.terms.size() < b.terms.terms.size();
  });
  return bounds;
}

namespace {

// The multiple of `bound` that is part of `sum`, or nothing.
std::optional<int64_t> MultipleOf(const AffineSum& sum, const AffineSum& bound) {
  std::optional<int64_t> ratio;
  for (const AffineTerm& want : bound.terms) {
    const AffineTerm* found = nullptr;
    for (const AffineTerm& t : sum.terms) {
      if (ir::StructuralEqual(t.atom, want.atom)) found = &t;
    }
    if (found == nullptr || found->coeff % want.coeff != 0) return std::nullopt;
    int64_t r = found->coeff / want.coeff;
    if (r <= 0 || (ratio.has_value() && *ratio != r)) return std::nullopt;
    ratio = r;
  }
  return ratio;
}

}  // namespace

AffineSum TightenByBounds(const AffineSum& sum, std::span<const UpperBound> bounds,
                          bool keep_apart) {
  AffineSum result = sum;
  for (size_t b = 0; b < bounds.size(); ++b) {
    // The bound itself, with the groups joined so far.
    AffineSum group = TightenByBounds(bounds[b].terms, bounds.subspan(0, b), keep_apart);
    std::optional<int64_t> ratio = MultipleOf(result, group);
    Interval range = RangeOf(group);
    if (!ratio.has_value() || range.max <= bounds[b].limit) continue;
    if (keep_apart && group.terms.size() == result.terms.size()) continue;
    range.max = std::max(range.min, bounds[b].limit);
    AffineSum kept;
    kept.dtype = result.dtype;
    kept.constant = result.constant;
    for (const AffineTerm& t : result.terms) {
      bool joined = std::any_of(group.terms.begin(), group.terms.end(), [&](const AffineTerm& g) {
        return ir::StructuralEqual(g.atom, t.atom);
      });
      if (!joined) kept.terms.push_back(t);
    }
    Expr atom =
        group.terms.size() == 1 && group.terms[0].coeff == 1 ? group.terms[0].atom : ToExpr(group);
    kept.terms.push_back({atom, *ratio, range});
    result = std::move(kept);
  }
  return result;
}

}  // namespace tilewright::analysis
