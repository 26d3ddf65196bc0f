// Whether types and address spaces of a Metal text agree: Apple's compiler is not here, but clang
// compiles C++ for OpenCL, whose address spaces have the same rules. Without generic ones, so that
// a pointer that does not say where it points to is refused. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tilewright::tests {

// INVALID_ARGUMENT `test.metal_types` with the compiler's messages; UNAVAILABLE
// `test.metal_types.no_clang`.
absl::Status CheckMetalTypes(const std::string& text);

}  // namespace tilewright::tests
