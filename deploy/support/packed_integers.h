// ONNX's integers of less than a byte: files have several in each byte, the product holds them as a
// byte each. Plain functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright::support {

struct PackedInteger {
  int onnx;  // TensorProto.DataType
  std::string_view name;
  int bits;
  bool with_sign;
  int64_t low() const { return with_sign ? -(int64_t{1} << (bits - 1)) : 0; }
  int64_t high() const { return (int64_t{1} << (with_sign ? bits - 1 : bits)) - 1; }
};
// Null for types that are none of them.
const PackedInteger* FindPackedInteger(int64_t onnx_type);
// Bytes that `count` elements of so many bits need.
int64_t PackedBytes(int64_t count, int bits);
// The elements as signed or unsigned bytes; the first is in the lowest bits. REQUIRES: `packed`
// has PackedBytes(count, type.bits) bytes.
std::string UnpackIntegers(std::string_view packed, int64_t count, const PackedInteger& type);

}  // namespace tilewright::support
