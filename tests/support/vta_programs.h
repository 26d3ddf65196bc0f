// Whole programs of the accelerator for tests of its driver: small code objects with parameters.
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vta/isa/code_object.h"

namespace tilewright::tests {

// "scale": of `vectors` of `block` numbers of 32 bits (x) it makes as many bytes (y), the low 8
// bits of factor * x + 5. REQUIRES: all vectors fit into acc.
vta::Program ScaleProgram(const vta::Config& config, int64_t vectors, int64_t factor);

// What it makes of x.
std::vector<int8_t> Scaled(const std::vector<int32_t>& x, int64_t factor);

// The bytes of a code object. REQUIRES: it can be serialised (the test fails).
std::string CodeBytes(const vta::Config& config, const std::vector<vta::Program>& programs);

}  // namespace tilewright::tests
