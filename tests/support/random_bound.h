// Random programs and random schedules for groups of threads. Same seed, same result.
#pragma once

#include <cstdint>

#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::tests {

// A small program: a product of matrices, a dense layer, softmax, a stencil or a random one.
ir::Function GpuProgram(uint64_t seed);

// One of the kinds of nests that spaces have sketches for, or a random one.
ir::Function SpaceProgram(uint64_t seed);

// Applies random steps; those that are refused are left out. Most bind loops.
schedule::Schedule RandomBoundSchedule(const ir::Function& program, uint64_t seed);

}  // namespace tilewright::tests
