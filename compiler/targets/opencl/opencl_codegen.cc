// OpenCL C as a dialect of c_like.
#include "compiler/targets/opencl/opencl_codegen.h"

#include "compiler/codegen/c_artifact.h"
#include "compiler/targets/backend.h"
#include "deploy/support/status.h"

namespace tilewright::opencl {
namespace {

// Four products of bytes are less than 2^18 each. Devices with an instruction for them say so by
// the macro of its feature.
constexpr std::string_view kDot4 = R"(#ifdef __opencl_c_integer_dot_product_input_4x8bit
#define tw_dot4(sum, a, b) ((int)((uint)(sum) + (uint)dot(a, b)))
#else
static inline int tw_sum4(int sum, int4 p) {
  return (int)((uint)sum + (uint)(p.s0 + p.s1 + p.s2 + p.s3));
}
#define tw_dot4(sum, a, b) tw_sum4(sum, convert_int4(a) * convert_int4(b))
#endif
)";

constexpr codegen::CDialect kOpenCl = {
    .name = "opencl",
    .suffix = ".cl",
    .prologue = "#pragma OPENCL FP_CONTRACT OFF\n",
    .kernel = "__kernel ",
    .global = "__global ",
    .shared = "__local ",
    .block_index = "get_group_id(%)",
    .thread_index = "get_local_id(%)",
    .axis_names = "012",
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
    .global_barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    .barrier_behind_loops = true,  // PoCL 3.1
    .group_size = "__attribute__((reqd_work_group_size(%x, %y, %z)))\n",
    .types = {"char", "short", "int", "long", "uchar", "ushort", "uint", "ulong", "half", "float",
              "double"},
    .half = {.prologue = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n",
             .feature = "cl_khr_fp16"},
    .float64 = {.prologue = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
                .feature = "cl_khr_fp64"},
    .vectors = true,
    .dot4 = "tw_dot4",
    .dot4_text = kDot4,
    .sub_groups = {.feature = {.prologue = "#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n",
                               .feature = "cl_khr_subgroups"},
                   .lane = "get_sub_group_local_id()",
                   .lanes = "get_sub_group_size()",
                   .reduce = "sub_group_reduce_%"},
};

}  // namespace

absl::StatusOr<std::string> EmitOpenCl(const std::vector<ir::Function>& kernels, bool sub_groups) {
  TW_ASSIGN(codegen::CText code, codegen::EmitC(kernels, kOpenCl, sub_groups));
  return std::move(code.text);
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  return codegen::GenerateC(request, kOpenCl);
}

std::string ToolchainName() { return "opencl-c-1.2"; }

constinit const targets::Backend kBackend = {
    .pipeline = transform::GpuPipeline,
    .generate = Generate,
    .toolchain = ToolchainName,
    .alignment = 512,  // devices want parts of an allocation at such places; none wants more
    .on_device = true,
};

}  // namespace tilewright::opencl
