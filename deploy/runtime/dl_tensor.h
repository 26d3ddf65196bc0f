// DLPack tensors against the tensors of a module: which element type is which, the check, and
// copies between a DLTensor, compact or strided, and compact row-major memory. Pure functions.
#ifndef DEPLOY_RUNTIME_DL_TENSOR_H_
#define DEPLOY_RUNTIME_DL_TENSOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/dlpack_abi.h"

namespace tilewright::runtime {

DLDataType ToDlType(module::DType dtype);

// Whether `given` has the type of `wanted` and is in CPU memory. `role` is "input" or "output", for
// the message. INVALID_ARGUMENT `runtime.c_api.<device|dtype|null>`.
absl::Status CheckDlTensor(const DLTensor& given, const module::Tensor& wanted,
                           std::string_view role);
// Whether it has the shape. `what` names it in the message. INVALID_ARGUMENT `runtime.c_api.shape`.
absl::Status CheckDlShape(const DLTensor& given, std::span<const int64_t> shape,
                          std::string_view what);

std::span<const int64_t> ShapeOf(const DLTensor& tensor);
std::string ExtentsText(std::span<const int64_t> shape);  // "2x3"; "scalar"

// Copy all elements. REQUIRES: the DLTensor passed both checks; the memory holds as many bytes.
void CopyFromDlTensor(const DLTensor& from, void* to);
void CopyToDlTensor(const void* from, const DLTensor& to);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DL_TENSOR_H_
