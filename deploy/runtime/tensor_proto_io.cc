// ONNX TensorProto in protobuf's wire format, read and written by hand: the runtime links no
// protobuf, and one message with a dozen fields needs none.
#include <cstring>
#include <optional>

#include "deploy/module/manifest.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/support/packed_integers.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

using module::DType;
using support::DataLoss;

// Field numbers of TensorProto.
enum Field : uint64_t {
  kDims = 1,
  kDataType = 2,
  kSegment = 3,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14,
};

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

absl::Status Broken(std::string_view detail) {
  return DataLoss("runtime.tensor_pb.broken", detail);
}

// A cursor over wire-format bytes; every read says whether it succeeded.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  bool Varint(uint64_t* out) {
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      *out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  bool Take(uint64_t size, std::string_view* out) {
    if (size > rest_.size()) return false;
    *out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

 private:
  std::string_view rest_;
};

// One field as it stands on the wire: a varint's value, or the bytes.
struct RawField {
  uint64_t number = 0;
  uint64_t type = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

bool NextField(Wire* wire, RawField* field) {
  uint64_t tag = 0;
  if (!wire->Varint(&tag)) return false;
  field->number = tag >> 3;
  field->type = tag & 7;
  if (field->number == 0) return false;
  uint64_t size = 0;
  switch (field->type) {
    case kVarint:
      return wire->Varint(&field->value);
    case kFixed64:
      return wire->Take(8, &field->bytes);
    case kBytes:
      return wire->Varint(&size) && wire->Take(size, &field->bytes);
    case kFixed32:
      return wire->Take(4, &field->bytes);
    default:
      return false;  // groups: not in TensorProto
  }
}

// The message's parts before they are understood. Repeated numbers may be packed or not.
struct Parts {
  std::vector<int64_t> dims;
  std::optional<uint64_t> data_type;
  std::string name;
  std::optional<std::string_view> raw;
  std::string fixed32;  // float_data, concatenated
  std::string fixed64;  // double_data
  std::vector<uint64_t> int32_data, int64_data, uint64_data;
};

bool AppendVarints(const RawField& field, std::vector<uint64_t>* out) {
  if (field.type == kVarint) {
    out->push_back(field.value);
    return true;
  }
  if (field.type != kBytes) return false;
  Wire packed(field.bytes);
  while (!packed.done()) {
    uint64_t value = 0;
    if (!packed.Varint(&value)) return false;
    out->push_back(value);
  }
  return true;
}

bool AppendFixed(const RawField& field, WireType single, size_t size, std::string* out) {
  if ((field.type != single && field.type != kBytes) || field.bytes.size() % size != 0) {
    return false;
  }
  out->append(field.bytes);
  return true;
}

bool ReadDims(const RawField& field, std::vector<int64_t>* dims) {
  std::vector<uint64_t> values;
  if (!AppendVarints(field, &values) || dims->size() + values.size() > kMaxFileRank) return false;
  for (const uint64_t value : values) dims->push_back(static_cast<int64_t>(value));
  return true;
}

absl::Status ReadField(const RawField& field, Parts* parts) {
  bool ok = true;
  switch (field.number) {
    case kDims:
      ok = ReadDims(field, &parts->dims);
      break;
    case kDataType:
      ok = field.type == kVarint;
      parts->data_type = field.value;
      break;
    case kName:
      ok = field.type == kBytes;
      parts->name = std::string(field.bytes);
      break;
    case kRawData:
      ok = field.type == kBytes;
      parts->raw = field.bytes;
      break;
    case kFloatData:
      ok = AppendFixed(field, kFixed32, 4, &parts->fixed32);
      break;
    case kDoubleData:
      ok = AppendFixed(field, kFixed64, 8, &parts->fixed64);
      break;
    case kInt32Data:
      ok = AppendVarints(field, &parts->int32_data);
      break;
    case kInt64Data:
      ok = AppendVarints(field, &parts->int64_data);
      break;
    case kUint64Data:
      ok = AppendVarints(field, &parts->uint64_data);
      break;
    case kDataLocation:
      if (field.type == kVarint && field.value == 0) break;
      [[fallthrough]];
    case kExternalData:
    case kStringData:
    case kSegment:
      return support::Unimplemented("runtime.tensor_pb.kind",
                                    "strings, segments and external data are not supported");
    default:
      break;  // doc_string and what later versions add do not change the values
  }
  return ok ? absl::OkStatus() : Broken("field " + std::to_string(field.number));
}

// Each value's low bytes: the narrow integer types travel in wider fields.
std::string Narrow(const std::vector<uint64_t>& values, size_t size) {
  std::string out;
  out.reserve(values.size() * size);
  for (const uint64_t value : values) {
    char bytes[8];
    std::memcpy(bytes, &value, 8);
    out.append(bytes, size);
  }
  return out;
}

std::string DataOf(const Parts& parts, DType dtype) {
  if (parts.raw.has_value()) return std::string(*parts.raw);
  const auto size = static_cast<size_t>(module::DTypeBytes(dtype));
  switch (dtype) {
    case DType::kFloat32:
      return parts.fixed32;
    case DType::kFloat64:
      return parts.fixed64;
    case DType::kInt64:
      return Narrow(parts.int64_data, size);
    case DType::kUInt32:
    case DType::kUInt64:
      return Narrow(parts.uint64_data, size);
    default:
      return Narrow(parts.int32_data, size);
  }
}

// Integers of less than a byte, as a byte each.
absl::StatusOr<HostTensor> Unpacked(const Parts& parts, const support::PackedInteger& type) {
  const DType dtype = type.with_sign ? DType::kInt8 : DType::kUInt8;
  HostTensor tensor{parts.name, dtype, parts.dims, ""};
  const std::optional<int64_t> count = TensorBytes(dtype, parts.dims);
  const std::string data = DataOf(parts, DType::kUInt8);
  if (!count || static_cast<int64_t>(data.size()) != support::PackedBytes(*count, type.bits)) {
    return Broken("the shape does not match " + std::to_string(data.size()) + " bytes of data");
  }
  tensor.data = support::UnpackIntegers(data, *count, type);
  return tensor;
}

void PutVarint(std::string* out, uint64_t value) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>((value & 0x7F) | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void PutTag(std::string* out, Field field, WireType type) { PutVarint(out, (field << 3) | type); }

void PutBytes(std::string* out, Field field, std::string_view bytes) {
  PutTag(out, field, kBytes);
  PutVarint(out, bytes.size());
  out->append(bytes);
}

}  // namespace

absl::StatusOr<HostTensor> ParseTensorProto(std::string_view bytes) {
  Parts parts;
  Wire wire(bytes);
  while (!wire.done()) {
    RawField field;
    if (!NextField(&wire, &field)) return Broken("the bytes are not in protobuf's wire format");
    TW_TRY(ReadField(field, &parts));
  }
  const uint64_t code = parts.data_type.value_or(0);
  const support::PackedInteger* packed =
      code < 1024 ? support::FindPackedInteger(static_cast<int64_t>(code)) : nullptr;
  if (packed != nullptr) return Unpacked(parts, *packed);
  const std::optional<DType> dtype =
      code < 1024 ? module::DTypeFromOnnx(static_cast<int64_t>(code)) : std::nullopt;
  if (!dtype.has_value()) {
    if (code == 0 || code > 1024) return Broken("expected a data_type, found none that is known");
    return support::Unimplemented("runtime.tensor_pb.dtype", "data_type " + std::to_string(code));
  }
  HostTensor tensor;
  tensor.name = parts.name;
  tensor.dtype = *dtype;
  tensor.shape = parts.dims;
  const std::optional<int64_t> size = TensorBytes(tensor.dtype, tensor.shape);
  if (!size.has_value()) return Broken("impossible dims");
  tensor.data = DataOf(parts, *dtype);
  if (static_cast<int64_t>(tensor.data.size()) != *size) {
    return DataLoss("runtime.tensor_pb.size", "expected " + std::to_string(*size) +
                                                  " bytes of data, found " +
                                                  std::to_string(tensor.data.size()));
  }
  return tensor;
}

std::string SerializeTensorProto(const HostTensor& tensor) {
  std::string out;
  for (const int64_t dim : tensor.shape) {
    PutTag(&out, kDims, kVarint);
    PutVarint(&out, static_cast<uint64_t>(dim));
  }
  PutTag(&out, kDataType, kVarint);
  PutVarint(&out, static_cast<uint64_t>(module::DTypeToOnnx(tensor.dtype)));
  if (!tensor.name.empty()) PutBytes(&out, kName, tensor.name);
  PutBytes(&out, kRawData, tensor.data);
  return out;
}

}  // namespace tilewright::runtime
