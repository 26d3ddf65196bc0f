// The permissions of sandbox profile `driver` beyond `strict`: calls and files that the driver of a
// device and its compiler need. Tables and rules of the filter; sandbox.h applies them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device_agent/landlock.h"
#include "device_agent/sandbox.h"
#include "device_agent/seccomp_filter.h"

namespace tilewright::device_agent {

// The most that one file of a driver may hold, in its scratch folder or in memory.
inline constexpr int64_t kDriverFileBytes = int64_t{64} << 20;

// Returns the device nodes of this machine that drivers of GPUs are known to use.
std::vector<std::string> KnownDeviceNodes();

// Read the system's folders, run its programs (drivers call a linker), write the scratch folder,
// use the device's nodes.
std::vector<FileRule> DriverFiles(const DriverAccess& access);

// Variables that keep a driver's caches and temporary files in the scratch folder.
std::vector<std::pair<const char*, std::string>> DriverEnvironment(const std::string& scratch);

// Groups that own the nodes: a process that drops root keeps these.
std::vector<unsigned> NodeGroups(const std::vector<std::string>& nodes);

// Kills for calls that send signals or input to others. This is a filter of its own, since one
// that allows `ioctl` cannot also forbid some of its requests.
absl::Status DenyDriverCalls();
// Extends a filter that kills by what the driver needs to load and compile.
void AllowDriverCalls(SeccompFilter* filter);
// Extends a filter that allows by a question at each call that the worker decides (driver_gate.h).
void AskAtGate(SeccompFilter* filter);

}  // namespace tilewright::device_agent
