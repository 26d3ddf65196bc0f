// Places in a DRAM that a device and its driver share: an offset for each allocation, first fit.
// Keeps no bytes itself. Objects belong to one thread.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tilewright::vta {

class DramAllocator {
 public:
  // Of `capacity` bytes. REQUIRES: alignment is a power of two that divides the capacity.
  DramAllocator(int64_t capacity, int64_t alignment);

  // Returns the offset of `bytes`, a multiple of the alignment. INVALID_ARGUMENT
  // vta.driver.bytes for less than a byte; RESOURCE_EXHAUSTED vta.driver.memory if no free range is
  // long enough.
  absl::StatusOr<int64_t> Allocate(int64_t bytes);
  // REQUIRES: an offset that Allocate returned and Free did not get yet.
  void Free(int64_t offset);

  // The first byte that no allocation has ever reached.
  int64_t high_water() const { return high_water_; }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  const int64_t alignment_;
  std::map<int64_t, int64_t> free_;  // offset → bytes; neighbours are joined
  std::map<int64_t, int64_t> used_;  // the same, rounded up
  int64_t high_water_ = 0, used_bytes_ = 0;
};

}  // namespace tilewright::vta
