// The second half of quasi_affine.h: boxes that loops sweep, and which loops values determine.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/quasi_affine.h"

namespace tilewright::schedule {
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

int64_t WidthOf(IndexRange r) { return r.bounded() ? r.hi - r.lo : kUnboundedIndex; }

int64_t AddWidth(int64_t a, int64_t b) { return std::min(kUnboundedIndex, a + b); }
int64_t MulWidth(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a >= kUnboundedIndex / b ? kUnboundedIndex : a * b;
}

// What one atom contributes to a sweep.
struct AtomSweep {
  AffineSum min;
  int64_t width = 0;
  bool exact = true;
};

AtomSweep SweepAtom(const AffineTerm& term, std::span<const Var> inner,
                    const AffineContext& context);

// Sums of swept terms have no gaps when each coefficient is at most one more than what the smaller
// ones reach.
bool NoGaps(std::vector<std::pair<int64_t, int64_t>> coeff_width) {
  std::sort(coeff_width.begin(), coeff_width.end());
  int64_t reach = 0;
  for (auto [coeff, width] : coeff_width) {
    if (width == 0) continue;
    if (coeff > reach + 1) return false;
    reach = AddWidth(reach, MulWidth(width, coeff));
  }
  return true;
}

AtomSweep SweepAtom(const AffineTerm& term, std::span<const Var> inner,
                    const AffineContext& context) {
  AtomSweep result;
  result.min.dtype = term.atom->dtype;
  if (!UsesAny(term.atom, inner)) {
    result.min.terms.push_back({term.atom, 1, term.range});
    return result;
  }
  int64_t width = WidthOf(term.range);
  if (term.atom->kind == ExprKind::kVar) {
    result.min.constant = term.range.lo;
    result.width = width;
    return result;
  }
  const bool div = term.atom->kind == ExprKind::kFloorDiv;
  const int64_t* divisor =
      div || term.atom->kind == ExprKind::kFloorMod ? ir::AsInt(term.atom->args[1]) : nullptr;
  if (div && divisor != nullptr && *divisor > 0) {
    Sweep arg = SweepOver(context.Normalize(term.atom->args[0]), inner, context);
    if (!arg.min.terms.empty() && arg.width < kUnboundedIndex) {
      // The position inside the divisor is not known: at most one more quotient than for aligned.
      int64_t sure = (arg.width + *divisor - 1) / *divisor;
      if (sure < width) {
        result.min =
            context.Normalize(ir::FloorDiv(ToExpr(arg.min), ir::Int(*divisor, term.atom->dtype)));
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
    Sweep arg = SweepOver(context.Normalize(term.atom->args[0]), inner, context);
    result.exact = arg.exact && arg.width + 1 >= *divisor;
  } else {
    // A tightened group has no gaps where its parts have none; anything else is not known.
    result.exact = term.atom->kind == ExprKind::kAdd &&
                   SweepOver(context.Normalize(term.atom), inner, context).exact;
  }
  result.min.constant = term.range.lo;
  result.width = width;
  return result;
}

}  // namespace

Sweep SweepOver(const AffineSum& sum, std::span<const Var> inner, const AffineContext& context) {
  Sweep result;
  result.min.dtype = sum.dtype;
  result.min.constant = sum.constant;
  std::vector<std::pair<int64_t, int64_t>> steps;
  // An inner variable in two atoms (x + floordiv(x, 4)) correlates them: the box is not exact.
  std::vector<const AffineTerm*> moving;
  for (const AffineTerm& t : sum.terms) {
    AtomSweep atom = SweepAtom(t, inner, context);
    AddScaled(&result.min, atom.min, t.coeff);
    if (atom.width >= kUnboundedIndex) result.width = kUnboundedIndex;
    result.width = AddWidth(result.width, MulWidth(atom.width, std::abs(t.coeff)));
    result.exact = result.exact && atom.exact;
    if (t.coeff < 0 && atom.width < kUnboundedIndex) {
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

std::vector<UpperBound> UpperBounds(const AffineContext& context, const Expr& predicate) {
  std::vector<UpperBound> bounds;
  for (const Expr& part : Conjuncts(predicate)) {
    bool less = part->kind == ExprKind::kLt || part->kind == ExprKind::kLe;
    if (!less || part->args[0]->dtype.code != ir::TypeCode::kInt) continue;
    AffineSum d = context.Normalize(part->args[0]);
    AddScaled(&d, context.Normalize(part->args[1]), -1);
    bool positive = std::all_of(d.terms.begin(), d.terms.end(),
                                [](const AffineTerm& t) { return t.coeff > 0; });
    if (!positive || d.terms.empty()) continue;
    UpperBound bound;
    bound.hi = -d.constant - (part->kind == ExprKind::kLt ? 1 : 0);
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
                          const AffineContext& context, bool keep_apart) {
  AffineSum result = sum;
  for (size_t b = 0; b < bounds.size(); ++b) {
    // The bound itself, with the groups joined so far.
    AffineSum group = TightenByBounds(bounds[b].terms, bounds.subspan(0, b), context, keep_apart);
    std::optional<int64_t> ratio = MultipleOf(result, group);
    IndexRange range = context.RangeOf(group);
    if (!ratio.has_value() || range.hi <= bounds[b].hi) continue;
    if (keep_apart && group.terms.size() == result.terms.size()) continue;
    range.hi = std::max(range.lo, bounds[b].hi);
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

// ------------------------------------------------------------------------------------- determinacy

namespace {

// Knowledge grows until nothing changes: a known sum gives its atoms where the larger coefficients
// step over everything below them; known digits of a value give the value.
class Solver {
 public:
  Solver(std::span<const Var> vars, std::span<const UpperBound> bounds,
         const AffineContext& context)
      : vars_(vars), known_vars_(vars.size(), false), bounds_(bounds), context_(context) {}

  std::vector<bool> Solve(std::span<const AffineSum> sums) {
    for (const AffineSum& s : sums) sums_.push_back(s);
    for (size_t i = 0; i < vars_.size(); ++i) {
      IndexRange r = context_.RangeOfVar(vars_[i].get());
      known_vars_[i] = r.lo == r.hi;  // a unit loop has one iteration to tell apart
    }
    for (progress_ = true; progress_;) {
      progress_ = false;
      for (size_t i = 0; i < sums_.size(); ++i) {
        AffineSum plain = sums_[i];
        Decode(plain);
        if (!bounds_.empty())
          Decode(TightenByBounds(plain, bounds_, context_, /*keep_apart=*/true));
      }
      JoinDigits();
    }
    return known_vars_;
  }

 private:
  // value = floor(base / div) mod `mod` (0: no mod).
  struct Digit {
    Expr base;
    int64_t div = 1, mod = 0;
  };

  bool Known(const Expr& atom) const {
    bool known = true;
    ir::VisitExprs(atom, [&](const Expr& e) {
      if (e->kind == ExprKind::kVar) {
        auto it = std::find(vars_.begin(), vars_.end(), e);
        if (it != vars_.end() && !known_vars_[static_cast<size_t>(it - vars_.begin())]) {
          known = false;
        }
      }
      return known;
    });
    if (known) return true;
    return std::any_of(known_atoms_.begin(), known_atoms_.end(),
                       [&](const Expr& k) { return ir::StructuralEqual(k, atom); });
  }

  void Decode(const AffineSum& sum) {
    std::vector<const AffineTerm*> unknown;
    for (const AffineTerm& t : sum.terms) {
      if (!Known(t.atom)) unknown.push_back(&t);
    }
    std::sort(unknown.begin(), unknown.end(), [](const AffineTerm* a, const AffineTerm* b) {
      return std::abs(a->coeff) < std::abs(b->coeff);
    });
    std::vector<int64_t> below(unknown.size(), 0);
    int64_t reach = 0;
    for (size_t i = 0; i < unknown.size(); ++i) {
      below[i] = reach;
      reach = AddWidth(reach, MulWidth(WidthOf(unknown[i]->range), std::abs(unknown[i]->coeff)));
    }
    for (size_t i = unknown.size(); i-- > 0;) {
      if (std::abs(unknown[i]->coeff) <= below[i]) return;
      Learn(unknown[i]->atom);
    }
  }

  void Learn(const Expr& atom) {
    progress_ = true;
    if (atom->kind == ExprKind::kVar) {
      known_vars_[static_cast<size_t>(std::find(vars_.begin(), vars_.end(), atom) -
                                      vars_.begin())] = true;
      return;
    }
    known_atoms_.push_back(atom);
    if (atom->kind == ExprKind::kAdd || atom->kind == ExprKind::kSub ||
        atom->kind == ExprKind::kMul) {
      sums_.push_back(context_.Normalize(atom));
      return;
    }
    Digit digit;
    const int64_t* by = atom->args.size() == 2 ? ir::AsInt(atom->args[1]) : nullptr;
    if (by == nullptr || *by <= 0) return;
    if (atom->kind == ExprKind::kFloorDiv) {
      digit = {atom->args[0], *by, 0};
    } else if (atom->kind == ExprKind::kFloorMod) {
      digit = {atom->args[0], 1, *by};
      const Expr& inner = atom->args[0];
      const int64_t* d = inner->kind == ExprKind::kFloorDiv ? ir::AsInt(inner->args[1]) : nullptr;
      if (d != nullptr && *d > 0) digit = {inner->args[0], *d, *by};
    } else {
      return;
    }
    digits_.push_back(std::move(digit));
  }

  // Returns g where whole = g * part + low with low in [0, g): the digits of the part are those of
  // the whole, g times as far up (normal forms take such a low part out of divisions). Returns 0 if
  // there is no such g.
  int64_t ScaleOf(const Expr& part, const Expr& whole, const AffineSum& whole_sum) const {
    if (ir::StructuralEqual(part, whole)) return 1;
    const AffineSum part_sum = context_.Normalize(part);
    if (part_sum.terms.empty()) return 0;
    const AffineTerm& first = part_sum.terms[0];
    for (const AffineTerm& t : whole_sum.terms) {
      if (t.coeff % first.coeff != 0 || !ir::StructuralEqual(t.atom, first.atom)) continue;
      const int64_t g = t.coeff / first.coeff;
      AffineSum low = whole_sum;
      AddScaled(&low, part_sum, -g);
      const IndexRange range = context_.RangeOf(low);
      return g > 0 && range.lo >= 0 && range.hi < g ? g : 0;
    }
    return 0;
  }

  // How many values the unknown terms of a sum give, less one.
  int64_t UnknownWidth(const AffineSum& sum) const {
    int64_t width = 0;
    for (const AffineTerm& t : sum.terms) {
      if (Known(t.atom)) continue;
      width = AddWidth(width, MulWidth(WidthOf(t.range), std::abs(t.coeff)));
    }
    return width;
  }

  // The known digits of one value, from the lowest up, give it modulo a number. That is the value
  // if what is unknown of it has fewer values.
  void JoinDigits() {
    for (size_t i = 0; i < digits_.size(); ++i) {
      Expr base = digits_[i].base;
      if (Known(base)) continue;
      AffineSum value = context_.Normalize(base);
      if (context_.RangeOf(value).lo < 0) continue;
      const int64_t width = UnknownWidth(value);
      int64_t covered = 1;
      for (bool grown = true; grown && covered <= width;) {
        grown = false;
        for (const Digit& d : digits_) {
          const int64_t div = MulWidth(d.div, ScaleOf(d.base, base, value));
          if (div != covered) continue;
          int64_t end = d.mod == 0 ? kUnboundedIndex : MulWidth(div, d.mod);
          if (end <= covered) continue;
          covered = end;
          grown = true;
        }
      }
      if (covered <= width) continue;
      if (base->kind == ExprKind::kVar) {
        Learn(base);
      } else {
        known_atoms_.push_back(base);
        sums_.push_back(std::move(value));
        progress_ = true;
      }
    }
  }

  std::span<const Var> vars_;
  std::vector<bool> known_vars_;
  std::span<const UpperBound> bounds_;
  const AffineContext& context_;
  std::vector<AffineSum> sums_;
  std::vector<Expr> known_atoms_;
  std::vector<Digit> digits_;
  bool progress_ = false;
};

}  // namespace

std::vector<bool> Determined(std::span<const AffineSum> sums, std::span<const Var> vars,
                             std::span<const UpperBound> bounds, const AffineContext& context) {
  return Solver(vars, bounds, context).Solve(sums);
}

}  // namespace tilewright::schedule
