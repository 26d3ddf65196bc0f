#include "compiler/ir/expr_parts.h"

#include <algorithm>
#include <limits>
#include <utility>

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

Expr WithMappedArgs(const Expr& e, size_t first, Expr (*map)(const Expr& operand)) {
  std::vector<Expr> args = e->args;
  for (size_t i = first; i < args.size(); ++i) {
    args[i] = map(args[i]);
    if (args[i] == nullptr) return nullptr;
  }
  return WithArgs(e, std::move(args));
}

Expr ExactF16(const Expr& e) {
  if (e->dtype.Element() != kF32) return nullptr;
  switch (e->kind) {
    case ExprKind::kCast:
      return e->args[0]->dtype.Element() == kF16 ? e->args[0] : nullptr;
    case ExprKind::kFloatImm:
      return RoundFloat(e->float_value, kF16) == e->float_value ? Float(e->float_value, kF16)
                                                                : nullptr;
    case ExprKind::kBroadcast:
    case ExprKind::kMin:
    case ExprKind::kMax:
      return WithMappedArgs(e, 0, ExactF16);
    case ExprKind::kSelect:
      return WithMappedArgs(e, 1, ExactF16);
    case ExprKind::kCall:
      switch (e->intrinsic) {
        case Intrinsic::kAbs:
        case Intrinsic::kFloor:
        case Intrinsic::kCeil:
        case Intrinsic::kRoundEven:
          return WithMappedArgs(e, 0, ExactF16);
        default:
          return nullptr;
      }
    default:
      return nullptr;
  }
}

Expr IdentityOf(ExprKind op, DType type) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (op) {
    case ExprKind::kAdd:
      return Zero(type);
    case ExprKind::kMul:
      return type.is_float() ? Float(1, type) : Int(1, type);
    case ExprKind::kMax:
      return type.is_float() ? Float(-kInf, type) : Int(MinInt(type), type);
    case ExprKind::kMin:
      return type.is_float() ? Float(kInf, type) : Int(MaxInt(type), type);
    default:
      return nullptr;
  }
}

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
