// Robust statistics of timing samples, shared by the worker (when to stop) and the agent (what to
// report). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::device_agent {

struct SampleStats {
  double median = 0;  // of the samples that were kept
  double mad = 0;     // their median absolute deviation
  double ci_rel = 0;  // relative half-width of the 95 % interval of the median
  int kept = 0;
};

// Disturbances only make a sample longer: a neighbour on the core's other thread doubles it, and
// may be there most of the time. So only samples near the first quartile are kept: within five
// times the deviation of the fastest quarter, at least 3 %. The interval assumes a normal core:
// 1.96 · 1.2533 · sigma / sqrt(kept), with sigma = 1.4826 · MAD; one sample gives an interval of 1
// (unknown), none gives zeros.
SampleStats ComputeStats(const std::vector<double>& samples);

// Whether more samples could still change the order of this candidate and one that takes `best`:
// it is within 5 % of it, and not yet known to 0.2 %. Never for `best` = 0.
bool OrderIsOpen(const SampleStats& stats, double best);

// 0 for no values.
double Median(std::vector<double> values);

// How many runs one sample takes to last `wanted_ns`, from 1 to `most`. One run took `run_ns` by
// its clock and `wall_ns` by the machine's. A clock may stop for a while (processor time on a
// machine without a steady counter, as in an emulator), so the other one bounds the answer: a
// sample lasts at most eight times as long as wanted.
int RunsPerSample(double run_ns, double wall_ns, double wanted_ns, int most);

}  // namespace tilewright::device_agent
