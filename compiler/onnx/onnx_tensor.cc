// TensorProto → typed bytes. Sizes are checked before anything is allocated.
#include <climits>
#include <cstring>

#include "compiler/onnx/onnx_importer.h"
#include "compiler/op/empty.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kMaxElements = int64_t{1} << 34;

// Copies `count` repeated values as T; the element type says which field holds them.
template <typename T, typename Field>
std::string Pack(const Field& field) {
  std::string bytes(field.size() * sizeof(T), '\0');
  for (int i = 0; i < field.size(); ++i) {
    const T value = static_cast<T>(field.Get(i));
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// The typed data fields of a tensor, as raw little-endian bytes.
std::string TypedData(const pb::TensorProto& tensor, ir::DType type) {
  if (type == ir::kF32) return Pack<float>(tensor.float_data());
  if (type == ir::kF64) return Pack<double>(tensor.double_data());
  if (type == ir::kI64) return Pack<int64_t>(tensor.int64_data());
  if (type == ir::kI32) return Pack<int32_t>(tensor.int32_data());
  if (type == ir::kF16 || type == ir::kBF16) return Pack<uint16_t>(tensor.int32_data());
  if (type == ir::kU64) return Pack<uint64_t>(tensor.uint64_data());
  if (type == ir::kU32) return Pack<uint32_t>(tensor.uint64_data());
  if (type == ir::kI16) return Pack<int16_t>(tensor.int32_data());
  if (type == ir::kU16) return Pack<uint16_t>(tensor.int32_data());
  if (type == ir::kI8) return Pack<int8_t>(tensor.int32_data());
  if (type == ir::kU8) return Pack<uint8_t>(tensor.int32_data());
  return Pack<uint8_t>(tensor.int32_data());  // bool
}

}  // namespace

absl::Status Bad(std::string_view reason, std::string_view detail) {
  return support::InvalidArgument(StrCat("graph.onnx.", reason), detail);
}

std::span<const ElementTypeRow> ElementTypes() {
  static constexpr ElementTypeRow kRows[] = {
      {pb::TensorProto::FLOAT, ir::kF32},   {pb::TensorProto::DOUBLE, ir::kF64},
      {pb::TensorProto::INT8, ir::kI8},     {pb::TensorProto::UINT8, ir::kU8},
      {pb::TensorProto::INT16, ir::kI16},   {pb::TensorProto::UINT16, ir::kU16},
      {pb::TensorProto::INT32, ir::kI32},   {pb::TensorProto::INT64, ir::kI64},
      {pb::TensorProto::UINT32, ir::kU32},  {pb::TensorProto::UINT64, ir::kU64},
      {pb::TensorProto::FLOAT16, ir::kF16}, {pb::TensorProto::BFLOAT16, ir::kBF16},
      {pb::TensorProto::BOOL, ir::kBool},
  };
  return kRows;
}

std::string ElementTypeName(int64_t onnx_type) {
  if (const support::PackedInteger* packed = support::FindPackedInteger(onnx_type)) {
    return std::string(packed->name);
  }
  // Older definitions of the file format lack these.
  static constexpr std::pair<int, std::string_view> kNoNumbersHere[] = {
      {17, "float8e4m3fn"},   {18, "float8e4m3fnuz"}, {19, "float8e5m2"},
      {20, "float8e5m2fnuz"}, {23, "float4e2m1"},     {24, "float8e8m0"}};
  for (const auto& [number, name] : kNoNumbersHere) {
    if (number == onnx_type) return std::string(name);
  }
  if (onnx_type < INT_MIN || onnx_type > INT_MAX ||
      !pb::TensorProto::DataType_IsValid(static_cast<int>(onnx_type))) {
    return StrCat("type ", onnx_type);
  }
  return support::ToLower(
      pb::TensorProto::DataType_Name(static_cast<pb::TensorProto::DataType>(onnx_type)));
}

absl::StatusOr<ir::DType> ElementType(int64_t onnx_type) {
  std::vector<std::string> names;
  for (const ElementTypeRow& row : ElementTypes()) {
    if (row.onnx == onnx_type) return row.type;
    names.push_back(ElementTypeName(row.onnx));
  }
  return Bad("element_type", StrCat("expected one of the types ", support::Join(names, ", "),
                                    ", found ", ElementTypeName(onnx_type)));
}

absl::StatusOr<ir::DType> HeldType(int64_t onnx_type) {
  const support::PackedInteger* packed = support::FindPackedInteger(onnx_type);
  if (packed != nullptr) return packed->with_sign ? ir::kI8 : ir::kU8;
  return ElementType(onnx_type);
}

void Importer::MarkPacked(ValueId id, const support::PackedInteger* type) {
  if (type != nullptr) packed_[id] = type;
}

const support::PackedInteger* Importer::PackedTypeOf(ValueId id) const {
  const auto it = packed_.find(id);
  return it == packed_.end() ? nullptr : it->second;
}

bool IsExternal(const pb::TensorProto& tensor) {
  return tensor.data_location() == pb::TensorProto::EXTERNAL || tensor.external_data_size() > 0;
}

std::string ExternalFile(const pb::TensorProto& tensor) {
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") return entry.value();
  }
  return "";
}

