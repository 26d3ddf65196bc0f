// The other algorithms of packed_dense (packed_dense.cc), for the driver: kernels for any number of
// rows have one for few and one for many. Constants.
#pragma once

#include <string_view>

namespace tilewright::op {

// Multiplies integers instead of floats: for few rows.
inline constexpr std::string_view kFixedPoint = "fixed_point";
// Unpacks weights to floats first, then multiplies: for many rows. Exists where the number of
// rows is open.
inline constexpr std::string_view kUnpackFirst = "unpack_first";
// The block that unpacks them there.
inline constexpr std::string_view kUnpackedWeights = "unpacked_weights";

}  // namespace tilewright::op
