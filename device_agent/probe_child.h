// Tries something in a child that may be limited, hang or die of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// What `work` returned in a forked child in a process group of its own, which is killed after
// `timeout_ms`, with whatever it left behind. Its errors keep their text and become unavailable;
// also unavailable (probe.child.*) when it dies or takes too long. REQUIRES: a process without
// other threads.
absl::StatusOr<std::string> InChild(const std::function<absl::StatusOr<std::string>()>& work,
                                    int64_t timeout_ms);

}  // namespace tilewright::device_agent
