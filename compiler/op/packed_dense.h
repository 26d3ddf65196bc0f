// The two algorithms of packed_dense (packed_dense.cc), for the driver: kernels for any number of
// rows have both. Constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright::op {

// Unpacks all weights to floats first, then multiplies: for many rows. Exists where the number of
// rows is open.
inline constexpr std::string_view kUnpackFirst = "unpack_first";
// Up to so many rows, unpacking in registers is faster. Measured with 4 bits, AVX-512, one thread:
// 12 rows take the same time both ways, 24 rows 1.5 times as long in registers.
inline constexpr int64_t kRowsInRegisters = 12;

}  // namespace tilewright::op
