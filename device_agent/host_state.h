// Load and temperature of the host, for the telemetry of results. Reads the kernel's files; a value
// without a file is 0. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "tilewright/v1/common.pb.h"

namespace tilewright::device_agent {

// Values over an interval.
class HostState {
 public:
  HostState() { Read(); }
  // Starts a new interval.
  void Begin() { Read(); }
  // Fills in steal over the interval, and load, clock and temperature now.
  void Finish(v1::Telemetry* telemetry);

 private:
  void Read();

  int64_t total_ticks_ = 0;
  int64_t steal_ticks_ = 0;
};

// The random identity of the kernel's boot.
std::string ReadBootId();
// A new random identity.
std::string NewUuid();

}  // namespace tilewright::device_agent
