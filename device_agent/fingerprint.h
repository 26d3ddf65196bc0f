// A device as its agent reports it: attributes, class, and a hash of the attributes that matter for
// timing (two devices with one fingerprint may share measurements). Pure.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/measure_units.h"
#include "deploy/support/status.h"
#include "device_agent/device_facts.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::device_agent {

// The report of a device with those attributes, of class "KIND-CPU" ("cpu-znver4"), with its unit
// unless that is wall_ns ("cpu-cortex-a76@virtual_cycles"). Name, labels and another class are the
// caller's.
v1::DeviceReport DeviceFrom(const Attributes& attributes);

// What the device measures in, by its attribute "unit".
const support::MeasureUnit& UnitOf(const v1::DeviceReport& device);

// SHA-256 over the attributes that matter for timing, in the order of their names: not memory,
// kernel and the measured peak, which differ between equal machines or from start to start.
std::string Fingerprint(const v1::DeviceReport& device);

// invalid_argument (agent.device.unknown) for kinds that this build cannot measure.
absl::Status CheckDeviceKind(std::string_view kind);

}  // namespace tilewright::device_agent
