// The largest number that was given to any range that overlaps a range: a segment tree. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tilewright::vta {

// Over the places [0, size), all 0 at first. Each call takes O(log size).
class RangeMax {
 public:
  explicit RangeMax(size_t size) {
    while (leaves_ < size) leaves_ *= 2;
  }

  // Every place of [begin, end) becomes at least `value`.
  void Raise(size_t begin, size_t end, int64_t value) {
    if (begin >= end) return;
    if (whole_.empty()) whole_.resize(2 * leaves_), most_.resize(2 * leaves_);
    ForParts(begin, end, [&](size_t node) {
      whole_[node] = std::max(whole_[node], value);
      most_[node] = std::max(most_[node], value);
    });
    Lift(begin + leaves_, value);
    Lift(end - 1 + leaves_, value);
  }

  // The largest of [begin, end); 0 if that is empty.
  int64_t Max(size_t begin, size_t end) const {
    if (begin >= end || whole_.empty()) return 0;
    int64_t most = 0;
    ForParts(begin, end, [&](size_t node) { most = std::max(most, most_[node]); });
    for (size_t leaf : {begin + leaves_, end - 1 + leaves_}) {
      for (size_t node = leaf / 2; node > 0; node /= 2) most = std::max(most, whole_[node]);
    }
    return most;
  }

 private:
  // The nodes that make up a range.
  template <typename Visit>
  void ForParts(size_t begin, size_t end, Visit visit) const {
    for (size_t l = begin + leaves_, r = end + leaves_; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) visit(l++);
      if (r % 2 == 1) visit(--r);
    }
  }
  void Lift(size_t node, int64_t value) {
    for (node /= 2; node > 0; node /= 2) most_[node] = std::max(most_[node], value);
  }

  size_t leaves_ = 1;
  std::vector<int64_t> whole_;  // what all places below a node were raised to as a whole
  std::vector<int64_t> most_;   // the largest of any place below a node
};

}  // namespace tilewright::vta
