// Robust statistics of timing samples, shared by the worker (when to stop) and the agent (what to
// report). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::device_agent {

struct SampleStats {
  double median = 0;            // after outlier removal
  double mad = 0;               // median absolute deviation of all samples
  double ci_rel = 0;            // relative half-width of the 95 % interval of the median
  double outlier_fraction = 0;  // share of the samples that were left out
};

// Samples more than five MADs away from the median are outliers. Zeros for no samples. The interval
// assumes a normal core: 1.96 · 1.2533 · sigma / sqrt(n), with sigma = 1.4826 · MAD; one sample
// gives an interval of 1 (unknown).
SampleStats ComputeStats(const std::vector<double>& samples);

// 0 for no values.
double Median(std::vector<double> values);

}  // namespace tilewright::device_agent
