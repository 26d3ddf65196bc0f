// What the loops of one thread of a kernel cost a driver that counts them (spirv_abi.h), and how
// far the innermost ones are to be unrolled so that it does not stop. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "compiler/ir/ir.h"

namespace tilewright::vulkan {

// The cost of a kernel's loops if the bodies of the innermost ones are written `unroll` times. A
// loop costs as much as its extent may be.
uint32_t LoopCost(const ir::Stmt& body, int64_t unroll);

// The least unrolling, a power of two up to 16, with which a kernel costs no more than drivers
// take; 1 if none does.
int64_t UnrollingOf(const ir::Function& kernel);

// Returns whether a loop has no loop inside, and iterations that are known.
bool IsInnermost(const ir::Stmt& loop);

}  // namespace tilewright::vulkan
