// What the profile `driver` of the sandbox allows beyond `strict`: what the driver of a device and
// its compiler need, and where. Tables and the filter's rules; sandbox.h applies them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "device_agent/landlock.h"
#include "device_agent/sandbox.h"
#include "device_agent/seccomp_filter.h"

namespace tilewright::device_agent {

// Device nodes that drivers of GPUs are known to use, as far as this machine has them.
std::vector<std::string> KnownDeviceNodes();

// Read the system's folders, run its programs (drivers call a linker), write the scratch folder,
// use the device's nodes.
std::vector<FileRule> DriverFiles(const DriverAccess& access);

// Variables that keep a driver's caches and temporary files in the scratch folder.
std::vector<std::pair<const char*, std::string>> DriverEnvironment(const std::string& scratch);

// Groups that own the nodes: a process that drops root keeps these.
std::vector<unsigned> NodeGroups(const std::vector<std::string>& nodes);

// Adds to a filter that kills: while the driver loads and compiles.
void AllowDriverCalls(SeccompFilter* filter);
// Adds to a filter that allows: once everything is loaded and compiled.
void SealDriverCalls(SeccompFilter* filter);

}  // namespace tilewright::device_agent
