#include "compiler/ir/expr_parts.h"

#include <algorithm>

#include "compiler/ir/numeric.h"
#include "compiler/ir/visit.h"

namespace tilewright::ir {
namespace {

void AddConjuncts(const Expr& condition, std::vector<Expr>* parts) {
  if (condition->kind != ExprKind::kAnd) {
    parts->push_back(condition);
    return;
  }
  for (const Expr& side : condition->args) AddConjuncts(side, parts);
}

}  // namespace

std::vector<Expr> Conjuncts(const Expr& condition) {
  std::vector<Expr> parts;
  if (condition != nullptr) AddConjuncts(condition, &parts);
  return parts;
}

Expr Conjunction(const std::vector<Expr>& parts) {
  Expr result;
  for (const Expr& p : parts) result = result == nullptr ? p : result && p;
  return result;
}

void AddTermsOf(const Expr& e, int64_t scale, SumTerms* sum) {
  VisitTerms(
      e, scale,
      [&](const Expr& atom, int64_t coefficient) { sum->terms.push_back({&atom, coefficient}); },
      [&](int64_t value) { sum->constant = AddWrapping(sum->constant, value); });
}

SumTerms TermsOf(const Expr& e) {
  SumTerms sum;
  AddTermsOf(e, 1, &sum);
  return sum;
}

std::optional<std::vector<int64_t>> CoefficientsOf(const Expr& e, std::span<const Var> vars) {
  std::vector<int64_t> coefficients(vars.size(), 0);
  for (const SumTerm& term : TermsOf(e).terms) {
    const auto it = std::find(vars.begin(), vars.end(), *term.atom);
    if (it != vars.end()) {
      int64_t& c = coefficients[static_cast<size_t>(it - vars.begin())];
      c = WrapInt(AddWrapping(c, term.coefficient), e->dtype);
    } else if (std::any_of(vars.begin(), vars.end(),
                           [&](const Var& v) { return UsesVar(*term.atom, v); })) {
      return std::nullopt;
    }
  }
  return coefficients;
}

}  // namespace tilewright::ir
