// The worker's kernel for self_test.h, built into its binary.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// Returns the bytes of a module for this machine's device of that kind. unimplemented
// (agent.self_test.kind) for a kind without such a kernel.
absl::StatusOr<std::string> SelfTestModule(std::string_view device_kind);

}  // namespace tilewright::device_agent
