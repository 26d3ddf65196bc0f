// CUDA C as a dialect of c_like.
#include "compiler/targets/cuda/cuda_codegen.h"

#include <utility>

#include "compiler/codegen/c_artifact.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::cuda {
namespace {

// Conversions of floats saturate, and no number is 0, whatever the device's own do.
constexpr std::string_view kPrologue = R"(#define restrict __restrict__
typedef signed char tw_i8;
typedef unsigned char tw_u8;
typedef unsigned short tw_u16;
typedef unsigned int tw_u32;
typedef unsigned long tw_u64;
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#endif
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

constexpr codegen::CDialect kCuda = {
    .name = "cuda",
    .suffix = ".cu",
    .prologue = kPrologue,
    .kernel = "extern \"C\" __global__ ",
    .global = "",
    .shared = "__shared__ ",
    .block_index = "blockIdx.%",
    .thread_index = "threadIdx.%",
    .axis_names = "xyz",
    .barrier = "__syncthreads();",
    .global_barrier = "__syncthreads();",
    .group_size = "__launch_bounds__(%x * %y * %z) ",
    .types = {"tw_i8", "short", "int", "long", "tw_u8", "tw_u16", "tw_u32", "tw_u64", "", "float",
              "double"},
    .vectors = false,
};

}  // namespace

absl::StatusOr<std::string> EmitCuda(const std::vector<ir::Function>& kernels, bool sub_groups) {
  TW_ASSIGN(codegen::CText code, codegen::EmitC(kernels, kCuda, sub_groups));
  return std::move(code.text);
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  TW_ASSIGN(codegen::Artifact artifact, codegen::GenerateC(request, kCuda));
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  const std::string& arch = request.target.cpu;
  TW_ASSIGN(Cubin cubin, CompileText(artifact.bytes, arch));
  artifact.bytes = std::move(cubin.bytes);
  artifact.resources = std::move(cubin.kernels);
  artifact.required_features.push_back(arch);
  artifact.link_seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  return artifact;
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
