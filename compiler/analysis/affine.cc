#include "compiler/analysis/affine.h"

#include <algorithm>
#include <cstdlib>

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
                     return std::abs(a.coeff) > std::abs(b.coeff);
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

Expr ToExpr(const AffineSum& sum) {
  Expr result;
  auto magnitude = [&](const AffineTerm& t) {
    int64_t c = std::abs(t.coeff);
    return c == 1 ? t.atom : t.atom * ir::Int(c, sum.dtype);
  };
  for (const AffineTerm& t : sum.terms) {
    if (t.coeff < 0) continue;
    result = result == nullptr ? magnitude(t) : result + magnitude(t);
  }
  int64_t constant = sum.constant;
  if (result == nullptr) {
    result = ir::Int(constant, sum.dtype);
    constant = 0;
  }
  for (const AffineTerm& t : sum.terms) {
    if (t.coeff < 0) result = result - magnitude(t);
  }
  if (constant > 0) result = result + ir::Int(constant, sum.dtype);
  if (constant < 0) result = result - ir::Int(-constant, sum.dtype);
  return result;
}

std::optional<int64_t> StrideOf(const Expr& e, const ir::Var& var) {
  if (!e->dtype.is_int() || e->dtype.is_vector()) return std::nullopt;
  const std::optional<std::vector<int64_t>> coefficients = ir::CoefficientsOf(e, {&var, 1});
  if (!coefficients.has_value()) return std::nullopt;
  return (*coefficients)[0];
}

}  // namespace tilewright::analysis
