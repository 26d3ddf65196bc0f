// DLPack tensors against the tensors of a module: which element type is which, the check, and
// copies between a DLTensor, compact or strided, and compact row-major memory. Pure functions.
#ifndef DEPLOY_RUNTIME_DL_TENSOR_H_
#define DEPLOY_RUNTIME_DL_TENSOR_H_

#include <string_view>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/dlpack_abi.h"

namespace tilewright::runtime {

DLDataType ToDlType(module::DType dtype);

// Whether `given` has the type and the shape of `wanted` and is in CPU memory. `role` is "input"
// or "output", for the message. INVALID_ARGUMENT `runtime.c_api.<device|dtype|shape|null>`.
absl::Status CheckDlTensor(const DLTensor& given, const module::Tensor& wanted,
                           std::string_view role);

// Copy all elements. REQUIRES: the DLTensor passed CheckDlTensor; the memory holds as many bytes.
void CopyFromDlTensor(const DLTensor& from, void* to);
void CopyToDlTensor(const void* from, const DLTensor& to);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DL_TENSOR_H_
