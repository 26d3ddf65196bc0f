// The worker's kernel for self_test.h, built into its binary.
#pragma once

#include <string>
#include <string_view>

#include "deploy/runtime/device_plugin.h"
#include "deploy/support/status.h"

namespace tilewright::device_agent {

// Returns the bytes of a module for this machine's processor.
absl::StatusOr<std::string> SelfTestModule();
// Returns those of a module for devices behind that plug-in, with the plug-in's own kernel.
// unimplemented (agent.self_test.kind) if it brings none.
absl::StatusOr<std::string> SelfTestModule(const TwDevicePlugin& plugin);

}  // namespace tilewright::device_agent
