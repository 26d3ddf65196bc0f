#include "deploy/runtime/dl_tensor.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using support::InvalidArgument;

bool IsCompact(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// Calls visit(address, bytes) for the tensor's memory in row-major order: once for a compact
// tensor, otherwise for each element.
template <typename Visit>
void VisitMemory(const DLTensor& tensor, Visit visit) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.shape[i];
  if (count == 0) return;
  char* base = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const int64_t element = tensor.dtype.bits / 8;
  if (IsCompact(tensor)) return visit(base, static_cast<size_t>(count * element));
  const auto rank = static_cast<size_t>(tensor.ndim);
  std::vector<int64_t> index(rank, 0);
  while (true) {
    int64_t offset = 0;
    for (size_t i = 0; i < rank; ++i) offset += index[i] * tensor.strides[i];
    visit(base + offset * element, static_cast<size_t>(element));
    size_t i = rank;
    while (i > 0 && ++index[i - 1] == tensor.shape[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace

DLDataType ToDlType(module::DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * module::DTypeBytes(dtype));
  if (dtype == module::DType::kBool) return {kDLBool, bits, 1};
  if (dtype == module::DType::kBFloat16) return {kDLBfloat, bits, 1};
  if (module::IsFloat(dtype)) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(module::IsSignedInt(dtype) ? kDLInt : kDLUInt), bits, 1};
}

absl::Status CheckDlTensor(const DLTensor& given, const module::Tensor& wanted,
                           std::string_view role) {
  const auto name = [&] { return std::string(role) + " '" + wanted.name + "': "; };
  if (given.device.device_type != kDLCPU) {
    return InvalidArgument("runtime.c_api.device", name() + "expected a tensor in CPU memory");
  }
  const DLDataType type = ToDlType(wanted.dtype);
  // Older producers call booleans 8-bit unsigned integers.
  const bool old_bool = type.code == kDLBool && given.dtype.code == kDLUInt;
  if ((given.dtype.code != type.code && !old_bool) || given.dtype.bits != type.bits ||
      given.dtype.lanes != 1) {
    return InvalidArgument("runtime.c_api.dtype",
                           name() + "expected " + std::string(module::DTypeName(wanted.dtype)));
  }
  const std::span<const int64_t> shape = ShapeOf(given);
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  if (given.data == nullptr && !empty) {
    return InvalidArgument("runtime.c_api.null", name() + "data is NULL");
  }
  return absl::OkStatus();
}

absl::Status CheckDlShape(const DLTensor& given, std::span<const int64_t> shape,
                          std::string_view what) {
  const std::span<const int64_t> found = ShapeOf(given);
  if (std::ranges::equal(found, shape)) return absl::OkStatus();
  return InvalidArgument(
      "runtime.c_api.shape",
      std::string(what) + ": expected " + ExtentsText(shape) + ", found " + ExtentsText(found));
}

std::span<const int64_t> ShapeOf(const DLTensor& tensor) {
  return {tensor.shape, static_cast<size_t>(std::max(tensor.ndim, 0))};
}

std::string ExtentsText(std::span<const int64_t> shape) {
  return shape.empty() ? "scalar" : support::Join(shape, "x");
}

void CopyFromDlTensor(const DLTensor& from, void* to) {
  VisitMemory(from, [out = static_cast<char*>(to)](const char* at, size_t bytes) mutable {
    std::memcpy(out, at, bytes);
    out += bytes;
  });
}

void CopyToDlTensor(const void* from, const DLTensor& to) {
  VisitMemory(to, [in = static_cast<const char*>(from)](char* at, size_t bytes) mutable {
    std::memcpy(at, in, bytes);
    in += bytes;
  });
}

}  // namespace tilewright::runtime
