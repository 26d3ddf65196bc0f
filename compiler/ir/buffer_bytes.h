// What a buffer takes in memory where its shape is known. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// Nothing where a dimension is not a constant, is negative, or the product leaves 64 bits.
std::optional<int64_t> ConstantBytes(const BufferNode& buffer);

}  // namespace tilewright::ir
