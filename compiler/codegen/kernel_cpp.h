// Kernels as C++: the dialect that CUDA C and HIP share, and texts that Metal uses, too. A language
// changes what it writes in another way. Before these texts a language defines
//   TW_LANES                        threads of a warp
//   TW_SHUFFLE(lanes, x, from)      `x` of thread `from`; all `lanes` threads of the warp are here
//   TW_SHUFFLE_DOWN(lanes, x, by)   the same of the thread that is `by` places further
//   TW_BITS_OF(f), TW_FLOAT_OF(bits)   a 32-bit float as an unsigned integer, and back
//   TW_DP4A(a_type, b_type, sum, a, b)   adds four products of bytes; types are s32 or u32
// where it uses the text that needs it. Constants.
#pragma once

#include <string_view>

#include "compiler/codegen/c_like.h"

namespace tilewright::codegen {

// Conversions of floats saturate, and no number is 0, whatever the device's own do.
inline constexpr std::string_view kCppTypes = R"(typedef signed char tw_i8;
typedef unsigned char tw_u8;
typedef unsigned short tw_u16;
typedef unsigned int tw_u32;
typedef unsigned long tw_u64;
#define TW_TO_INT(type, least, most, lowest, highest) \
  static inline type convert_##type##_sat_rtz(double x) { \
    return x != x ? 0 : x <= least ? lowest : x >= most ? highest : (type)x; \
  }
TW_TO_INT(tw_i8, -128.0, 127.0, -128, 127)
TW_TO_INT(short, -32768.0, 32767.0, -32768, 32767)
TW_TO_INT(int, -2147483648.0, 2147483647.0, -2147483647 - 1, 2147483647)
TW_TO_INT(long, -0x1p63, 0x1p63, -9223372036854775807L - 1, 9223372036854775807L)
TW_TO_INT(tw_u8, 0.0, 255.0, 0, 255)
TW_TO_INT(tw_u16, 0.0, 65535.0, 0, 65535)
TW_TO_INT(tw_u32, 0.0, 4294967295.0, 0, 4294967295U)
TW_TO_INT(tw_u64, 0.0, 0x1p64, 0, 18446744073709551615UL)
)";

// The upper half of a float, rounded to the nearest, ties to even: to be cast and moved.
inline constexpr std::string_view kCppBfloat = R"(struct tw_bf16 {
  unsigned short bits;
  tw_bf16() = default;
  tw_bf16(float f) {
    const tw_u32 all = TW_BITS_OF(f);
    bits = f != f ? 0x7FC0 : (all + 0x7FFF + (all >> 16 & 1)) >> 16;
  }
  operator float() const { return TW_FLOAT_OF((tw_u32)bits << 16); }
};
)";

// What else compiles a text may have a type of its own.
inline constexpr std::string_view kCppWide = R"(#ifndef TW_OWN_WIDE
template <class T, int N> struct alignas(sizeof(T) * N) tw_wide { T v[N]; };
#endif
)";

// Four bytes are one operand of an instruction, which takes each operand signed or not.
inline constexpr std::string_view kCppDot4 =
    R"(static inline tw_u32 tw_four(tw_u8 a, tw_u8 b, tw_u8 c, tw_u8 d) {
  return a | b << 8 | c << 16 | (tw_u32)d << 24;
}
#define TW_DOT4(a_type, b_type, A, B) \
  static inline int tw_dot4(int sum, A a0, A a1, A a2, A a3, B b0, B b1, B b2, B b3) { \
    TW_DP4A(a_type, b_type, sum, tw_four(a0, a1, a2, a3), tw_four(b0, b1, b2, b3)); \
    return sum; \
  }
TW_DOT4(s32, s32, tw_i8, tw_i8)
TW_DOT4(s32, u32, tw_i8, tw_u8)
TW_DOT4(u32, s32, tw_u8, tw_i8)
TW_DOT4(u32, u32, tw_u8, tw_u8)
)";

// The last warp of a group may have fewer threads, of any number.
inline constexpr std::string_view kCppWarps = R"(static inline int tw_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static inline int tw_lane() { return tw_thread() % TW_LANES; }
static inline int tw_lanes() {
  const int left = blockDim.x * blockDim.y * blockDim.z - tw_thread() / TW_LANES * TW_LANES;
  return left < TW_LANES ? left : TW_LANES;
}
#define TW_WARP(name, both) \
  template <class T> static inline T tw_warp_##name(T x) { \
    const int lane = tw_lane(), lanes = tw_lanes(); \
    for (int n = TW_LANES / 2; n > 0; n /= 2) { \
      const T y = TW_SHUFFLE_DOWN(lanes, x, n); \
      if (lane + n < lanes) x = both; \
    } \
    return TW_SHUFFLE(lanes, x, 0); \
  }
TW_WARP(add, x + y)
TW_WARP(min, x < y ? x : y)
TW_WARP(max, x > y ? x : y)
)";

// Without a name, first lines, and what defines the macros above.
inline constexpr CDialect kKernelCpp = {
    .name = {},
    .suffix = {},
    .prologue = {},
    .base_prologue = kCppTypes,
    .kernel = "extern \"C\" __global__ ",
    .global = "",
    .shared = "__shared__ __align__(@) ",
    .block_index = "blockIdx.%",
    .thread_index = "threadIdx.%",
    .axis_names = "xyz",
    .barrier = "__syncthreads();",
    .global_barrier = "__syncthreads();",
    .group_size = "__launch_bounds__(%x * %y * %z) ",
    .types = {"tw_i8", "short", "int", "long", "tw_u8", "tw_u16", "tw_u32", "tw_u64", "half",
              "float", "double", "tw_bf16"},
    .bfloat = {.prologue = kCppBfloat},
    .vectors = false,
    .wide = "tw_wide",
    .wide_text = kCppWide,
    .dot4 = "tw_dot4",
    .dot4_text = kCppDot4,
    .sub_groups = {.feature = {.prologue = kCppWarps},
                   .lane = "tw_lane()",
                   .lanes = "tw_lanes()",
                   .reduce = "tw_warp_%"},
};

}  // namespace tilewright::codegen
