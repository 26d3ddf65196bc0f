// Affine forms of index expressions, for features, the vectoriser and access regions. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// sum(coefficients[i] * vars[i]) + rest, where `rest` (null = 0) uses none of the vars.
struct Linear {
  std::vector<int64_t> coefficients;  // one per given variable
  int64_t constant = 0;
  ir::Expr rest;  // non-constant part over other variables, null when there is none
};
// Null when `e` is not affine in `vars` (products of them, or one inside a floordiv, min, load,
// ...). Constants are folded modulo 2^64, as i64 arithmetic does. Scalar integers only.
std::optional<Linear> AsLinear(const ir::Expr& e, const std::vector<ir::Var>& vars);

// The coefficient of one variable, e.g. the stride of a flat index along a loop; nullopt when not
// affine in it.
std::optional<int64_t> StrideOf(const ir::Expr& e, const ir::Var& var);

}  // namespace tilewright::analysis
