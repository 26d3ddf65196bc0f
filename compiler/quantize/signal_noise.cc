#include "compiler/quantize/signal_noise.h"

#include <algorithm>
#include <cmath>

namespace tilewright::quantize {

void SignalNoise::Add(std::span<const float> exact, std::span<const float> rounded) {
  for (size_t i = 0; i < exact.size(); ++i) {
    const double e = exact[i], difference = rounded[i] - e;
    signal_ += e * e;
    noise_ += difference * difference;
    max_abs_diff_ = std::max(max_abs_diff_, std::fabs(difference));
  }
}

double SignalNoise::decibels() const {
  if (noise_ == 0) return kExactDb;
  if (signal_ == 0 || !std::isfinite(signal_) || !std::isfinite(noise_)) return -kExactDb;
  return std::clamp(10 * std::log10(signal_ / noise_), -kExactDb, kExactDb);
}

double SignalNoise::relative_norm() const { return noise_ == 0 ? 0 : std::sqrt(noise_ / signal_); }

int64_t SameLargest(std::span<const float> exact, std::span<const float> rounded, int64_t row) {
  int64_t same = 0;
  const auto size = static_cast<size_t>(row);
  for (size_t at = 0; at < exact.size(); at += size) {
    const auto e = exact.subspan(at, size), r = rounded.subspan(at, size);
    same += std::ranges::max_element(e) - e.begin() == std::ranges::max_element(r) - r.begin();
  }
  return same;
}

}  // namespace tilewright::quantize
