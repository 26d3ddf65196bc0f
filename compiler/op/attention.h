// The two algorithms of attention (attention.cc), for the driver and for passes: kernels for any
// number of tokens have both. Constants and pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "compiler/op/op.h"

namespace tilewright::op {

inline constexpr std::string_view kAttentionOp = "attention";
// The axes of its operands and its result: batch, heads, tokens, elements of a head.
inline constexpr std::string_view kAttentionAxes = "BHSD";
// Lanes along the queries: for many tokens. Exists where the number of tokens is open.
inline constexpr std::string_view kQueryLanes = "query_lanes";

// Returns the dimension of the queries that counts tokens.
size_t TokenAxis(const Attrs& attrs);

}  // namespace tilewright::op
