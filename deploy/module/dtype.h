// Element types of tensors as modules and the runtime know them: names, sizes, and the codes that
// ONNX uses for them. Plain values; thread-safe.
#ifndef DEPLOY_MODULE_DTYPE_H_
#define DEPLOY_MODULE_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewright::module {

enum class DType {
  kBool,  // one byte, 0 or 1
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

// Returns "float32", "int8", "bool" and so on: the spelling in manifests and messages.
std::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

// Returns the size of one element in bytes.
int64_t DTypeBytes(DType dtype);

bool IsFloat(DType dtype);
bool IsSignedInt(DType dtype);

// TensorProto.DataType of ONNX; nullopt for types that modules do not have (strings, complex).
int DTypeToOnnx(DType dtype);
std::optional<DType> DTypeFromOnnx(int64_t code);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_DTYPE_H_
