// CUDA C as a dialect of kernel_cpp.h.
#include "compiler/targets/cuda/cuda_codegen.h"

#include <utility>

#include "compiler/codegen/c_artifact.h"
#include "compiler/codegen/kernel_cpp.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/cuda/cuda_bulk_copies.h"
#include "compiler/targets/cuda/cuda_fragments.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "deploy/support/status.h"

namespace tilewright::cuda {
namespace {

constexpr std::string_view kPrologue = R"(#define restrict __restrict__
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#endif
#define TW_LANES 32
#define TW_MASK(lanes) (lanes == 32 ? 0xffffffffu : (1u << lanes) - 1)
#define TW_SHUFFLE(lanes, x, from) __shfl_sync(TW_MASK(lanes), x, from)
#define TW_SHUFFLE_DOWN(lanes, x, by) __shfl_down_sync(TW_MASK(lanes), x, by)
#define TW_BITS_OF(f) __float_as_uint(f)
#define TW_FLOAT_OF(bits) __uint_as_float(bits)
#ifdef __CUDACC_RTC__
#define TW_DP4A(a_type, b_type, sum, a, b) \
  asm("dp4a." #a_type "." #b_type " %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b))
#endif
)";

// 16-bit floats without a header of the toolkit. The instructions are in texts that NVRTC compiles;
// what else compiles them has functions of its own. With a rounding in its name, an instruction
// rounds each result: the compiler makes no multiply-adds of it. Quotients are those of f32.
constexpr std::string_view kHalf = R"(#ifdef __CUDACC_RTC__
static inline float tw_half_to_float(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
static inline unsigned short tw_float_to_half(float f) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#define TW_HALF_INSTRUCTION(name) \
  static inline unsigned short tw_half_##name(unsigned short a, unsigned short b) { \
    unsigned short result; \
    asm(#name ".rn.f16 %0, %1, %2;" : "=h"(result) : "h"(a), "h"(b)); \
    return result; \
  }
TW_HALF_INSTRUCTION(add)
TW_HALF_INSTRUCTION(sub)
TW_HALF_INSTRUCTION(mul)
#endif
struct half {
  unsigned short bits;
  half() = default;
  half(float f) : bits(tw_float_to_half(f)) {}
  operator float() const { return tw_half_to_float(bits); }
};
#define TW_HALF_OPERATOR(op, name) \
  static inline half operator op(half a, half b) { \
    half result; \
    result.bits = tw_half_##name(a.bits, b.bits); \
    return result; \
  }
TW_HALF_OPERATOR(+, add)
TW_HALF_OPERATOR(-, sub)
TW_HALF_OPERATOR(*, mul)
static inline half operator/(half a, half b) { return (float)a / (float)b; }
)";

constexpr std::string_view kAsync = R"(#ifdef __CUDACC_RTC__
#define TW_COPY_ASYNC(to, from, copies) \
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" \
               :: "r"((tw_u32)__cvta_generic_to_shared(to)), \
                  "l"(__cvta_generic_to_global(from)), "n"(sizeof(*to)), \
                  "r"(copies ? (int)sizeof(*to) : 0) : "memory")
#define TW_COMMIT_ASYNC() asm volatile("cp.async.commit_group;" ::: "memory")
#define TW_WAIT_ASYNC(groups) asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory")
#endif
template <class T> static inline void tw_copy_async(T* to, const T* from, int copies) {
  TW_COPY_ASYNC(to, from, copies);
}
)";

// The plug-in finds the length of the array (deploy/runtime/device_cuda.cc).
constexpr std::string_view kDynamicShared = R"(#ifdef __CUDACC_RTC__
#define TW_DYNAMIC_SHARED(type, name, count, offset) \
  type* const name = (type*)(tw_dynamic_shared + offset)
#endif
)";

constexpr codegen::CDialect CudaDialect() {
  codegen::CDialect cuda = codegen::kKernelCpp;
  cuda.name = "cuda";
  cuda.suffix = ".cu";
  cuda.prologue = kPrologue;
  cuda.half = {.prologue = kHalf};
  cuda.fragments = kFragmentWords;
  cuda.async = {.prologue = kAsync,
                .copy = "tw_copy_async",
                .commit = "TW_COMMIT_ASYNC();",
                .wait = "TW_WAIT_ASYNC(@);"};
  cuda.bulk = kBulkCopyWords;
  cuda.dynamic_shared = {.prologue = kDynamicShared,
                         .above = 48 << 10,
                         .size = "extern \"C\" __device__ tw_u8 @_dynamic_shared_kib[#];",
                         .memory = "extern __shared__ __align__(1024) tw_u8 tw_dynamic_shared[];",
                         .array = "TW_DYNAMIC_SHARED"};
  return cuda;
}
constexpr codegen::CDialect kCuda = CudaDialect();

}  // namespace

absl::StatusOr<std::string> EmitCuda(const std::vector<ir::Function>& kernels, bool sub_groups) {
  TW_ASSIGN(codegen::CText code, codegen::EmitC(kernels, kCuda, sub_groups));
  return std::move(code.text);
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  return codegen::GenerateCompiled(request, kCuda, CompileText);
}

std::string ToolchainName() { return NvrtcName(); }

constinit const targets::Backend kBackend = {
    .pipeline = transform::GpuPipeline,
    .generate = Generate,
    .toolchain = ToolchainName,
    .alignment = 512,  // as the driver aligns allocations at least to half of it
    .on_device = true,
};

}  // namespace tilewright::cuda
