#include "deploy/module/dtype.h"

#include <array>

#include "deploy/support/status.h"

namespace tilewright::module {
namespace {

enum class Class { kBool, kSigned, kUnsigned, kFloat };

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  Class type_class;
  int onnx;  // TensorProto.DataType
};

constexpr std::array<Row, 13> kRows = {{
    {DType::kBool, "bool", 1, Class::kBool, 9},
    {DType::kInt8, "int8", 1, Class::kSigned, 3},
    {DType::kInt16, "int16", 2, Class::kSigned, 5},
    {DType::kInt32, "int32", 4, Class::kSigned, 6},
    {DType::kInt64, "int64", 8, Class::kSigned, 7},
    {DType::kUInt8, "uint8", 1, Class::kUnsigned, 2},
    {DType::kUInt16, "uint16", 2, Class::kUnsigned, 4},
    {DType::kUInt32, "uint32", 4, Class::kUnsigned, 12},
    {DType::kUInt64, "uint64", 8, Class::kUnsigned, 13},
    {DType::kFloat16, "float16", 2, Class::kFloat, 10},
    {DType::kBFloat16, "bfloat16", 2, Class::kFloat, 16},
    {DType::kFloat32, "float32", 4, Class::kFloat, 1},
    {DType::kFloat64, "float64", 8, Class::kFloat, 11},
}};

const Row& RowOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  TW_CHECK(index < kRows.size()) << "dtype " << index;
  return kRows[index];
}

}  // namespace

std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

int64_t DTypeBytes(DType dtype) { return RowOf(dtype).bytes; }

bool IsFloat(DType dtype) { return RowOf(dtype).type_class == Class::kFloat; }
bool IsSignedInt(DType dtype) { return RowOf(dtype).type_class == Class::kSigned; }

int DTypeToOnnx(DType dtype) { return RowOf(dtype).onnx; }

std::optional<DType> DTypeFromOnnx(int64_t code) {
  for (const Row& row : kRows) {
    if (row.onnx == code) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace tilewright::module
