// Numbers in equal steps: tables of positions that are parts of a dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tilewright::graph::onnx {

struct Spacing {
  int64_t start, step;
};
// Of numbers that follow one another in equal steps other than 0; of one number, the step is 1.
inline std::optional<Spacing> EvenlySpaced(const std::vector<int64_t>& numbers) {
  if (numbers.empty()) return std::nullopt;
  // Steps wrap: what differs by more than 2^63 is no table of positions.
  const auto step = [&](size_t i) {
    return static_cast<int64_t>(static_cast<uint64_t>(numbers[i]) -
                                static_cast<uint64_t>(numbers[i - 1]));
  };
  const int64_t all = numbers.size() == 1 ? 1 : step(1);
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (all == 0 || step(i) != all) return std::nullopt;
  }
  return Spacing{numbers[0], all};
}
// Of positions in a dimension of this size, from its end if they are negative.
inline std::optional<Spacing> EvenlySpaced(std::vector<int64_t> at, int64_t size) {
  for (int64_t& i : at) {
    if (i < -size || i >= size) return std::nullopt;
    if (i < 0) i += size;
  }
  return EvenlySpaced(at);
}

}  // namespace tilewright::graph::onnx
