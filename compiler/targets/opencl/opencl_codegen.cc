// OpenCL C as a dialect of c_like.
#include "compiler/targets/opencl/opencl_codegen.h"

#include <utility>

#include "compiler/codegen/c_like.h"
#include "compiler/codegen/host_device.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/targets/backend.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::opencl {
namespace {

constexpr codegen::CDialect kOpenCl = {
    .name = "opencl",
    .prologue = "#pragma OPENCL FP_CONTRACT OFF\n",
    .kernel = "__kernel ",
    .global = "__global ",
    .shared = "__local ",
    .block_index = "get_group_id(%)",
    .thread_index = "get_local_id(%)",
    .axis_names = "012",
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
    .global_barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    .group_size = "__attribute__((reqd_work_group_size(%x, %y, %z)))\n",
    .types = {"char", "short", "int", "long", "uchar", "ushort", "uint", "ulong", "half", "float",
              "double"},
    .vectors = true,
};

absl::Status Symbolic(const std::string& what, const std::string& name) {
  return support::Unimplemented(
      "codegen.opencl.symbolic",
      support::StrCat("expected constant sizes, found ", what, " ", name));
}

absl::StatusOr<codegen::Call> CallOf(const codegen::Launch& launch) {
  codegen::Call call;
  call.symbol = TW_KERNEL_SYMBOL_PREFIX + launch.kernel.name;
  call.buffers = launch.arguments;
  call.num_outputs = launch.num_outputs;
  for (size_t axis = 0; axis < call.grid.size(); ++axis) {
    const int64_t *groups = ir::AsInt(launch.grid[axis]), *threads = ir::AsInt(launch.group[axis]);
    if (groups == nullptr || threads == nullptr) return Symbolic("the grid of", launch.kernel.name);
    call.grid[axis] = *groups;
    call.group[axis] = *threads;
  }
  return call;
}

absl::StatusOr<codegen::Program> ProgramOf(const codegen::HostPlan& plan) {
  codegen::Program program;
  for (size_t i = plan.num_params; i < plan.buffers.size(); ++i) {
    if (!ir::ConstantBytes(*plan.buffers[i]).has_value())
      return Symbolic("buffer", plan.buffers[i]->name);
    program.temporaries.push_back(plan.buffers[i]);
  }
  for (const codegen::Launch& launch : plan.launches) {
    TW_ASSIGN(codegen::Call call, CallOf(launch));
    program.calls.push_back(std::move(call));
  }
  return program;
}

absl::Status Dump(const codegen::Request& request, const std::string& text) {
  const std::string& folder = request.options.dump_dir;
  if (folder.empty()) return absl::OkStatus();
  TW_TRY(support::MakeDirs(folder));
  return support::WriteFileAtomic(support::PathJoin(folder, request.functions[0].name + ".cl"),
                                  text);
}

}  // namespace

absl::StatusOr<std::string> EmitOpenCl(const std::vector<ir::Function>& kernels) {
  return codegen::EmitC(kernels, kOpenCl);
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  if (request.functions.empty())
    return support::InvalidArgument("codegen.function.none", "expected at least one function");
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  codegen::Artifact artifact;
  artifact.format = kFormat;
  std::vector<ir::Function> kernels;
  for (const ir::Function& f : request.functions) {
    TW_ASSIGN(codegen::HostPlan plan, codegen::SplitHostDevice(f));
    TW_TRY(codegen::CheckLaunchLimits(plan, request.target.machine.launch));
    TW_ASSIGN(codegen::Program program, ProgramOf(plan));
    artifact.programs.push_back(std::move(program));
    for (codegen::Launch& launch : plan.launches) kernels.push_back(std::move(launch.kernel));
  }
  TW_ASSIGN(artifact.bytes, EmitOpenCl(kernels));
  TW_TRY(Dump(request, artifact.bytes));
  artifact.codegen_seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  return artifact;
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
