#include "device_agent/sample_stats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tilewright::device_agent {
namespace {

constexpr double kReachMads = 5;
constexpr double kReachShare = 0.03;
constexpr double kClose = 0.05;
constexpr double kFineCi = 0.002;
// Half-width of the 95 % interval of a median in units of MAD / sqrt(n).
constexpr double kIntervalPerMad = 1.96 * 1.2533 * 1.4826;

// Median distance of the values from `center`.
double Deviation(const std::vector<double>& values, double center) {
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - center));
  return Median(std::move(distances));
}

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
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const size_t quarter = (sorted.size() - 1) / 4;
  const double anchor = sorted[quarter];
  const std::vector<double> fast(sorted.begin(),
                                 sorted.begin() + static_cast<std::ptrdiff_t>(quarter) + 1);
  const double reach =
      std::max(kReachMads * Deviation(fast, anchor), std::abs(anchor) * kReachShare);
  std::vector<double> kept;
  for (const double sample : sorted) {
    if (std::abs(sample - anchor) <= reach) kept.push_back(sample);
  }
  stats.kept = static_cast<int>(kept.size());
  stats.median = Median(kept);
  stats.mad = Deviation(kept, stats.median);
  if (samples.size() == 1) {
    stats.ci_rel = 1;
  } else if (stats.median > 0) {
    stats.ci_rel =
        kIntervalPerMad * stats.mad / std::sqrt(static_cast<double>(kept.size())) / stats.median;
  }
  return stats;
}

bool OrderIsOpen(const SampleStats& stats, double best) {
  return best > 0 && std::abs(stats.median / best - 1) < kClose && stats.ci_rel > kFineCi;
}

int RunsPerSample(double run_ns, double wall_ns, double wanted_ns, int most) {
  constexpr double kTrust = 8;
  const double one_run_ns = std::max({run_ns, wall_ns / kTrust, 1.0});
  return static_cast<int>(std::clamp(std::ceil(wanted_ns / one_run_ns), 1.0, double{1} * most));
}

}  // namespace tilewright::device_agent
