// Expressions taken apart: the conjuncts of a condition, the terms of an integer sum. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// The parts of a conjunction, left to right; empty for null.
std::vector<Expr> Conjuncts(const Expr& condition);
Expr Conjunction(const std::vector<Expr>& parts);  // null when empty

// constant + Σ coefficient · atom, by the laws that also hold where arithmetic wraps: sums,
// differences and products with constants are taken apart, whatever else there is is an atom. An
// atom may occur several times. Everything is modulo 2^64, as i64 arithmetic is.
struct SumTerm {
  const Expr* atom;  // inside the expression that was taken apart
  int64_t coefficient;
};
struct SumTerms {
  std::vector<SumTerm> terms;  // left to right
  int64_t constant = 0;
};
SumTerms TermsOf(const Expr& e);
void AddTermsOf(const Expr& e, int64_t scale, SumTerms* sum);  // *sum += scale * e

// The coefficient of each of `vars` in `e`, wrapped to its type; nullopt where `e` is not affine in
// them (products of them, or one inside a floordiv, min, load, ...). REQUIRES: a scalar integer.
std::optional<std::vector<int64_t>> CoefficientsOf(const Expr& e, std::span<const Var> vars);

}  // namespace tilewright::ir
