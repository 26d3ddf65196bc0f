// Sums that are zero by the program's text, but have no instruction for it yet: if the next thing
// that happens to them is a product, it overwrites them. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tilewright::vta {

// One loop around an operation, with the step that it makes in each operand (in units).
struct VtaLoopStep {
  int64_t extent = 1;
  std::array<int64_t, 3> step = {};
};

class ClearedSums {
 public:
  struct Run {
    int64_t begin, end;
  };

  // `elements` of the memory of sums.
  explicit ClearedSums(int64_t elements) : cleared_(static_cast<size_t>(elements)) {}

  // The first operand of the loops, which starts at `base`.
  void Clear(const std::vector<VtaLoopStep>& steps, int64_t base);
  // Whether all sums of the loops are cleared, and no two points of the loops that move are one
  // sum. If so, none of them is cleared afterwards.
  bool TakeIfAll(const std::vector<VtaLoopStep>& steps, int64_t base);
  // The first cleared ones of [begin, end), without a gap; they are not cleared afterwards.
  std::optional<Run> Take(int64_t begin, int64_t end);
  // Nobody will read [begin, end).
  void Forget(int64_t begin, int64_t end);

 private:
  std::vector<bool> cleared_;
  int64_t count_ = 0;
};

}  // namespace tilewright::vta
