// How the threads of a group share memory in a kernel (host_device.h): what its barriers must
// order, and how many threads there are. Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>

#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// Returns the global buffers through which a thread may get what another thread of its group wrote:
// both written and read by a kernel with barriers.
std::set<const ir::BufferNode*> ReadBack(const ir::Function& kernel);

// Returns whether the barriers of a kernel must order global memory, too: it reads there what it
// wrote, or a barrier may follow a store.
bool OrdersGlobalMemory(const ir::Function& kernel);

// Returns whether the statement is a loop that threads meet in.
bool IsLoopWithBarriers(const ir::Stmt& s);

// Returns the threads of a group along x y z; nullopt if an axis has no constant extent.
std::optional<std::array<int64_t, 3>> GroupOf(const ir::Function& kernel);

}  // namespace tilewright::codegen
