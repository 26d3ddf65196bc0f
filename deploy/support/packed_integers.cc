#include "deploy/support/packed_integers.h"

namespace tilewright::support {

const PackedInteger* FindPackedInteger(int64_t onnx_type) {
  static constexpr PackedInteger kRows[] = {{21, "uint4", 4, false},
                                            {22, "int4", 4, true},
                                            {25, "uint2", 2, false},
                                            {26, "int2", 2, true}};
  for (const PackedInteger& row : kRows) {
    if (row.onnx == onnx_type) return &row;
  }
  return nullptr;
}

int64_t PackedBytes(int64_t count, int bits) {
  const int64_t fields = 8 / bits;
  return count / fields + (count % fields == 0 ? 0 : 1);
}

std::string UnpackIntegers(std::string_view packed, int64_t count, const PackedInteger& type) {
  const int64_t fields = 8 / type.bits;
  std::string bytes;
  bytes.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int all = static_cast<uint8_t>(packed[static_cast<size_t>(i / fields)]);
    int64_t value = all >> (i % fields * type.bits) & ((1 << type.bits) - 1);
    if (value > type.high()) value -= int64_t{1} << type.bits;
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

}  // namespace tilewright::support
