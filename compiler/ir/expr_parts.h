// Expressions taken apart: the conjuncts of a condition, the terms of an integer sum; and what a
// reduction starts from. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// The parts of a conjunction, left to right; empty for null.
std::vector<Expr> Conjuncts(const Expr& condition);
Expr Conjunction(const std::vector<Expr>& parts);  // null when empty

// What all lanes of a broadcast are; any other expression as it is.
inline const Expr& OfEachLane(const Expr& e) {
  return e->kind == ExprKind::kBroadcast ? e->args[0] : e;
}

// `e` with map(operand) for its operands from `first` on; null if one of these is null.
Expr WithMappedArgs(const Expr& e, size_t first, Expr (*map)(const Expr& operand));

// The h of f16 for which `e` is f32(h) exactly: a widened h, a constant that f16 has, and
// broadcasts, choices, minima, maxima, magnitudes and whole numbers of such. Null if there is none.
Expr ExactF16(const Expr& e);

// The x of the scalar type for which op(x, y) is y: of Add, Mul, Min and Max. Null for other kinds.
Expr IdentityOf(ExprKind op, DType type);

// i64 arithmetic, which wraps.
inline int64_t AddWrapping(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t MulWrapping(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// scale * e = constant + Σ coefficient · atom, by the laws that also hold where arithmetic wraps:
// sums, differences and products with constants are taken apart, whatever else there is is an atom.
// Calls atom(e, coefficient) and constant(value), left to right; an atom may occur several times.
// Coefficients are modulo 2^64, as i64 arithmetic is. REQUIRES: a scalar integer.
template <typename Atom, typename Constant>
void VisitTerms(const Expr& e, int64_t scale, const Atom& atom, const Constant& constant) {
  switch (e->kind) {
    case ExprKind::kIntImm:
      return constant(MulWrapping(scale, e->int_value));
    case ExprKind::kAdd:
      VisitTerms(e->args[0], scale, atom, constant);
      return VisitTerms(e->args[1], scale, atom, constant);
    case ExprKind::kSub:
      VisitTerms(e->args[0], scale, atom, constant);
      return VisitTerms(e->args[1], MulWrapping(scale, -1), atom, constant);
    case ExprKind::kMul:
      for (size_t side : {0, 1}) {
        const int64_t* factor = AsInt(e->args[1 - side]);
        if (factor == nullptr) continue;
        return VisitTerms(e->args[side], MulWrapping(scale, *factor), atom, constant);
      }
      break;
    default:
      break;
  }
  atom(e, scale);
}

// The same as a value.
struct SumTerm {
  const Expr* atom;  // inside the expression that was taken apart
  int64_t coefficient;
};
struct SumTerms {
  std::vector<SumTerm> terms;
  int64_t constant = 0;
};
SumTerms TermsOf(const Expr& e);
void AddTermsOf(const Expr& e, int64_t scale, SumTerms* sum);  // *sum += scale * e

// The coefficient of each of `vars` in `e`, wrapped to its type; nullopt where `e` is not affine in
// them (products of them, or one inside a floordiv, min, load, ...). REQUIRES: a scalar integer.
std::optional<std::vector<int64_t>> CoefficientsOf(const Expr& e, std::span<const Var> vars);

}  // namespace tilewright::ir
