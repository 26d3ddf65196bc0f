// How long `tilewright tune` without a server waits for the devices of its own machine. A device
// that fails or is noisy is probed again by the tracker, after a minute, then after five. Nothing
// else can repair it: a job whose devices stay unwell ends, it does not wait for ever.
//
// Pure: times are the caller's monotonic nanoseconds. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/fleet_admin.pb.h"

namespace tilewright::cli {

class DevicePatience {
 public:
  static constexpr int64_t kRegisterNs = int64_t{20} * 1'000'000'000;
  // Without a healthy device, until tune gives up: two probes.
  static constexpr int64_t kUnwellNs = int64_t{600} * 1'000'000'000;
  // A device is on trial after a probe. So long it must stay healthy, or the time above continues.
  static constexpr int64_t kWellNs = int64_t{60} * 1'000'000'000;

  explicit DevicePatience(int64_t now_ns) : started_ns_(now_ns) {}

  // Takes the devices as they are now. Returns unavailable: cli.embedded.device if none registered
  // within kRegisterNs, cli.embedded.unwell if none was healthy for kUnwellNs.
  absl::Status Look(const std::vector<v1::Device>& devices, int64_t now_ns);
  // True once a device registered.
  bool registered() const { return registered_; }
  // Returns a line for people if the devices have become unwell since the last call; else empty.
  std::string TakeNotice();

 private:
  int64_t started_ns_;
  bool registered_ = false;
  int64_t last_look_ns_ = 0;
  int64_t unwell_ns_ = 0;      // in all, since they were well for kWellNs
  int64_t well_since_ns_ = 0;  // 0: they are not
  bool unwell_ = false;
  std::string notice_;
};

}  // namespace tilewright::cli
