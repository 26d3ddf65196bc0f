// OpenCL C as a dialect of c_like.
#include "compiler/codegen/c_like.h"

namespace tilewright::codegen {
namespace {

constexpr CDialect kOpenCl = {
    .name = "opencl",
    .prologue = "#pragma OPENCL FP_CONTRACT OFF\n",
    .kernel = "__kernel ",
    .global = "__global ",
    .shared = "__local ",
    .block_index = "(long)get_group_id(%)",
    .thread_index = "(long)get_local_id(%)",
    .axis_names = "012",
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    .group_size = "__attribute__((reqd_work_group_size(%x, %y, %z)))\n",
    .types = {"char", "short", "int", "long", "uchar", "ushort", "uint", "ulong", "half", "float",
              "double"},
    .vector_memory = true,
};

}  // namespace

absl::StatusOr<std::string> EmitOpenCl(const std::vector<ir::Function>& kernels) {
  return EmitC(kernels, kOpenCl);
}

}  // namespace tilewright::codegen
