// Runs a function in a child, where it may be restricted, hang or die.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// Runs `work` in a forked child with a process group of its own, and returns its result. Kills the
// whole group at the end, or after `timeout_ms`. Errors of `work` keep their text and become
// unavailable; a death or timeout is unavailable, too (probe.child.*). REQUIRES: a process without
// other threads.
absl::StatusOr<std::string> InChild(const std::function<absl::StatusOr<std::string>()>& work,
                                    int64_t timeout_ms);

}  // namespace tilewright::device_agent
