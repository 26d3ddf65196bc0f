// What a test tells the preloaded library of one daemon: a file that both map. Links nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace tilewright::tests {

// Names the file; of the daemon's environment.
inline constexpr char kHostFaultsVariable[] = "TILEWRIGHT_TEST_HOST_FAULTS";
// If it is set, the daemon's children see the same.
inline constexpr char kHostFaultsChildrenVariable[] = "TILEWRIGHT_TEST_HOST_FAULTS_CHILDREN";

// ../support/hurt_disk.py knows this layout, too.
struct HostFaultsControl {
  std::atomic<int64_t> clock_offset_ns{0};    // added to the wall clock
  std::atomic<uint64_t> read_only_device{0};  // st_dev; 0 = none
  std::atomic<uint64_t> slow_device{0};       // the same
  std::atomic<int64_t> slow_sync_ns{0};       // each sync there takes so much longer
  std::atomic<int64_t> slow_write_ns{0};      // and each write
};

}  // namespace tilewright::tests
