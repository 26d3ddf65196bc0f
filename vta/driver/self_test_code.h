// The program with which agents test a device (whole_self_test of
// deploy/runtime/device_plugin.h). Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "vta/isa/config.h"

namespace tilewright::vta {

inline constexpr std::string_view kSelfTestProgram = "self_test";

// The bytes of a code object with the one program. REQUIRES: a configuration that can exist.
std::string SelfTestCode(const Config& config);

}  // namespace tilewright::vta
