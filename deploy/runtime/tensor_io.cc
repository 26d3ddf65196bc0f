#include "deploy/runtime/tensor_io.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "deploy/module/manifest.h"
#include "deploy/runtime/half_float.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using module::DType;
using support::DataLoss;

constexpr uint64_t kMaxTensorFile = uint64_t{1} << 36;
constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kNpyAlignment = 64;

constexpr std::array<std::pair<DType, const char*>, 12> kNpyTypes = {{
    {DType::kBool, "|b1"},
    {DType::kInt8, "|i1"},
    {DType::kUInt8, "|u1"},
    {DType::kInt16, "<i2"},
    {DType::kInt32, "<i4"},
    {DType::kInt64, "<i8"},
    {DType::kUInt16, "<u2"},
    {DType::kUInt32, "<u4"},
    {DType::kUInt64, "<u8"},
    {DType::kFloat16, "<f2"},
    {DType::kFloat32, "<f4"},
    {DType::kFloat64, "<f8"},
}};

absl::Status BadHeader(std::string_view detail) { return DataLoss("runtime.npy.header", detail); }

// The header is a Python dictionary literal with the keys 'descr', 'fortran_order' and 'shape'.
class NpyHeader {
 public:
  explicit NpyHeader(std::string_view text) : rest_(text) {}

  absl::Status Parse() {
    if (!Eat('{')) return BadHeader("expected a dictionary");
    while (!Eat('}')) {
      std::string key;
      if (!Text(&key) || !Eat(':') || !Value(key)) {
        return BadHeader("cannot read the entry '" + key.substr(0, 64) + "'");
      }
      if (!Eat(',') && !Peek('}')) return BadHeader("expected ',' or '}'");
    }
    Skip();
    if (!rest_.empty() || seen_ != 7) return BadHeader("expected descr, fortran_order and shape");
    return absl::OkStatus();
  }

  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;

