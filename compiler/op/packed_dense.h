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
// The same of products of integers, of all layers of a decoder: unpacked first, 10 rows take 1.16
// of their time, 12 rows 1.05, 16 rows 0.95.
inline constexpr int64_t kRowsInFixedPoint = 12;

}  // namespace tilewright::op
