// The statistics of a paired race: two programs run in turns, so that what disturbs the machine
// disturbs both. Pure functions on values; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace tilewright::cli {

// Nanoseconds of one run of each, in one round.
struct Pair {
  double a = 0;
  double b = 0;
};

// How many times as fast b is: the median of a / b over the rounds, and the interval that holds the
// true median with 95 % probability for any distribution of times (by ranks, which are binomial).
struct SpeedRatio {
  double median = 0;
  double low = 0;
  double high = 0;
};

inline constexpr size_t kFewestPairs = 8;  // fewer have no such interval
// REQUIRES: at least kFewestPairs pairs, all times positive.
SpeedRatio RatioOf(const std::vector<Pair>& pairs);

// "1.118x as fast (1.113 to 1.121)" and "no difference (0.996 to 1.003)".
std::string SpeedText(const SpeedRatio& ratio);

double MedianOf(std::vector<double> values);  // REQUIRES: not empty

}  // namespace tilewright::cli
