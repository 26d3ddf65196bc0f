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
// Returns the keys of a block where the attribute says about `tile`: a fixed number of them is cut
// into blocks of about that length that compute the fewest others with them.
int64_t KeysOfBlock(int64_t tile, const Dim& keys, bool query_lanes);

}  // namespace tilewright::op
