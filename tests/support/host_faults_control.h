// What a test tells the preloaded library of one daemon: a file that both map. Links nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace tilewright::tests {

// Names the file; of the daemon's environment.
inline constexpr char kHostFaultsVariable[] = "TILEWRIGHT_TEST_HOST_FAULTS";

struct HostFaultsControl {
  std::atomic<int64_t> clock_offset_ns{0};    // added to the wall clock
  std::atomic<uint64_t> read_only_device{0};  // st_dev; 0 = none
};

}  // namespace tilewright::tests
