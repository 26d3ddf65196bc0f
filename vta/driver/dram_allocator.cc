#include "vta/driver/dram_allocator.h"

#include <algorithm>
#include <iterator>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {

using support::StrCat;

DramAllocator::DramAllocator(int64_t capacity, int64_t alignment)
    : alignment_(alignment), free_({{0, capacity}}) {
  TW_CHECK(alignment > 0 && (alignment & (alignment - 1)) == 0 && capacity % alignment == 0)
      << capacity << " " << alignment;
}

absl::StatusOr<int64_t> DramAllocator::Allocate(int64_t bytes) {
  if (bytes < 1) {
    return support::InvalidArgument("vta.driver.bytes",
                                    StrCat("expected at least 1 byte, found ", bytes));
  }
  const auto fits = [bytes](const auto& range) { return range.second >= bytes; };
  const auto range = std::find_if(free_.begin(), free_.end(), fits);
  if (range == free_.end()) {
    int64_t longest = 0;
    for (const auto& [offset, length] : free_) longest = std::max(longest, length);
    return support::ResourceExhausted(
        "vta.driver.memory",
        StrCat("expected at most ", longest, " bytes, the longest free range, found ", bytes));
  }
  const auto [offset, length] = *range;
  // The length is a multiple of the alignment, so this is no more than it.
  const int64_t taken = (bytes + alignment_ - 1) / alignment_ * alignment_;
  free_.erase(range);
  if (length > taken) free_[offset + taken] = length - taken;
  used_[offset] = taken;
  used_bytes_ += taken;
  high_water_ = std::max(high_water_, offset + taken);
  return offset;
}

void DramAllocator::Free(int64_t offset) {
  const auto used = used_.find(offset);
  TW_CHECK(used != used_.end()) << "nothing is allocated at " << offset;
  int64_t begin = offset, end = offset + used->second;
  used_bytes_ -= used->second;
  used_.erase(used);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  free_[begin] = end - begin;
}

}  // namespace tilewright::vta