 private:
  void Skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }
  bool Peek(char c) {
    Skip();
    return !rest_.empty() && rest_.front() == c;
  }
  bool Eat(char c) {
    if (!Peek(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool Word(std::string_view word) {
    Skip();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool Text(std::string* out) {
    Skip();
    const char quote = Peek('"') ? '"' : '\'';
    if (!Eat(quote)) return false;
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) return false;
    *out = std::string(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool Shape() {
    if (!Eat('(')) return false;
    while (!Eat(')')) {
      Skip();
      const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
      const auto value = support::ParseInt64(rest_.substr(0, digits));
      if (!value.has_value() || shape.size() == kMaxFileRank) return false;
      rest_.remove_prefix(digits);
      shape.push_back(*value);
      if (!Eat(',') && !Peek(')')) return false;
    }
    return true;
  }
  bool Once(int bit) {
    const bool first = (seen_ & bit) == 0;
    seen_ |= bit;
    return first;
  }
  bool Value(const std::string& key) {
    if (key == "descr") return Once(1) && Text(&descr);
    if (key == "shape") return Once(2) && Shape();
    if (key != "fortran_order" || !Once(4)) return false;
    fortran_order = Word("True");
    return fortran_order || Word("False");
  }

  std::string_view rest_;
  int seen_ = 0;
};

absl::StatusOr<DType> NpyType(std::string_view descr) {
  for (const auto& [dtype, name] : kNpyTypes) {
    if (descr == name) return dtype;
    // One-byte types have no order; '=' and '<' are the same on the machines we run on.
    if (!descr.empty() && descr.substr(1) == std::string_view(name).substr(1) &&
        (descr[0] == '=' || module::DTypeBytes(dtype) == 1)) {
      return dtype;
    }
  }
  return support::Unimplemented(
      "runtime.npy.dtype",
      "expected a little-endian number type, found " + support::Quote(descr, 32));
}

// Each element of `tensor` as From, converted to To.
template <typename From, typename To, typename Convert>
HostTensor ConvertElements(const HostTensor& tensor, DType dtype, Convert convert) {
  const size_t count = tensor.data.size() / sizeof(From);
  HostTensor out{tensor.name, dtype, tensor.shape, std::string(count * sizeof(To), '\0')};
  for (size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, tensor.data.data() + i * sizeof(From), sizeof(From));
    const To to = convert(from);
    std::memcpy(out.data.data() + i * sizeof(To), &to, sizeof(To));
  }
  return out;
}

HostTensor WidenBFloat16(const HostTensor& tensor) {
  // A bfloat16 is the upper half of a float's bits.
  return ConvertElements<uint16_t, uint32_t>(tensor, DType::kFloat32,
                                             [](uint16_t bits) { return uint32_t{bits} << 16; });
}

}  // namespace

std::optional<int64_t> TensorBytes(DType dtype, const std::vector<int64_t>& shape) {
  std::vector<module::Dim> dims;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    dims.emplace_back(extent);
  }
  const std::optional<int64_t> count = module::NumElements(dims);
  int64_t bytes = 0;
  if (!count.has_value() || __builtin_mul_overflow(*count, module::DTypeBytes(dtype), &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

absl::StatusOr<HostTensor> ParseNpy(std::string_view bytes) {
  if (bytes.size() < 10 || bytes.substr(0, kNpyMagic.size()) != kNpyMagic) {
    return DataLoss("runtime.npy.magic", "expected a NumPy file, found something else");
  }
  const auto byte_at = [bytes](size_t i) { return size_t{static_cast<uint8_t>(bytes[i])}; };
  const size_t version = byte_at(6);
  if (version < 1 || version > 2 || (version == 2 && bytes.size() < 12)) {
    return BadHeader("expected version 1 or 2");
  }
  size_t start = 10;
  size_t length = byte_at(8) | byte_at(9) << 8;
  if (version == 2) {
    start = 12;
    length |= byte_at(10) << 16 | byte_at(11) << 24;
  }
  if (length > bytes.size() - start) return BadHeader("the file ends inside the header");
  NpyHeader header(bytes.substr(start, length));
  TW_TRY(header.Parse());
  HostTensor tensor;
  TW_ASSIGN(tensor.dtype, NpyType(header.descr));
  if (header.fortran_order && header.shape.size() > 1) {
    return support::Unimplemented("runtime.npy.fortran_order", "expected C order");
  }
  tensor.shape = header.shape;
  const std::optional<int64_t> size = TensorBytes(tensor.dtype, tensor.shape);
  const std::string_view data = bytes.substr(start + length);
  if (!size.has_value() || static_cast<int64_t>(data.size()) != *size) {
    return DataLoss("runtime.npy.size",
                    "the shape does not match " + std::to_string(data.size()) + " bytes of data");
  }
  tensor.data = std::string(data);
  return tensor;
}

std::string SerializeNpy(const HostTensor& tensor) {
  if (tensor.dtype == DType::kBFloat16) return SerializeNpy(WidenBFloat16(tensor));
  const auto row = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                [&](const auto& entry) { return entry.first == tensor.dtype; });
  TW_CHECK(row != kNpyTypes.end()) << module::DTypeName(tensor.dtype);
  std::string shape;
  for (const int64_t extent : tensor.shape) shape += std::to_string(extent) + ", ";
  if (tensor.shape.size() > 1) shape.resize(shape.size() - 2);
  std::string header = "{'descr': '" + std::string(row->second) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kPrefix = 10;
  while ((kPrefix + header.size() + 1) % kNpyAlignment != 0) header += ' ';
  header += '\n';
  std::string out(kNpyMagic);
  out.append("\x01\x00", 2);
  out.push_back(static_cast<char>(header.size() & 0xFF));
  out.push_back(static_cast<char>(header.size() >> 8));
  return out + header + tensor.data;
}

HostTensor RoundToBFloat16(const HostTensor& tensor) {
  TW_CHECK(tensor.dtype == DType::kFloat32) << module::DTypeName(tensor.dtype);
  return ConvertElements<float, uint16_t>(tensor, DType::kBFloat16, DoubleToBFloat16);
}

absl::StatusOr<HostTensor> ReadTensorFile(const std::string& path) {
  TW_ASSIGN(const std::string bytes, support::ReadFile(path, kMaxTensorFile));
  absl::StatusOr<HostTensor> tensor =
      path.ends_with(".npy") ? ParseNpy(bytes) : ParseTensorProto(bytes);
  if (!tensor.ok()) return support::WithContext(tensor.status(), path);
  return tensor;
}

absl::Status WriteTensorFile(const std::string& path, const HostTensor& tensor) {
  return support::WriteFileAtomic(
      path, path.ends_with(".npy") ? SerializeNpy(tensor) : SerializeTensorProto(tensor));
}

}  // namespace tilewright::runtime
