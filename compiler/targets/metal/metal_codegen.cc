// The Metal Shading Language as a dialect of c_like.
#include "compiler/targets/metal/metal_codegen.h"

#include <utility>

#include "compiler/codegen/c_artifact.h"
#include "compiler/codegen/c_math.h"
#include "compiler/codegen/kernel_cpp.h"
#include "compiler/targets/backend.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::metal {
namespace {

// Arithmetic as the IR has it; conversions of floats saturate, and no number is 0. A language
// before 3.2 has no such pragmas: who compiles the text switches fast math off there.
constexpr std::string_view kPrologue = R"(#include <metal_stdlib>
using namespace metal;
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
#define restrict
#define TW_TO_INT(type, least, most, lowest, highest) \
  static inline type convert_##type##_sat_rtz(float x) { \
    return x != x ? 0 : x <= least ? lowest : x >= most ? highest : (type)x; \
  }
TW_TO_INT(char, -128.0f, 127.0f, -128, 127)
TW_TO_INT(short, -32768.0f, 32767.0f, -32768, 32767)
TW_TO_INT(int, -2147483648.0f, 2147483648.0f, -2147483647 - 1, 2147483647)
TW_TO_INT(long, -9223372036854775808.0f, 9223372036854775808.0f, -9223372036854775807L - 1, 9223372036854775807L)
TW_TO_INT(uchar, 0.0f, 255.0f, 0, 255)
TW_TO_INT(ushort, 0.0f, 65535.0f, 0, 65535)
TW_TO_INT(uint, 0.0f, 4294967296.0f, 0, 4294967295U)
TW_TO_INT(ulong, 0.0f, 18446744073709551616.0f, 0, 18446744073709551615UL)
)";

// The language has no such instruction. Products of bytes have 16 bits.
constexpr std::string_view kDot4 = R"(template <class A, class B>
static inline int tw_dot4(int sum, A a0, A a1, A a2, A a3, B b0, B b1, B b2, B b3) {
  return (int)((uint)sum + (uint)((int)a0 * b0 + (int)a1 * b1 + (int)a2 * b2 + (int)a3 * b3));
}
)";

// The last simdgroup of a threadgroup may have fewer threads, of any number.
constexpr std::string_view kSimdgroups =
    R"(#define TW_LANES min(tw_width, tw_threads.x * tw_threads.y * tw_threads.z - tw_simdgroup * tw_width)
#define tw_simd_add simd_sum
#define tw_simd_min simd_min
#define tw_simd_max simd_max
)";

constexpr std::string_view kThread =
    "uint3 tw_group [[threadgroup_position_in_grid]]"
    ", uint3 tw_thread [[thread_position_in_threadgroup]]"
    ", uint3 tw_threads [[threads_per_threadgroup]]"
    ", uint tw_lane [[thread_index_in_simdgroup]]"
    ", uint tw_simdgroup [[simdgroup_index_in_threadgroup]]"
    ", uint tw_width [[threads_per_simdgroup]]";

constexpr codegen::CDialect kMetal = {
    .name = "metal",
    .suffix = ".metal",
    .prologue = kPrologue,
    .kernel = "",
    .global = "device ",
    .shared = "alignas(16) threadgroup ",
    .global_space = "device ",
    .shared_space = "threadgroup ",
    .size_param = "constant long& @ [[buffer(#)]]",
    .buffer_place = " [[buffer(#)]]",
    .thread_params = kThread,
    .most_buffers = 31,
    .block_index = "tw_group.%",
    .thread_index = "tw_thread.%",
    .axis_names = "xyz",
    .barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);",
    .global_barrier = "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    .group_size = "[[kernel, max_total_threads_per_threadgroup(%x * %y * %z)]] ",
    .types = {"char", "short", "int", "long", "uchar", "ushort", "uint", "ulong", "half", "float",
              ""},
    .vectors = false,
    .wide = "tw_wide",
    .wide_text = codegen::kCppWide,
    .dot4 = "tw_dot4",
    .dot4_text = kDot4,
    .sub_groups = {.feature = {.prologue = kSimdgroups},
                   .lane = "tw_lane",
                   .lanes = "TW_LANES",
                   .reduce = "tw_simd_%",
                   .most_bits = 32},
};

// Runs `use` with the language and the functions that it lacks.
template <class Use>
auto WithFunctions(const Use& use) {
  const std::string functions = support::StrCat(codegen::Expm1Text(""), codegen::ErfText(""));
  codegen::CDialect metal = kMetal;
  metal.base_prologue = functions;
  return use(metal);
}

}  // namespace

absl::StatusOr<std::string> EmitMetal(const std::vector<ir::Function>& kernels, bool sub_groups) {
  return WithFunctions([&](const codegen::CDialect& metal) -> absl::StatusOr<std::string> {
    TW_ASSIGN(codegen::CText code, codegen::EmitC(kernels, metal, sub_groups));
    return std::move(code.text);
  });
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  return WithFunctions(
      [&](const codegen::CDialect& metal) { return codegen::GenerateC(request, metal); });
}

std::string ToolchainName() { return "msl-2.4"; }

constinit const targets::Backend kBackend = {
    .pipeline = transform::GpuPipeline,
    .generate = Generate,
    .toolchain = ToolchainName,
    .alignment = 512,
    .on_device = true,
};

}  // namespace tilewright::metal
