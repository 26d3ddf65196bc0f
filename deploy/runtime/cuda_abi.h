/* The part of the CUDA driver API that device_cuda.cc calls, so that building it needs no toolkit
 * and running it no library at link time. Names, values and signatures are those of the vendor's
 * documentation; only types are opaque here. */
#ifndef DEPLOY_RUNTIME_CUDA_ABI_H_
#define DEPLOY_RUNTIME_CUDA_ABI_H_

#include <stddef.h>
#include <stdint.h>

namespace tilewright::cuda {

using Device = int;
using Pointer = unsigned long long;  // of device memory
using Handle = void*;                // context, stream, module, function, event

// Results.
constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4,
              kDeviceUnavailable = 46, kNoDevice = 100, kInvalidImage = 200, kNoBinary = 209,
              kUncorrectableEcc = 214, kNvlinkUncorrectable = 220, kInvalidPtx = 218,
              kUnsupportedPtx = 222, kInvalidSource = 300, kNotFound = 500, kIllegalAddress = 700,
              kLaunchOutOfResources = 701, kLaunchTimeout = 702, kContextIsDestroyed = 709,
              kAssert = 710, kHardwareStack = 714, kIllegalInstruction = 715,
              kMisalignedAddress = 716, kInvalidAddressSpace = 717, kInvalidPc = 718,
              kLaunchFailed = 719;
// Attributes of a device.
constexpr int kMaxThreadsPerBlock = 1, kMaxBlockX = 2, kMaxGridX = 5, kMaxSharedPerBlock = 8,
              kClockKhz = 13, kMultiprocessors = 16, kMemoryClockKhz = 36, kMemoryBusBits = 37,
              kSecondCacheBytes = 38, kMajor = 75, kMinor = 76;
// Of a function: the most threads of a group that its registers allow; the most bytes of shared
// memory that a launch may give a group.
constexpr int kFunctionMaxThreads = 0, kFunctionDynamicShared = 8;
// The queue of a handle does not wait for others.
constexpr unsigned kNonBlocking = 1;

// X(function, its symbol, arguments); all return one of the results.
#define TW_CUDA_FUNCTIONS(X)                                                                       \
  X(cuInit, "cuInit", (unsigned))                                                                  \
  X(cuDriverGetVersion, "cuDriverGetVersion", (int*))                                              \
  X(cuGetErrorName, "cuGetErrorName", (int, const char**))                                         \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int*))                                                  \
  X(cuDeviceGet, "cuDeviceGet", (Device*, int))                                                    \
  X(cuDeviceGetName, "cuDeviceGetName", (char*, int, Device))                                      \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, Device))                                    \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, Device))                             \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Handle*, Device))                       \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (Device))                           \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (Handle))                                             \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (Handle*))                                              \
  X(cuStreamCreate, "cuStreamCreate", (Handle*, unsigned))                                         \
  X(cuStreamDestroy, "cuStreamDestroy_v2", (Handle))                                               \
  X(cuStreamSynchronize, "cuStreamSynchronize", (Handle))                                          \
  X(cuMemAlloc, "cuMemAlloc_v2", (Pointer*, size_t))                                               \
  X(cuMemFree, "cuMemFree_v2", (Pointer))                                                          \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (Pointer, const void*, size_t, Handle))             \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, Pointer, size_t, Handle))                   \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (Pointer, Pointer, size_t, Handle))                 \
  X(cuModuleLoadData, "cuModuleLoadData", (Handle*, const void*))                                  \
  X(cuModuleUnload, "cuModuleUnload", (Handle))                                                    \
  X(cuModuleGetFunction, "cuModuleGetFunction", (Handle*, Handle, const char*))                    \
  X(cuModuleGetGlobal, "cuModuleGetGlobal_v2", (Pointer*, size_t*, Handle, const char*))           \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", (Handle, int, int))                                  \
  X(cuFuncGetAttribute, "cuFuncGetAttribute", (int*, int, Handle))                                 \
  X(cuLaunchKernel, "cuLaunchKernel",                                                              \
    (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, \
     void**))                                                                                      \
  X(cuEventCreate, "cuEventCreate", (Handle*, unsigned))                                           \
  X(cuEventDestroy, "cuEventDestroy_v2", (Handle))                                                 \
  X(cuEventRecord, "cuEventRecord", (Handle, Handle))                                              \
  X(cuEventSynchronize, "cuEventSynchronize", (Handle))                                            \
  X(cuEventElapsedTime, "cuEventElapsedTime", (float*, Handle, Handle))

// Absent from drivers before 12.4: the place and the size of a function's argument.
using GetParamInfo = int (*)(Handle, size_t, size_t*, size_t*);
constexpr char kGetParamInfo[] = "cuFuncGetParamInfo";

// Graphs, absent from drivers before 11.4: what a stream would do is captured, then made ready to
// be queued as one. Only calls of the capturing thread end up in it.
constexpr int kCaptureThreadLocal = 1;
#define TW_CUDA_GRAPH_FUNCTIONS(X)                                                            \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (Handle, int))                           \
  X(cuStreamEndCapture, "cuStreamEndCapture", (Handle, Handle*))                              \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (Handle*, Handle, unsigned long long)) \
  X(cuGraphLaunch, "cuGraphLaunch", (Handle, Handle))                                         \
  X(cuGraphDestroy, "cuGraphDestroy", (Handle))                                               \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", (Handle))

// Maps of tensors, absent from drivers before 12.0: of two dimensions here. Sizes and the stride of
// rows (in bytes) go from the inner dimension to the outer one, as those of a box.
constexpr int kUint16 = 1, kSwizzle128 = 3, kPromote128 = 2;
struct alignas(64) TensorMap {
  uint64_t words[16];
};
using EncodeTiled = int (*)(TensorMap*, int type, uint32_t rank, void*, const uint64_t* sizes,
                            const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                            int interleave, int swizzle, int promotion, int fill);
constexpr char kEncodeTiled[] = "cuTensorMapEncodeTiled";

struct Library {
#define X(name, symbol, args) int(*name) args = nullptr;
  TW_CUDA_FUNCTIONS(X)
#undef X
  GetParamInfo get_param_info = nullptr;
  EncodeTiled encode_tiled = nullptr;
#define X(name, symbol, args) int(*name) args = nullptr;
  TW_CUDA_GRAPH_FUNCTIONS(X)
#undef X
  bool has_graphs = false;  // all of these are there
};

}  // namespace tilewright::cuda

#endif  // DEPLOY_RUNTIME_CUDA_ABI_H_