int64_t Elements(const pb::TensorProto& tensor) {
  int64_t count = 1;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0 || (dim > 0 && count > kMaxElements / dim)) return -1;
    count *= dim;
  }
  return count;
}

absl::StatusOr<StoredType> StoredTypeOf(const pb::TensorProto& tensor, int64_t max_bytes) {
  const std::string what = StrCat("tensor ", support::Quote(tensor.name()));
  if (tensor.has_segment()) return Bad("segment", StrCat(what, ": expected no segments"));
  StoredType stored;
  stored.packed = support::FindPackedInteger(tensor.data_type());
  const absl::StatusOr<ir::DType> dtype = HeldType(tensor.data_type());
  if (!dtype.ok()) return support::WithContext(dtype.status(), what);
  stored.type.dtype = *dtype;
  int64_t bytes = dtype->bytes();
  for (int64_t dim : tensor.dims()) {
    if (dim < 0) return Bad("dimension", StrCat(what, ": expected dimensions >= 0, found ", dim));
    stored.type.shape.push_back(dim);
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > max_bytes) {
      return Bad("too_large", StrCat(what, ": expected at most ", max_bytes,
                                     " bytes, found a shape "
                                     "of more: [",
                                     support::Join(tensor.dims(), ","), "]"));
    }
  }
  const absl::Status shape = op::CheckShape(stored.type);
  if (!shape.ok()) return support::WithContext(shape, what);
  stored.bytes =
      stored.packed != nullptr ? support::PackedBytes(bytes, stored.packed->bits) : bytes;
  return stored;
}

absl::Status CheckStored(const pb::TensorProto& tensor, const StoredType& stored, size_t found) {
  if (static_cast<int64_t>(found) == stored.bytes) return absl::OkStatus();
  return Bad("tensor_data", StrCat("tensor ", support::Quote(tensor.name()), ": expected ",
                                   stored.bytes, " bytes of data, found ", found));
}

absl::StatusOr<HostConstant> ReadTensor(const pb::TensorProto& tensor, int64_t max_bytes) {
  if (IsExternal(tensor)) {
    return Bad("external_data", StrCat("tensor ", support::Quote(tensor.name()),
                                       ": expected the data inside the model file, found it in ",
                                       support::Quote(ExternalFile(tensor))));
  }
  TW_ASSIGN(StoredType stored, StoredTypeOf(tensor, max_bytes));
  HostConstant result;
  result.bytes = tensor.has_raw_data() ? tensor.raw_data()
                 : stored.packed       ? Pack<uint8_t>(tensor.int32_data())
                                       : TypedData(tensor, stored.type.dtype);
  TW_TRY(CheckStored(tensor, stored, result.bytes.size()));
  result.type = std::move(stored.type);
  if (stored.packed != nullptr) {
    result.bytes = support::UnpackIntegers(result.bytes, result.type.elements(), *stored.packed);
  }
  return result;
}

}  // namespace tilewright::graph::onnx
