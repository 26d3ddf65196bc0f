// Asks a device behind a plug-in for its attributes, in a child: drivers start threads, and a
// worker that forks must have none.
#pragma once

#include <string>

#include "deploy/support/status.h"
#include "device_agent/device_facts.h"
#include "device_agent/measured_session.h"
#include "device_agent/sandbox.h"

namespace tilewright::device_agent {

// Returns kind, name, driver, memory in bytes, and what else the driver reports. `sandbox` is that
// of a measurement, in a scratch folder of its own below `scratch_parent`; `sandboxed`: with filter
// and Landlock. unavailable
// (runtime.device.*, sandbox.*, probe.child.*) with the reason if the device does not work.
absl::StatusOr<Attributes> ProbeDevice(const DeviceTarget& target, SandboxSpec sandbox,
                                       const std::string& scratch_parent, bool sandboxed);

}  // namespace tilewright::device_agent
