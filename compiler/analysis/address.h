// How flat addresses of accesses move with loops. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// The least value of Σ dim_strides[d] · indices[d]. An index whose value is not known counts as 0.
double FlatAddress(const std::vector<ir::Expr>& indices, const std::vector<double>& dim_strides,
                   const Analyzer& analyzer);

struct FirstValue {
  ir::Var var;
  int64_t value = 0;
};

// How far the address Σ dim_strides[d] · indices[d] moves when one variable takes its first step
// while all others are at their first values; one entry for each variable. It sees through the
// floordiv and floormod of fused loops and the choices of padding, where it stands for the steps
// that follow. An index whose value is not known counts as 0.
std::vector<int64_t> FirstSteps(const std::vector<ir::Expr>& indices,
                                const std::vector<double>& dim_strides,
                                const std::vector<FirstValue>& first, Analyzer analyzer);

}  // namespace tilewright::analysis
