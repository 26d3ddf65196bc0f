#include "compiler/analysis/address.h"

#include <utility>

namespace tilewright::analysis {

double FlatAddress(const std::vector<ir::Expr>& indices, const std::vector<double>& dim_strides,
                   const Analyzer& analyzer) {
  double flat = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Interval at = analyzer.Values(indices[d]);
    if (at.is_bounded()) flat += dim_strides[d] * static_cast<double>(at.min);
  }
  return flat;
}

std::vector<int64_t> FirstSteps(const std::vector<ir::Expr>& indices,
                                const std::vector<double>& dim_strides,
                                const std::vector<FirstValue>& first, Analyzer analyzer) {
  for (const auto& [var, value] : first) analyzer.Set(var, Interval::Point(value));
  const double base = FlatAddress(indices, dim_strides, analyzer);
  std::vector<int64_t> steps;
  for (const auto& [var, value] : first) {
    analyzer.Set(var, Interval::Point(value + 1));
    steps.push_back(static_cast<int64_t>(FlatAddress(indices, dim_strides, analyzer) - base));
    analyzer.Set(var, Interval::Point(value));
  }
  return steps;
}

}  // namespace tilewright::analysis
