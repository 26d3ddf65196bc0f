/* The part of DLPack's C structures that tensors are exchanged in: the published layout, so that
 * tensors of NumPy, PyTorch and others pass without conversion. Declared here, not included from a
 * package, because the runtime depends on nothing; where a program includes DLPack's own header
 * first, that one is used. Plain C, no ownership of its own: who fills a DLTensor owns the memory
 * it points to. */
#ifndef DEPLOY_RUNTIME_DLPACK_ABI_H_
#define DEPLOY_RUNTIME_DLPACK_ABI_H_

#ifndef DLPACK_VERSION

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLOpenCL = 4,
  kDLVulkan = 7,
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLBfloat = 4U,
  kDLBool = 6U,
} DLDataTypeCode;

typedef struct {
  uint8_t code;   /* DLDataTypeCode */
  uint8_t bits;   /* of one lane */
  uint16_t lanes; /* 1 for scalars */
} DLDataType;

typedef struct {
  void* data; /* start of the allocation; the first element is byte_offset further */
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: compact and row-major */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DLPACK_VERSION */

#endif /* DEPLOY_RUNTIME_DLPACK_ABI_H_ */
