// The only source of randomness: a seeded generator whose sequence is the same on every platform.
// A value type, not thread-safe: give each thread its own by Split.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::support {

class Rng {
 public:
  explicit Rng(uint64_t seed);

  // An independent generator named by `label`. It depends only on this generator's seed and the
  // label, not on how many numbers were drawn, so that adding a consumer changes no other sequence.
  Rng Split(std::string_view label) const;
  Rng Split(uint64_t index) const;

  uint64_t seed() const { return seed_; }

  uint64_t NextU64();
  // Uniform in [0, n), without bias. REQUIRES: n > 0.
  uint64_t Uniform(uint64_t n);
  // Uniform in [low, high], both included. REQUIRES: low <= high.
  int64_t UniformInt(int64_t low, int64_t high);
  // Uniform in [0, 1) with 53 random bits.
  double UniformDouble();
  // Standard normal.
  double Normal();
  // True with the given probability.
  bool Bernoulli(double probability) { return UniformDouble() < probability; }

  template <typename T>
  void Shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[Uniform(i)]);
  }

  // REQUIRES: items is not empty.
  template <typename T>
  const T& Choice(const std::vector<T>& items) {
    TW_CHECK(!items.empty()) << "a choice needs items";
    return items[Uniform(items.size())];
  }

 private:
  uint64_t seed_;
  std::array<uint64_t, 4> state_;
};

}  // namespace tilewright::support
