// What a device is: the attributes that targets are matched against, its class, and a hash of those
// that matter for timing (two devices with one fingerprint may share measurements). Pure, except
// for reading the machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "deploy/runtime/cpu_info.h"
#include "deploy/support/status.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::device_agent {

struct HostFacts {
  std::string kernel;  // release, for people
  int64_t memory_bytes = 0;
};
HostFacts ReadHostFacts();

// The report of a device of kind "cpu": attributes kind, arch, cpu, cpu_accepts, cores, caches,
// memory, kernel, features, peak_gflops; key "cpu-znver4". Name and labels are the caller's.
v1::DeviceReport CpuDevice(const runtime::CpuInfo& cpu, const HostFacts& host, double peak_gflops);

// SHA-256 over the attributes that matter for timing, in the order of their names: not memory,
// kernel and the measured peak, which differ between equal machines or from start to start.
std::string Fingerprint(const v1::DeviceReport& device);

// invalid_argument (agent.device.unknown) for kinds that this build cannot measure.
absl::Status CheckDeviceKind(std::string_view kind);

}  // namespace tilewright::device_agent
