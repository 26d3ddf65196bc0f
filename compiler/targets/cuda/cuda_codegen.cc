// CUDA C as a dialect of kernel_cpp.h.
#include "compiler/targets/cuda/cuda_codegen.h"

#include <utility>

#include "compiler/codegen/c_artifact.h"
#include "compiler/codegen/kernel_cpp.h"
#include "compiler/targets/backend.h"
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

// 16-bit floats without a header of the toolkit, to be cast and moved. The instructions are in
// texts that NVRTC compiles; what else compiles them has functions of its own.
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
#endif
struct half {
  unsigned short bits;
  half() = default;
  half(float f) : bits(tw_float_to_half(f)) {}
  operator float() const { return tw_half_to_float(bits); }
};
)";

// Fragments of tensor cores, as the PTX ISA lays them out. A register holds 4 bytes of a row's
// terms: thread t of a warp has rows t / 4 and 8 below (sums and A) or column t / 4 (B), and bytes
// t % 4 * 4 and 16 further. Rows in shared memory at multiples of 16 bytes are loaded by ldmatrix,
// for which threads name the rows of matrices of 8 x 16 bytes.
constexpr std::string_view kFragments = R"(#ifdef __CUDACC_RTC__
#define TW_MMA(form, kind, d, a, b) \
  asm volatile("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
               "{%0, %1, %2, %3};" \
               : "+" kind(d[0]), "+" kind(d[1]), "+" kind(d[2]), "+" kind(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define TW_LDMATRIX4(turned, f, row) \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) \
               : "r"((tw_u32)__cvta_generic_to_shared(row)) : "memory")
#define TW_LDMATRIX2(turned, f, row) \
  asm volatile("ldmatrix.sync.aligned.m8n8.x2" turned ".shared.b16 {%0, %1}, [%2];" \
               : "=r"(f[0]), "=r"(f[1]) \
               : "r"((tw_u32)__cvta_generic_to_shared(row)) : "memory")
#endif
template <class T> static inline tw_u32 tw_bits(const T& x) {
  return sizeof(T) == 1 ? *(const tw_u8*)&x : *(const tw_u16*)&x;
}
template <int along, bool whole, class T> static inline tw_u32 tw_terms(const T* first) {
  if (along == 1 && whole) return *(const tw_u32*)first;
  tw_u32 word = 0;
  for (int i = 0; i < 4 / (int)sizeof(T); ++i)
    word |= tw_bits(first[i * along]) << 8 * (int)sizeof(T) * i;
  return word;
}
template <int rows, int columns, int bytes, bool shared, class T>
static inline void tw_load_a(tw_u32 (&f)[4], const T* p) {
  constexpr int eight = 16 / sizeof(T);
  const int lane = threadIdx.x;
  if constexpr (shared && bytes == 16 && columns == 1) {
    TW_LDMATRIX4("", f, p + lane % 16 * rows + lane / 16 * eight);
  } else if constexpr (shared && bytes == 16 && rows == 1 && eight == 8) {
    TW_LDMATRIX4(".trans", f, p + (lane % 8 + lane / 16 * 8) * columns + lane / 8 % 2 * 8);
  } else {
    for (int r = 0; r < 4; ++r)
      f[r] = tw_terms<columns, bytes >= 4>(p + (lane / 4 + r % 2 * 8) * rows +
                                           (lane % 4 * (eight / 4) + r / 2 * eight) * columns);
  }
}
template <int rows, int columns, int bytes, bool shared, class T>
static inline void tw_load_b(tw_u32 (&f)[2], const T* p) {
  constexpr int eight = 16 / sizeof(T);
  const int lane = threadIdx.x;
  if constexpr (shared && bytes == 16 && rows == 1) {
    TW_LDMATRIX2("", f, p + lane % 8 * columns + lane / 8 % 2 * eight);
  } else if constexpr (shared && bytes == 16 && columns == 1 && eight == 8) {
    TW_LDMATRIX2(".trans", f, p + lane % 16 * rows);
  } else {
    for (int r = 0; r < 2; ++r)
      f[r] = tw_terms<rows, bytes >= 4>(p + lane / 4 * columns +
                                        (lane % 4 * (eight / 4) + r * eight) * rows);
  }
}
#define TW_LOAD(name, fragment, registers) \
  template <int rows, int columns, int bytes, bool shared, class T> \
  static inline void tw_cuda_load_##name(tw_u32 (&f)[registers], const T* p) { \
    tw_load_##fragment<rows, columns, bytes, shared>(f, p); \
  }
TW_LOAD(a_f16, a, 4)
TW_LOAD(a_bf16, a, 4)
TW_LOAD(a_i8, a, 4)
TW_LOAD(a_u8, a, 4)
TW_LOAD(b_f16, b, 2)
TW_LOAD(b_bf16, b, 2)
TW_LOAD(b_i8, b, 2)
#define TW_PRODUCT(name, type, form, kind) \
  static inline void tw_cuda_mma_##name##_reset(type (&d)[4]) { d[0] = d[1] = d[2] = d[3] = 0; } \
  static inline void tw_cuda_mma_##name(type (&d)[4], const tw_u32 (&a)[4], \
                                        const tw_u32 (&b)[2]) { \
    TW_MMA(form, kind, d, a, b); \
  }
TW_PRODUCT(f16, float, "m16n8k16.row.col.f32.f16.f16.f32", "f")
TW_PRODUCT(bf16, float, "m16n8k16.row.col.f32.bf16.bf16.f32", "f")
TW_PRODUCT(s8s8, int, "m16n8k32.row.col.s32.s8.s8.s32", "r")
TW_PRODUCT(u8s8, int, "m16n8k32.row.col.s32.u8.s8.s32", "r")
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
  cuda.half_arithmetic = false;
  cuda.fragments = {.prologue = kFragments,
                    .threads = 32,
                    .a = 4,
                    .b = 2,
                    .sums = 4,
                    .row = "threadIdx.x / 4 + @ * 8",
                    .run = "threadIdx.x % 4",
                    .neighbours = 2};
  cuda.async = {.prologue = kAsync,
                .copy = "tw_copy_async",
                .commit = "TW_COMMIT_ASYNC();",
                .wait = "TW_WAIT_ASYNC(@);"};
  cuda.dynamic_shared = {.prologue = kDynamicShared,
                         .above = 48 << 10,
                         .size = "extern \"C\" __device__ tw_u8 @_dynamic_shared_kib[#];",
                         .memory = "extern __shared__ __align__(16) tw_u8 tw_dynamic_shared[];",
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
