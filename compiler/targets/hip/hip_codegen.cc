// HIP as a dialect of kernel_cpp.h: C++ with clang's builtins for amdgcn.
#include "compiler/targets/hip/hip_codegen.h"

#include <utility>

#include "compiler/codegen/c_artifact.h"
#include "compiler/codegen/c_math.h"
#include "compiler/codegen/kernel_cpp.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/hip/hip_compiler.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::hip {
namespace {

// The words that ROCm's headers would define, by builtins. Functions are those of the device. A
// group has exactly the threads that it is launched with. A barrier orders all memory of a group.
constexpr std::string_view kWords = R"(#pragma clang force_cuda_host_device begin
#ifndef __global__
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#endif
#undef __launch_bounds__
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(n, n)))
#undef __align__
#define __align__(n) __attribute__((aligned(n)))
#define restrict __restrict__
#undef NAN
#undef INFINITY
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define TW_BITS_OF(f) __builtin_bit_cast(unsigned, f)
#define TW_FLOAT_OF(bits) __builtin_bit_cast(float, bits)
struct tw_axes { unsigned x, y, z; };
#define TW_AXES(name, function) \
  static inline tw_axes tw_##name() { return {function##_x(), function##_y(), function##_z()}; }
TW_AXES(thread_at, __builtin_amdgcn_workitem_id)
TW_AXES(group_at, __builtin_amdgcn_workgroup_id)
TW_AXES(group_size, __builtin_amdgcn_workgroup_size)
#define threadIdx tw_thread_at()
#define blockIdx tw_group_at()
#define blockDim tw_group_size()
#define __syncthreads() \
  (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \
   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
)";

// A word of a register goes from any thread of the warp to any other; `lane` is the own one.
constexpr std::string_view kShuffles = R"(#ifdef __AMDGCN_WAVEFRONT_SIZE
static_assert(__AMDGCN_WAVEFRONT_SIZE == TW_LANES, "the machine has other warps");
#endif
template <class T> static inline T tw_from_lane(T x, int lane) {
  constexpr int words = (sizeof(T) + 3) / 4;
  int word[words] = {};
  __builtin_memcpy(word, &x, sizeof(T));
  for (int i = 0; i < words; ++i) word[i] = __builtin_amdgcn_ds_bpermute(4 * lane, word[i]);
  __builtin_memcpy(&x, word, sizeof(T));
  return x;
}
#define TW_SHUFFLE(lanes, x, from) tw_from_lane(x, from)
#define TW_SHUFFLE_DOWN(lanes, x, by) tw_from_lane(x, lane + by)
)";

// Products of four bytes: older machines have instructions for operands of one sign.
constexpr std::string_view kDp4a = R"(#if defined(__GFX11__) || defined(__GFX12__)
#define TW_DP4A(a_type, b_type, sum, a, b) \
  sum = __builtin_amdgcn_sudot4(TW_SIGN_##a_type, a, TW_SIGN_##b_type, b, sum, false)
#define TW_SIGN_s32 true
#define TW_SIGN_u32 false
#else
template <class A, class B> static inline int tw_add_bytes(int sum, tw_u32 a, tw_u32 b) {
  for (int i = 0; i < 32; i += 8)
    sum = (int)((tw_u32)sum + (tw_u32)((A)(a >> i) * (B)(b >> i)));
  return sum;
}
#define TW_DP4A(a_type, b_type, sum, a, b) sum = TW_ADD_##a_type##_##b_type(sum, a, b)
#define TW_ADD_s32_u32(sum, a, b) tw_add_bytes<tw_i8, tw_u8>(sum, a, b)
#define TW_ADD_u32_s32(sum, a, b) tw_add_bytes<tw_u8, tw_i8>(sum, a, b)
#ifdef __GFX9__
#define TW_ADD_s32_s32(sum, a, b) __builtin_amdgcn_sdot4(a, b, sum, false)
#define TW_ADD_u32_u32(sum, a, b) (int)__builtin_amdgcn_udot4(a, b, (tw_u32)sum, false)
#else
#define TW_ADD_s32_s32(sum, a, b) tw_add_bytes<tw_i8, tw_i8>(sum, a, b)
#define TW_ADD_u32_u32(sum, a, b) tw_add_bytes<tw_u8, tw_u8>(sum, a, b)
#endif
#endif
)";

