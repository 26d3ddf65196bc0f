// The two algorithms of attention (attention.cc), for the driver and for passes: kernels for any
// number of tokens have both. Constants and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/op/op.h"

namespace tilewright::op {

inline constexpr std::string_view kAttentionOp = "attention";
// Lanes along the queries: for many tokens. Exists where the number of tokens is open.
inline constexpr std::string_view kQueryLanes = "query_lanes";
// Up to so many tokens, lanes along the elements of a head are faster.
inline constexpr int64_t kTokensAlongHeads = 4;

// Returns the dimension of the queries that counts tokens.
size_t TokenAxis(const Attrs& attrs);
// Returns the place of a letter of `bhsd` in a layout of these letters; 4 if it has none.
size_t LayoutAxis(std::string_view layout, char letter);

}  // namespace tilewright::op
