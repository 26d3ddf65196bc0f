// The devices that an agent offers, as its flags name them: one `--device` entry each,
//
//   KIND[,name=NAME][,cores=0-3+8][,threads=N][,pool=CLASS][,memory=BYTES][,label.KEY=VALUE]
//       [,profile=strict|driver][,nodes=PATH+PATH][,index=N][,bridge=COMMAND]
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

struct DeviceSpec {
  std::string kind = "cpu";
  std::string name;                           // within the agent; default: the kind
  std::vector<int> cores;                     // sorted; empty = any
  int threads = 0;                            // that a module may use; 0 = all of its cores
  std::string pool;                           // device class; empty = by kind and processor
  int64_t memory_limit_bytes = 0;             // of one measurement; 0 = the agent's default
  std::map<std::string, std::string> labels;  // in addition to the agent's
  // Profile of the sandbox: "strict" or "driver" (sandbox.h). Default: driver for devices with a
  // driver.
  std::string profile = "strict";
  std::vector<std::string> nodes;  // of profile driver: below /dev; empty = those of GPUs
  int index = 0;                   // among the devices of this kind that the machine has
  std::string bridge;  // shell command that runs a worker elsewhere; empty = a child of the agent
};

// invalid_argument (agent.device.invalid, agent.device.unknown).
absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text);

// Parses all entries of an agent; without any there is one device "cpu". invalid_argument:
// agent.device.twice for two of one name; agent.device.overlap for two on this machine that may run
// on the same core and would disturb each other's measurements.
absl::StatusOr<std::vector<DeviceSpec>> ParseDevices(const std::vector<std::string>& texts);

// Returns invalid_argument (agent.name.invalid) unless the name may be part of a resource name.
absl::Status CheckName(std::string_view name);

}  // namespace tilewright::device_agent
