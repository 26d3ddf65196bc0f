#include "deploy/support/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "deploy/support/hash.h"

namespace tilewright::support {
namespace {

// SplitMix64 turns any seed, zero included, into well mixed state words.
uint64_t SplitMix(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

Rng::Rng(uint64_t seed) : seed_(seed) {
  uint64_t mix = seed;
  for (uint64_t& word : state_) word = SplitMix(&mix);
}

Rng Rng::Split(std::string_view label) const {
  return Rng(Hasher64().Add(seed_).Add("split").Add(label).Finish());
}

Rng Rng::Split(uint64_t index) const {
  return Rng(Hasher64().Add(seed_).Add("index").Add(index).Finish());
}

// xoshiro256**.
uint64_t Rng::NextU64() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t Rng::Uniform(uint64_t n) {
  TW_CHECK(n > 0) << "an empty range";
  // Values below 2^64 mod n would make the small results too frequent.
  const uint64_t threshold = (0 - n) % n;
  uint64_t value = NextU64();
  while (value < threshold) value = NextU64();
  return value % n;
}

int64_t Rng::UniformInt(int64_t low, int64_t high) {
  TW_CHECK(low <= high) << low << " > " << high;
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t offset = span == 0 ? NextU64() : Uniform(span);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

double Rng::UniformDouble() { return static_cast<double>(NextU64() >> 11) * 0x1.0p-53; }

double Rng::Normal() {
  // Box-Muller without the cached second value: the sequence then has no hidden state.
  const double u = 1.0 - UniformDouble();
  const double v = UniformDouble();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace tilewright::support
