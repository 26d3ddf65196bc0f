// Columns of a feature vector on their way, for features.cc and group_features.cc. Plain values.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/features.h"

namespace tilewright::cost_model {

// Collects columns in order; names are kept only when the schema is made.
class FeatureRow {
 public:
  void Add(std::string_view name, double value) {
    if (!std::isfinite(value)) value = 0;
    values.push_back(static_cast<float>(std::clamp(value, -1e6, 1e6)));
    names.emplace_back(name);
  }
  void AddLog(std::string_view name, double value) {
    Add(name, std::log2(1 + std::max(value, 0.0)));
  }

  FeatureVector values;
  std::vector<std::string> names;
};

// How much of a program's whole something is, as a logarithm: what tasks of other sizes share. Of
// absolute times and operations trees learn which task a row is of, which says nothing of new ones.
inline double Relative(double part, double whole) {
  return std::log2((1 + std::max(part, 0.0)) / (1 + std::max(whole, 0.0)));
}

}  // namespace tilewright::cost_model
