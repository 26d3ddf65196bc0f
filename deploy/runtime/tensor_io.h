// Tensors in files: ONNX TensorProto (`.pb`) and NumPy (`.npy`, versions 1 and 2, C order, little
// endian). Both readers accept hostile bytes: they check sizes before they allocate, and everything
// that they do not understand is an error. Values are owned; thread-safe.
#ifndef DEPLOY_RUNTIME_TENSOR_IO_H_
#define DEPLOY_RUNTIME_TENSOR_IO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/dtype.h"

namespace tilewright::runtime {

// Files with more dimensions are refused.
inline constexpr size_t kMaxFileRank = 32;

struct HostTensor {
  std::string name;  // TensorProto only; may be empty
  module::DType dtype = module::DType::kFloat32;
  std::vector<int64_t> shape;
  std::string data;  // raw little-endian row-major bytes: product of shape × element size
};

// Returns the bytes of a compact tensor; nullopt if an extent is negative or the size exceeds
// int64.
std::optional<int64_t> TensorBytes(module::DType dtype, const std::vector<int64_t>& shape);

// DATA_LOSS `runtime.tensor_pb.<reason>` if the bytes are not a TensorProto or lack data;
// UNIMPLEMENTED for strings, complex numbers, external data and segments.
absl::StatusOr<HostTensor> ParseTensorProto(std::string_view bytes);
// Writes raw_data, and fields in the order of their numbers: the same tensor gives the same bytes.
std::string SerializeTensorProto(const HostTensor& tensor);

// DATA_LOSS `runtime.npy.<reason>`; UNIMPLEMENTED for Fortran order, big endian and other dtypes.
absl::StatusOr<HostTensor> ParseNpy(std::string_view bytes);
// NumPy has no bfloat16: such a tensor is written as float32, which holds every value exactly.
std::string SerializeNpy(const HostTensor& tensor);
// The way back: a float32 tensor with each value rounded to bfloat16, ties to even.
HostTensor RoundToBFloat16(const HostTensor& tensor);

// The end of the file name decides the format: `.npy`, otherwise TensorProto.
absl::StatusOr<HostTensor> ReadTensorFile(const std::string& path);
absl::Status WriteTensorFile(const std::string& path, const HostTensor& tensor);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_TENSOR_IO_H_
