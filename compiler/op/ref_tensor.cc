// Reference tensors: raw bytes ⇄ values.
#include <bit>
#include <cmath>
#include <cstring>

#include "compiler/ir/numeric.h"
#include "compiler/op/empty.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

template <typename T>
double ReadAs(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

template <typename T>
void WriteAs(double value, char* at) {
  const T stored = static_cast<T>(value);
  std::memcpy(at, &stored, sizeof(T));
}

double ReadElement(const char* at, ir::DType type) {
  switch (type.code) {
    case ir::TypeCode::kBool:
      return *at != 0;
    case ir::TypeCode::kInt:
      if (type.bits == 8) return ReadAs<int8_t>(at);
      if (type.bits == 16) return ReadAs<int16_t>(at);
      return type.bits == 32 ? ReadAs<int32_t>(at) : ReadAs<int64_t>(at);
    case ir::TypeCode::kUInt:
      if (type.bits == 8) return ReadAs<uint8_t>(at);
      if (type.bits == 16) return ReadAs<uint16_t>(at);
      return type.bits == 32 ? ReadAs<uint32_t>(at) : ReadAs<uint64_t>(at);
    case ir::TypeCode::kFloat: {
      if (type.bits == 32) return ReadAs<float>(at);
      if (type.bits == 64) return ReadAs<double>(at);
      uint16_t bits;
      std::memcpy(&bits, at, sizeof(bits));
      return ir::HalfToFloat(bits);
    }
    case ir::TypeCode::kBFloat: {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof(bits));
      return ir::BfloatToFloat(bits);
    }
  }
  return 0;
}

// REQUIRES: `value` was rounded to `type`, so no conversion below is out of range.
void WriteElement(double value, ir::DType type, char* at) {
  switch (type.code) {
    case ir::TypeCode::kBool:
      *at = value != 0;
      return;
    case ir::TypeCode::kInt: {
      const int64_t stored = ir::CastFloatToInt(value, type);
      std::memcpy(at, &stored, type.bytes());
      return;
    }
    case ir::TypeCode::kUInt: {
      const int64_t stored = ir::CastFloatToInt(value, type);
      std::memcpy(at, &stored, type.bytes());
      return;
    }
    case ir::TypeCode::kFloat:
      if (type.bits == 32) return WriteAs<float>(value, at);
      if (type.bits == 64) return WriteAs<double>(value, at);
      {
        const uint16_t bits = ir::FloatToHalf(value);
        std::memcpy(at, &bits, sizeof(bits));
      }
      return;
    case ir::TypeCode::kBFloat: {
      const uint16_t bits = ir::FloatToBfloat(value);
      std::memcpy(at, &bits, sizeof(bits));
      return;
    }
  }
}

}  // namespace

bool IsExact(double integer) { return std::fabs(integer) < 9007199254740992.0; }

std::vector<int64_t> IntegersOf(const RefTensor& tensor) {
  if (!tensor.wide.empty()) return tensor.wide;
  std::vector<int64_t> values;
  values.reserve(tensor.values.size());
  for (double v : tensor.values) values.push_back(ir::CastFloatToInt(v, tensor.type.dtype));
  return values;
}

RefTensor FromIntegers(const TensorType& type, const std::vector<int64_t>& values) {
  RefTensor tensor{type, {}};
  tensor.values.reserve(values.size());
  bool wide = false;
  for (const int64_t value : values) {
    const int64_t v = ir::WrapInt(value, type.dtype);
    const bool pattern = type.dtype == ir::kU64;
    tensor.values.push_back(pattern ? static_cast<double>(static_cast<uint64_t>(v))
                                    : static_cast<double>(v));
    wide = wide || !IsExact(tensor.values.back());
  }
  if (wide) tensor.wide = values;  // only 64-bit types get here, and they do not wrap
  return tensor;
}

absl::StatusOr<RefTensor> FromBytes(const TensorType& type, std::string_view bytes) {
  TW_TRY(CheckShape(type));
  if (static_cast<int64_t>(bytes.size()) != type.bytes()) {
    return support::InvalidArgument(
        "op.tensor.size",
        StrCat("expected ", type.bytes(), " bytes for ", ToText(type), ", found ", bytes.size()));
  }
  if (type.dtype == ir::kI64 || type.dtype == ir::kU64) {
    std::vector<int64_t> values(type.elements());
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return FromIntegers(type, values);
  }
  RefTensor tensor{type, std::vector<double>(type.elements())};
  const int step = type.dtype.bytes();
  const char* at = bytes.data();
  for (double& value : tensor.values) {
    value = ReadElement(at, type.dtype);
    at += step;
  }
  return tensor;
}

std::string ToBytes(const RefTensor& tensor) {
  std::string bytes(tensor.type.bytes(), '\0');
  if (!tensor.wide.empty()) {
    std::memcpy(bytes.data(), tensor.wide.data(), bytes.size());
    return bytes;
  }
  const int step = tensor.type.dtype.bytes();
  char* at = bytes.data();
  for (double value : tensor.values) {
    WriteElement(value, tensor.type.dtype, at);
    at += step;
  }
  return bytes;
}

double RoundToType(double value, ir::DType dtype) {
  if (dtype.is_float()) return ir::RoundFloat(value, dtype);
  if (dtype.is_bool()) return value != 0;
  if (std::isnan(value)) return 0;
  const int64_t stored = ir::CastFloatToInt(value, dtype);
  if (dtype.code == ir::TypeCode::kUInt) return static_cast<double>(static_cast<uint64_t>(stored));
  return static_cast<double>(stored);
}

}  // namespace tilewright::op
