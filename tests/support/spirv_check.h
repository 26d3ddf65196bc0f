// Code objects of deploy/runtime/spirv_abi.h by the tools of SPIR-V's makers (libSPIRV-Tools):
// their rules of Vulkan 1.1, and their text. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tilewright::tests {

// Returns `test.spirv.invalid` with the tools' message and the module's text if a module breaks a
// rule.
absl::Status ValidateSpirv(const std::string& list);

// The modules as text.
std::string DisassembledSpirv(const std::string& list);

}  // namespace tilewright::tests
