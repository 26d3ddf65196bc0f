// What a device behind a plug-in is, found out in a child: drivers start threads, and a worker that
// forks must have none.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "device_agent/device_facts.h"
#include "device_agent/measured_session.h"
#include "device_agent/sandbox.h"

namespace tilewright::device_agent {

// Its attributes: kind, name, driver and what else the driver tells of it; memory in bytes.
// `nodes` as DriverAccess; `sandboxed`: with filter and Landlock, as a measurement runs.
// unavailable (runtime.device.*, sandbox.*, probe.child.*) with the reason where it does not work.
absl::StatusOr<Attributes> ProbeDevice(const DeviceTarget& target,
                                       const std::vector<std::string>& nodes, bool sandboxed);

}  // namespace tilewright::device_agent
