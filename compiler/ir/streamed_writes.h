// The function attribute of buffers that are written past the caches: made by the schedule step
// stream_writes, read by code generation. Pure functions; thread-safe.
#pragma once

#include <string_view>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

void SetStreamedWrites(Function* f, std::string_view buffer);
bool HasStreamedWrites(const Function& f, std::string_view buffer);

}  // namespace tilewright::ir
