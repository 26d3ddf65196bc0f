// Faults of the host under one running daemon that a test cannot commit for real: its wall clock
// jumps, its disk becomes read-only while files are open for writing. A preloaded library
// (host_faults_preload.cc) makes the daemon see them. One owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tests/support/host_faults_control.h"

namespace tilewright::tests {

class HostFaults {
 public:
  // unavailable (test.host_faults) where nothing can be preloaded: a sanitizer wants to be first.
  static absl::StatusOr<std::unique_ptr<HostFaults>> Create();
  ~HostFaults();
  HostFaults(const HostFaults&) = delete;
  HostFaults& operator=(const HostFaults&) = delete;

  // For the daemon's environment (ChildOptions.env), at each start.
  std::vector<std::pair<std::string, std::string>> env() const;

  // From now on, in milliseconds against the true time.
  void SetClockOffset(int64_t ms) { control_->clock_offset_ns.store(ms * 1'000'000); }
  // The whole file system of the folder, which must exist; on others all is as it was.
  void SetReadOnly(const std::string& folder);
  void SetWritable() { control_->read_only_device.store(0); }

 private:
  explicit HostFaults(support::TempDir dir) : dir_(std::move(dir)) {}
  support::TempDir dir_;
  std::string file_;
  HostFaultsControl* control_ = nullptr;
};

}  // namespace tilewright::tests
