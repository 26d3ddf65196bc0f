// TensorProto → typed bytes. Sizes are checked before anything is allocated.
#include <cstring>

#include "compiler/graph/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

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
  if (type == ir::kI8) return Pack<int8_t>(tensor.int32_data());
  if (type == ir::kU8) return Pack<uint8_t>(tensor.int32_data());
  return Pack<uint8_t>(tensor.int32_data());  // bool
}

}  // namespace

absl::Status Bad(std::string_view reason, std::string_view detail) {
  return support::InvalidArgument(StrCat("graph.onnx.", reason), detail);
}

absl::StatusOr<ir::DType> ElementType(int64_t onnx_type) {
  switch (onnx_type) {
    case pb::TensorProto::FLOAT:
      return ir::kF32;
    case pb::TensorProto::DOUBLE:
      return ir::kF64;
    case pb::TensorProto::INT64:
      return ir::kI64;
    case pb::TensorProto::INT32:
      return ir::kI32;
    case pb::TensorProto::INT8:
      return ir::kI8;
    case pb::TensorProto::UINT8:
      return ir::kU8;
    case pb::TensorProto::BOOL:
      return ir::kBool;
    default:
      return Bad("element_type",
                 StrCat("expected float, double, int8, uint8, int32, int64 or bool, found ONNX "
                        "element type ",
                        onnx_type));
  }
}

absl::StatusOr<HostConstant> ReadTensor(const pb::TensorProto& tensor, int64_t max_bytes) {
  const std::string what = StrCat("tensor ", support::Quote(tensor.name()));
  if (tensor.data_location() == pb::TensorProto::EXTERNAL || tensor.external_data_size() > 0) {
    return Bad("external_data", StrCat(what,
                                       ": expected the data inside the model file, found "
                                       "external data"));
  }
  if (tensor.has_segment()) return Bad("segment", StrCat(what, ": expected no segments"));
  absl::StatusOr<ir::DType> dtype = ElementType(tensor.data_type());
  if (!dtype.ok()) return support::WithContext(dtype.status(), what);
  HostConstant result;
  result.type.dtype = *dtype;
  int64_t bytes = dtype->bytes();
  for (int64_t dim : tensor.dims()) {
    if (dim < 0) return Bad("dimension", StrCat(what, ": expected dimensions >= 0, found ", dim));
    if (dim == 0) result.empty = true;
    result.type.shape.push_back(dim);
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > max_bytes) {
      return Bad("too_large", StrCat(what, ": expected at most ", max_bytes,
                                     " bytes, found a shape "
                                     "of more: [",
                                     support::Join(tensor.dims(), ","), "]"));
    }
  }
  if (!result.empty) {
    absl::Status status = op::CheckType(result.type);
    if (!status.ok()) return support::WithContext(status, what);
  }
  result.bytes = tensor.has_raw_data() ? tensor.raw_data() : TypedData(tensor, *dtype);
  if (static_cast<int64_t>(result.bytes.size()) != bytes) {
    return Bad("tensor_data",
               StrCat(what, ": expected ", bytes, " bytes of data, found ", result.bytes.size()));
  }
  return result;
}

}  // namespace tilewright::graph::onnx
