#include "tuner_server/cli/paired_times.h"

#include <algorithm>
#include <cmath>

#include "deploy/support/strings.h"

namespace tilewright::cli {

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

SpeedRatio RatioOf(const std::vector<Pair>& pairs) {
  std::vector<double> ratios;
  for (const Pair& pair : pairs) ratios.push_back(pair.a / pair.b);
  std::sort(ratios.begin(), ratios.end());
  // The number of ratios below the true median is binomial: mean n/2, deviation sqrt(n)/2.
  const auto count = static_cast<double>(ratios.size());
  const double half_width = 1.96 * std::sqrt(count) / 2;
  const auto last = static_cast<double>(ratios.size() - 1);
  const auto at = [&](double rank) {
    return ratios[static_cast<size_t>(std::clamp(rank, 0.0, last))];
  };
  return {MedianOf(ratios), at(std::floor(count / 2 - half_width)),
          at(std::ceil(count / 2 + half_width))};
}

std::string SpeedText(const SpeedRatio& ratio) {
  const bool differs = ratio.low > 1 || ratio.high < 1;
  const std::string range = support::StrCat("(", support::FormatFixed(ratio.low, 3), " to ",
                                            support::FormatFixed(ratio.high, 3), ")");
  if (!differs) return "no difference " + range;
  return support::StrCat(support::FormatFixed(ratio.median, 3), "x as fast ", range);
}

}  // namespace tilewright::cli
