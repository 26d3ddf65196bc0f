// How far the numbers of a quantised network are from those of the float network, over several
// runs. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

namespace tilewright::quantize {

class SignalNoise {
 public:
  // REQUIRES: both have the same size.
  void Add(std::span<const float> exact, std::span<const float> rounded);
  // 10 log10(sum of squares / sum of squared errors). kExactDb if there is no error, -kExactDb if
  // there is one and no signal, or a number is not finite.
  double decibels() const;
  double max_abs_diff() const { return max_abs_diff_; }
  double relative_norm() const;  // |rounded - exact| / |exact|; 0 for 0/0

 private:
  double signal_ = 0, noise_ = 0, max_abs_diff_ = 0;
};
inline constexpr double kExactDb = 200;

// Counts the rows (runs of `row` numbers) whose largest number is at the same place. REQUIRES: both
// have the same size, a multiple of `row`.
int64_t SameLargest(std::span<const float> exact, std::span<const float> rounded, int64_t row);

}  // namespace tilewright::quantize
