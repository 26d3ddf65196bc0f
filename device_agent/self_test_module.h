// The worker's kernel for self_test.h, built into its binary.
#pragma once

#include <string>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// The bytes of a module for this machine.
absl::StatusOr<std::string> SelfTestModule();

}  // namespace tilewright::device_agent
