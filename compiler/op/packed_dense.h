// The other algorithms of packed_dense (packed_dense.cc), for the driver: kernels for any number of
// rows have one for few and one for many. Constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright::op {

// Multiplies integers instead of floats: for few rows.
inline constexpr std::string_view kFixedPoint = "fixed_point";
// Unpacks weights to floats first, then multiplies: for many rows. Exists where the number of
// rows is open.
inline constexpr std::string_view kUnpackFirst = "unpack_first";
// The block that unpacks them there.
inline constexpr std::string_view kUnpackedWeights = "unpacked_weights";
// Up to so many rows, unpacking in registers is faster. Measured with 4 bits, AVX-512, one thread:
// unpacked first, 7 rows take 0.92 of the time in registers, 12 rows 0.74.
inline constexpr int64_t kRowsInRegisters = 6;

}  // namespace tilewright::op
