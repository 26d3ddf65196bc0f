// Instruction streams of the accelerator for tests: an Isa that must exist, and instructions with
// the fields that a test cares about. Pure functions.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "vta/isa/isa.h"

namespace tilewright::tests {

// REQUIRES: the configuration can exist (the test fails).
vta::Isa IsaOf(const vta::Config& config);
// REQUIRES: every instruction can be encoded (the test fails).
std::vector<vta::Word128> Encoded(const vta::Isa& isa, const std::vector<vta::Instruction>& stream);

// A load or store of one row of `count` elements.
vta::Instruction Move(vta::Opcode op, vta::Memory memory, int64_t sram, int64_t dram,
                      int64_t count);
// A gemm or alu that runs the micro-ops [0, uops) once.
vta::Instruction Once(vta::Opcode op, int64_t uops = 1);

}  // namespace tilewright::tests
