/* The part of the OpenCL 1.2 API that device_opencl.cc calls, so that building it needs no OpenCL
 * headers and running it no library at link time. Names, values and signatures are those of the
 * Khronos specification; only types are opaque here. */
#ifndef DEPLOY_RUNTIME_OPENCL_ABI_H_
#define DEPLOY_RUNTIME_OPENCL_ABI_H_

#include <stddef.h>
#include <stdint.h>

namespace tilewright::opencl {

using Int = int32_t;
using Uint = uint32_t;
using Bitfield = uint64_t;
using Handle = void*;  // platform, device, context, queue, memory, program, kernel, event

constexpr Int kSuccess = 0, kDeviceNotAvailable = -2, kMemObjectAllocationFailure = -4,
              kOutOfResources = -5, kOutOfHostMemory = -6, kInvalidKernelName = -46,
              kInvalidWorkGroupSize = -54;
constexpr Bitfield kAllDevices = 0xFFFFFFFF, kProfiling = 1 << 1, kReadWrite = 1 << 0;
constexpr Uint kDeviceMaxWorkGroupSize = 0x1004, kDeviceAddressAlign = 0x1019,
               kDeviceGlobalMemSize = 0x101F, kDeviceLocalMemSize = 0x1023,
               kDeviceTimerResolution = 0x1025, kDeviceName = 0x102B, kDriverVersion = 0x102D,
               kDeviceVersion = 0x102F, kDeviceExtensions = 0x1030, kDevicePlatform = 0x1031,
               kPlatformName = 0x0902, kBuildLog = 0x1183, kProgramBinarySizes = 0x1165,
               kProgramBinaries = 0x1166, kProfilingEnd = 0x1283, kKernelNumArgs = 0x1191;
constexpr Uint kDeviceMaxComputeUnits = 0x1002, kDeviceMaxAllocSize = 0x1010;

// X(function, result, arguments)
#define TW_OPENCL_FUNCTIONS(X)                                                               \
  X(clGetPlatformIDs, Int, (Uint, Handle*, Uint*))                                           \
  X(clGetPlatformInfo, Int, (Handle, Uint, size_t, void*, size_t*))                          \
  X(clGetDeviceIDs, Int, (Handle, Bitfield, Uint, Handle*, Uint*))                           \
  X(clGetDeviceInfo, Int, (Handle, Uint, size_t, void*, size_t*))                            \
  X(clCreateContext, Handle, (const intptr_t*, Uint, const Handle*, void*, void*, Int*))     \
  X(clReleaseContext, Int, (Handle))                                                         \
  X(clCreateCommandQueue, Handle, (Handle, Handle, Bitfield, Int*))                          \
  X(clReleaseCommandQueue, Int, (Handle))                                                    \
  X(clCreateBuffer, Handle, (Handle, Bitfield, size_t, void*, Int*))                         \
  X(clCreateSubBuffer, Handle, (Handle, Bitfield, Uint, const void*, Int*))                  \
  X(clReleaseMemObject, Int, (Handle))                                                       \
  X(clEnqueueWriteBuffer, Int,                                                               \
    (Handle, Handle, Uint, size_t, size_t, const void*, Uint, const Handle*, Handle*))       \
  X(clEnqueueReadBuffer, Int,                                                                \
    (Handle, Handle, Uint, size_t, size_t, void*, Uint, const Handle*, Handle*))             \
  X(clEnqueueCopyBuffer, Int,                                                                \
    (Handle, Handle, Handle, size_t, size_t, size_t, Uint, const Handle*, Handle*))          \
  X(clCreateProgramWithSource, Handle, (Handle, Uint, const char**, const size_t*, Int*))    \
  X(clCreateProgramWithBinary, Handle,                                                       \
    (Handle, Uint, const Handle*, const size_t*, const unsigned char**, Int*, Int*))         \
  X(clGetProgramInfo, Int, (Handle, Uint, size_t, void*, size_t*))                           \
  X(clBuildProgram, Int, (Handle, Uint, const Handle*, const char*, void*, void*))           \
  X(clGetProgramBuildInfo, Int, (Handle, Handle, Uint, size_t, void*, size_t*))              \
  X(clReleaseProgram, Int, (Handle))                                                         \
  X(clCreateKernel, Handle, (Handle, const char*, Int*))                                     \
  X(clGetKernelInfo, Int, (Handle, Uint, size_t, void*, size_t*))                            \
  X(clReleaseKernel, Int, (Handle))                                                          \
  X(clSetKernelArg, Int, (Handle, Uint, size_t, const void*))                                \
  X(clEnqueueNDRangeKernel, Int,                                                             \
    (Handle, Handle, Uint, const size_t*, const size_t*, const size_t*, Uint, const Handle*, \
     Handle*))                                                                               \
  X(clEnqueueMarkerWithWaitList, Int, (Handle, Uint, const Handle*, Handle*))                \
  X(clGetEventProfilingInfo, Int, (Handle, Uint, size_t, void*, size_t*))                    \
  X(clWaitForEvents, Int, (Uint, const Handle*))                                             \
  X(clReleaseEvent, Int, (Handle))                                                           \
  X(clFinish, Int, (Handle))

// The library's functions; all null where there is no library.
struct Library {
  bool ok = false;
#define X(name, result, args) result(*name) args = nullptr;
  TW_OPENCL_FUNCTIONS(X)
#undef X
};

}  // namespace tilewright::opencl

#endif  // DEPLOY_RUNTIME_OPENCL_ABI_H_
