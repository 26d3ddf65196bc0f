#include "compiler/analysis/affine.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {

using ir::Expr;
using ir::ExprKind;

bool SameAtom(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->kind == ExprKind::kVar) return false;
  return ir::StructuralEqual(a, b);
}

namespace {

// i64, the type of indices, needs no more.
int64_t Wrapped(int64_t value, ir::DType type) {
  return type.bits == 64 ? value : ir::WrapInt(value, type);
}

// The least integer has one, too.
uint64_t Magnitude(int64_t v) {
  return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

}  // namespace

void AddTerm(AffineSum* sum, int64_t coeff, const Expr& atom, const Interval& range) {
  if (coeff == 0) return;
  for (size_t i = 0; i < sum->terms.size(); ++i) {
    AffineTerm& t = sum->terms[i];
    if (!SameAtom(t.atom, atom)) continue;
    t.coeff = Wrapped(ir::AddWrapping(t.coeff, coeff), sum->dtype);
    if (t.coeff == 0) sum->terms.erase(sum->terms.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  sum->terms.push_back({atom, coeff, range});
}

void AddConstant(AffineSum* sum, int64_t value) {
  sum->constant = Wrapped(ir::AddWrapping(sum->constant, value), sum->dtype);
}

void AddScaled(AffineSum* into, const AffineSum& other, int64_t factor) {
  AddConstant(into, ir::MulWrapping(other.constant, factor));
  for (const AffineTerm& t : other.terms) {
    AddTerm(into, Wrapped(ir::MulWrapping(t.coeff, factor), into->dtype), t.atom, t.range);
  }
}

void SortTerms(AffineSum* sum) {
  if (sum->terms.size() < 2) return;
  std::stable_sort(sum->terms.begin(), sum->terms.end(),
                   [](const AffineTerm& a, const AffineTerm& b) {
                     return Magnitude(a.coeff) > Magnitude(b.coeff);
                   });
}

bool IsDivision(const Expr& e, ExprKind kind, int64_t* divisor) {
  if (e->kind != kind) return false;
  const int64_t* d = ir::AsInt(e->args[1]);
  if (d == nullptr || *d <= 0) return false;
  *divisor = *d;
  return true;
}

Interval RangeOf(const AffineSum& sum) {
  Interval r = Interval::Point(sum.constant);
  for (const AffineTerm& t : sum.terms) r = AddIndices(r, ScaleIndices(t.range, t.coeff));
  return r;
}

bool SameSum(const AffineSum& a, const AffineSum& b) {
  if (a.constant != b.constant || a.terms.size() != b.terms.size()) return false;
  for (const AffineTerm& t : a.terms) {
    bool found = std::any_of(b.terms.begin(), b.terms.end(), [&](const AffineTerm& o) {
      return o.coeff == t.coeff && SameAtom(o.atom, t.atom);
    });
    if (!found) return false;
  }
  return true;
}

bool Mentions(const AffineSum& sum, const ir::Var& var) {
  return std::any_of(sum.terms.begin(), sum.terms.end(),
                     [&](const AffineTerm& t) { return ir::UsesVar(t.atom, var); });
}

AffineSum AtomSum(Expr atom, const Interval& range) {
  if (range.is_point()) return {atom->dtype, {}, range.min};
  if (const int64_t* c = ir::AsInt(atom)) return {atom->dtype, {}, *c};
  const ir::DType type = atom->dtype;
  return {type, {{std::move(atom), 1, range}}, 0};
}

Expr ToExpr(const AffineSum& sum) {
  const int64_t least = ir::MinInt(sum.dtype);  // has no positive counterpart: is added as it is
  Expr r;
  auto add = [&](int64_t c, const Expr& e) {
    const bool subtract = r != nullptr && c < 0 && c != least;
    const int64_t magnitude = subtract ? -c : c;
    const Expr part = magnitude == 1 ? e : e * ir::Int(magnitude, sum.dtype);
    r = r == nullptr ? part : subtract ? r - part : r + part;
  };
  for (const AffineTerm& t : sum.terms) {
    if (t.coeff > 0) add(t.coeff, t.atom);
  }
  int64_t constant = sum.constant;
  if (r == nullptr && constant != 0) {  // c - x rather than x * -1 + c
    r = ir::Int(constant, sum.dtype);
    constant = 0;
  }
  for (const AffineTerm& t : sum.terms) {
    if (t.coeff < 0) add(t.coeff, t.atom);
  }
  if (r == nullptr) r = ir::Int(0, sum.dtype);
  if (constant == 0) return r;
  const bool subtract = constant < 0 && constant != least;
  return subtract ? r - ir::Int(-constant, sum.dtype) : r + ir::Int(constant, sum.dtype);
}

std::optional<int64_t> StrideOf(const Expr& e, const ir::Var& var) {
  if (!e->dtype.is_int() || e->dtype.is_vector()) return std::nullopt;
  const std::optional<std::vector<int64_t>> coefficients = ir::CoefficientsOf(e, {&var, 1});
  if (!coefficients.has_value()) return std::nullopt;
  return (*coefficients)[0];
}

}  // namespace tilewright::analysis
