// Footprints of index expressions: the box that a value sweeps while some loops run and all others
// stay, also where a condition cuts the loops. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/analysis/affine.h"
#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// Values lie in [min, min + width]. `exact` when every value of the box is taken.
struct Footprint {
  AffineSum min;
  int64_t width = 0;  // kIndexLimit when unknown
  bool exact = true;
};
// What `sum` sweeps while the variables in `inner` run.
Footprint FootprintOf(const AffineSum& sum, std::span<const ir::Var> inner,
                      const Analyzer& analyzer);

// A conjunct of the form Σ terms <= limit, with the terms' coefficients as they stand.
struct UpperBound {
  AffineSum terms;  // constant 0
  int64_t limit = 0;
};
// The conjuncts that have this form with positive coefficients; fewer terms first.
std::vector<UpperBound> UpperBounds(const Analyzer& analyzer, const ir::Expr& predicate);
// `sum` with every group of terms that is a positive multiple of a bounded group replaced by one
// term whose range is cut at the bound. Ragged splits inside a tile become a box again. With
// `keep_apart` a bound on the whole sum is left alone.
AffineSum TightenByBounds(const AffineSum& sum, std::span<const UpperBound> bounds,
                          bool keep_apart = false);

}  // namespace tilewright::analysis
