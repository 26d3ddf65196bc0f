// The range of the numbers that 256 integers stand for, chosen from the numbers that a tensor had
// in calibration runs. A histogram belongs to one thread; the functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::quantize {

inline constexpr int kIntegerSteps = 255;  // between the smallest and the largest of 256 integers

// Holds 0 always: padding, and the results of a rectifier, are exact.
struct Range {
  double low = 0;   // <= 0
  double high = 0;  // >= 0
};

enum class RangeRule {
  kMinMax,      // all numbers
  kPercentile,  // so many of them; the others saturate
  kMse,         // the least mean squared error of rounding and saturation together
};
struct RangeChoice {
  RangeRule rule = RangeRule::kMse;
  double percentile = 99.99;
};
// "minmax", "mse", "percentile" or "percentile=99.9" (above 50, at most 100);
// INVALID_ARGUMENT quantize.ranges.unknown for another text.
absl::StatusOr<RangeChoice> ParseRangeChoice(std::string_view text);
std::string RangeChoiceText(const RangeChoice& choice);

// Counts numbers in bins of equal width around 0. The width is a power of two and doubles when a
// number is outside, so that one pass over the data is enough, and the result does not depend on
// the order of the data.
class Histogram {
 public:
  Histogram();
  void Add(std::span<const float> values);
  // False if any number was infinite or NaN. Such numbers are not counted.
  bool finite() const { return finite_; }
  int64_t count() const { return count_; }
  double min() const { return min_; }  // 0 if all numbers are greater, or there are none
  double max() const { return max_; }  // 0 if all numbers are less, or there are none

  // A number that stands for the numbers of a bin, and how many these are.
  struct Bin {
    double centre = 0;
    int64_t count = 0;
  };
  // Those that are not empty, by rising centre. Zeros have a bin of their own.
  std::vector<Bin> bins() const;

 private:
  void Grow(double magnitude);

  std::vector<int64_t> counts_;
  int exponent_ = -30;  // bins cover [-2^exponent, 2^exponent)
  bool finite_ = true;
  int64_t count_ = 0, zeros_ = 0;
  double min_ = 0, max_ = 0;
};

Range ChooseRange(const Histogram& histogram, const RangeChoice& choice);
// The smallest range that holds both.
Range Union(const Range& a, const Range& b);

}  // namespace tilewright::quantize
