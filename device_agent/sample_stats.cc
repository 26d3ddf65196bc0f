#include "device_agent/sample_stats.h"

#include <algorithm>
#include <cmath>

namespace tilewright::device_agent {
namespace {

constexpr double kOutlierMads = 5;
// Half-width of the 95 % interval of a median in units of MAD / sqrt(n).
constexpr double kIntervalPerMad = 1.96 * 1.2533 * 1.4826;

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

SampleStats ComputeStats(const std::vector<double>& samples) {
  SampleStats stats;
  if (samples.empty()) return stats;
  const double center = Median(samples);
  std::vector<double> distances;
  for (const double sample : samples) distances.push_back(std::abs(sample - center));
  stats.mad = Median(distances);
  std::vector<double> kept;
  for (const double sample : samples) {
    // Equal samples have no deviation; a neighbour within a per mille is no outlier then.
    const double reach = std::max(kOutlierMads * stats.mad, std::abs(center) * 1e-3);
    if (std::abs(sample - center) <= reach) kept.push_back(sample);
  }
  const auto total = static_cast<double>(samples.size());
  stats.outlier_fraction = (total - static_cast<double>(kept.size())) / total;
  stats.median = Median(kept);
  if (samples.size() == 1) {
    stats.ci_rel = 1;
  } else if (stats.median > 0) {
    stats.ci_rel =
        kIntervalPerMad * stats.mad / std::sqrt(static_cast<double>(kept.size())) / stats.median;
  }
  return stats;
}

}  // namespace tilewright::device_agent