// The compiler has instructions or expansions of these, and of no other. What is left are functions
// of ROCm's device libraries; a text that uses one is linked with them.
constexpr std::string_view kFunctions = R"(#define TW_BUILTIN(name) \
  static inline float tw_##name(float x) { return __builtin_##name##f(x); } \
  static inline double tw_##name(double x) { return __builtin_##name(x); }
TW_BUILTIN(sqrt)
TW_BUILTIN(fabs)
TW_BUILTIN(floor)
TW_BUILTIN(ceil)
TW_BUILTIN(rint)
static inline float tw_exp(float x) { return __builtin_expf(x); }
static inline float tw_log(float x) { return __builtin_logf(x); }
static inline float tw_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double tw_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline int tw_abs(int x) { return x < 0 ? -x : x; }
static inline long tw_abs(long x) { return x < 0 ? -x : x; }
#ifndef TW_LIBRARY
#define TW_LIBRARY(name, type, suffix) \
  extern "C" type __ocml_##name##_##suffix(type); \
  static inline type tw_##name(type x) { return __ocml_##name##_##suffix(x); }
#define TW_LIBRARY2(name, type, suffix) \
  extern "C" type __ocml_##name##_##suffix(type, type); \
  static inline type tw_##name(type x, type y) { return __ocml_##name##_##suffix(x, y); }
#endif
#define TW_LIBRARY_BOTH(name) TW_LIBRARY(name, float, f32) TW_LIBRARY(name, double, f64)
TW_LIBRARY(exp, double, f64)
TW_LIBRARY(log, double, f64)
TW_LIBRARY(tanh, double, f64)
TW_LIBRARY(erf, double, f64)
TW_LIBRARY(expm1, double, f64)
TW_LIBRARY_BOTH(sin)
TW_LIBRARY_BOTH(cos)
TW_LIBRARY_BOTH(tan)
TW_LIBRARY_BOTH(asin)
TW_LIBRARY_BOTH(acos)
TW_LIBRARY_BOTH(atan)
TW_LIBRARY_BOTH(sinh)
TW_LIBRARY_BOTH(cosh)
TW_LIBRARY_BOTH(asinh)
TW_LIBRARY_BOTH(acosh)
TW_LIBRARY_BOTH(atanh)
TW_LIBRARY2(pow, float, f32)
TW_LIBRARY2(pow, double, f64)
TW_LIBRARY2(fmod, float, f32)
TW_LIBRARY2(fmod, double, f64)
)";

std::string PrologueOf(int64_t lanes) {
  return support::StrCat("#define TW_LANES ", lanes, "\n", kWords);
}

// Runs `use` with the dialect for warps of `lanes` threads.
template <class Use>
auto WithDialect(int64_t lanes, const Use& use) {
  const std::string prologue = PrologueOf(lanes);
  const std::string base = support::StrCat(codegen::kCppTypes, kFunctions, codegen::TanhText("tw_"),
                                           codegen::Expm1Text("tw_"), codegen::ErfText("tw_"));
  const std::string dot4 = support::StrCat(kDp4a, codegen::kCppDot4);
  const std::string warps = support::StrCat(kShuffles, codegen::kCppWarps);
  codegen::CDialect hip = codegen::kKernelCpp;
  hip.name = "hip";
  hip.suffix = ".hip";
  hip.prologue = prologue;
  hip.base_prologue = base;
  hip.half = {.prologue = "typedef _Float16 half;\n"};
  hip.function_prefix = "tw_";
  hip.dot4_text = dot4;
  hip.sub_groups.feature.prologue = warps;
  return use(hip);
}

}  // namespace

absl::StatusOr<std::string> EmitHip(const std::vector<ir::Function>& kernels, bool sub_groups,
                                    int64_t lanes) {
  return WithDialect(lanes, [&](const codegen::CDialect& hip) -> absl::StatusOr<std::string> {
    TW_ASSIGN(codegen::CText code, codegen::EmitC(kernels, hip, sub_groups));
    return std::move(code.text);
  });
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  return WithDialect(request.target.machine.launch.warp, [&](const codegen::CDialect& hip) {
    return codegen::GenerateCompiled(request, hip, CompileText);
  });
}

std::string ToolchainName() { return ClangName(); }

constinit const targets::Backend kBackend = {
    .pipeline = transform::GpuPipeline,
    .generate = Generate,
    .toolchain = ToolchainName,
    .alignment = 512,
    .on_device = true,
};

}  // namespace tilewright::hip
