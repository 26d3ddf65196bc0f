#include "compiler/analysis/injective.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Var;

// Knowledge grows until nothing changes: a known sum gives its atoms where the larger coefficients
// step over everything below them; known digits of a value give the value.
class Solver {
 public:
  Solver(std::span<const Var> vars, std::span<const UpperBound> bounds, const Analyzer& analyzer)
      : vars_(vars), known_vars_(vars.size(), false), bounds_(bounds), analyzer_(analyzer) {}

  std::vector<bool> Solve(std::span<const AffineSum> sums) {
    for (const AffineSum& s : sums) sums_.push_back(s);
    for (size_t i = 0; i < vars_.size(); ++i) {
      // A unit loop has one iteration to tell apart.
      known_vars_[i] = analyzer_.Values(vars_[i]).is_point();
    }
    for (progress_ = true; progress_;) {
      progress_ = false;
      for (size_t i = 0; i < sums_.size(); ++i) {
        AffineSum plain = sums_[i];
        Decode(plain);
        if (!bounds_.empty()) Decode(TightenByBounds(plain, bounds_, /*keep_apart=*/true));
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
      reach = AddWidths(reach, MulWidths(WidthOf(unknown[i]->range), std::abs(unknown[i]->coeff)));
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
      sums_.push_back(analyzer_.Affine(atom));
      return;
    }
    LearnOpen(*atom);
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

  // Row and column in rows of an open length: both together say x.
  void LearnOpen(const ir::ExprNode& atom) {
    const bool divides = atom.kind == ExprKind::kFloorDiv;
    if (!divides && atom.kind != ExprKind::kFloorMod) return;
    const Expr &x = atom.args[0], &s = atom.args[1];
    if (ir::AsInt(s) != nullptr || !Known(s) || Known(x)) return;
    if (!Known(divides ? ir::FloorMod(x, s) : ir::FloorDiv(x, s))) return;
    if (x->kind == ExprKind::kVar) return Learn(x);
    known_atoms_.push_back(x);
    sums_.push_back(analyzer_.Affine(x));
  }

  // Returns g where whole = g * part + low with low in [0, g): the digits of the part are those of
  // the whole, g times as far up (normal forms take such a low part out of divisions). Returns 0 if
  // there is no such g. Multiples of `modulus` (0: none) in the part make no difference.
  int64_t ScaleOf(const Expr& part, int64_t modulus, const Expr& whole,
                  const AffineSum& whole_sum) const {
    if (ir::StructuralEqual(part, whole)) return 1;
    const AffineSum part_sum = analyzer_.Affine(part);
    if (part_sum.terms.empty()) return 0;
    if (IsScale(1, part_sum, modulus, whole_sum)) return 1;
    const AffineTerm& first = part_sum.terms[0];
    for (const AffineTerm& t : whole_sum.terms) {
      if (t.coeff % first.coeff != 0 || !ir::StructuralEqual(t.atom, first.atom)) continue;
      const int64_t g = t.coeff / first.coeff;
      return g > 1 && IsScale(g, part_sum, modulus, whole_sum) ? g : 0;
    }
    return 0;
  }

  bool IsScale(int64_t g, const AffineSum& part, int64_t modulus, const AffineSum& whole) const {
    AffineSum low = whole;
    AddScaled(&low, part, -g);
    if (modulus > 0) {
      const int64_t period = MulWidths(g, modulus);
      std::erase_if(low.terms, [&](const AffineTerm& m) { return m.coeff % period == 0; });
    }
    JoinRemainders(&low);
    const Interval range = RangeOf(low);
    return range.min >= 0 && range.max < g;
  }

  // c * y - c * b * floordiv(y, b) → c * floormod(y, b), whose range the two do not say.
  void JoinRemainders(AffineSum* sum) const {
    for (size_t i = 0; i < sum->terms.size(); ++i) {
      const AffineTerm quotient = sum->terms[i];
      const bool divides = quotient.atom->kind == ExprKind::kFloorDiv;
      const int64_t* b = divides ? ir::AsInt(quotient.atom->args[1]) : nullptr;
      if (b == nullptr || *b <= 0 || quotient.coeff % *b != 0) continue;
      const int64_t c = -quotient.coeff / *b;
      AffineSum joined = *sum;
      AffineSum own;
      own.terms = {quotient};
      AddScaled(&joined, own, -1);
      AddScaled(&joined, analyzer_.Affine(quotient.atom->args[0]), -c);
      AffineSum rest;
      rest.terms = {{ir::FloorMod(quotient.atom->args[0], quotient.atom->args[1]), 1, {0, *b - 1}}};
      AddScaled(&joined, rest, c);
      if (joined.terms.size() >= sum->terms.size()) continue;
      *sum = std::move(joined);
      i = static_cast<size_t>(-1);
    }
  }

  // How many values the unknown terms of a sum give, less one.
  int64_t UnknownWidth(const AffineSum& sum) const {
    int64_t width = 0;
    for (const AffineTerm& t : sum.terms) {
      if (Known(t.atom)) continue;
      width = AddWidths(width, MulWidths(WidthOf(t.range), std::abs(t.coeff)));
    }
    return width;
  }

  // The known digits of one value, from the lowest up, give it modulo a number. That is the value
  // if what is unknown of it has fewer values, or if the highest digit is all that is left.
  void JoinDigits() {
    for (size_t i = 0; i < digits_.size(); ++i) {
      Expr base = digits_[i].base;
      if (Known(base)) continue;
      AffineSum value = analyzer_.Affine(base);
      if (RangeOf(value).min < 0) continue;
      const int64_t width = UnknownWidth(value);
      int64_t covered = 1;
      bool whole = false;
      for (bool grown = true; grown && covered <= width;) {
        grown = false;
        for (const Digit& d : digits_) {
          const int64_t div =
              MulWidths(d.div, ScaleOf(d.base, MulWidths(d.div, d.mod), base, value));
          if (div != covered) continue;
          int64_t end = d.mod == 0 ? kIndexLimit : MulWidths(div, d.mod);
          if (end <= covered) continue;
          covered = end;
          whole = whole || d.mod == 0;
          grown = true;
        }
      }
      if (!whole && covered <= width) continue;
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
  const Analyzer& analyzer_;
  std::vector<AffineSum> sums_;
  std::vector<Expr> known_atoms_;
  std::vector<Digit> digits_;
  bool progress_ = false;
};

}  // namespace

std::vector<bool> InjectiveIn(std::span<const AffineSum> sums, std::span<const Var> vars,
                              std::span<const UpperBound> bounds, const Analyzer& analyzer) {
  return Solver(vars, bounds, analyzer).Solve(sums);
}

}  // namespace tilewright::analysis
