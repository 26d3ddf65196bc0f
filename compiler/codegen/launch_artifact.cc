#include "compiler/codegen/launch_artifact.h"

#include <utility>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/buffer_bytes.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

absl::Status Symbolic(const std::string& what, const std::string& name) {
  return support::Unimplemented(
      "codegen.launch.symbolic",
      support::StrCat("expected constant sizes, found ", what, " ", name));
}

absl::StatusOr<Call> CallOf(const Launch& launch) {
  Call call;
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

absl::StatusOr<Program> ProgramOf(const HostPlan& plan) {
  Program program;
  for (size_t i = plan.num_params; i < plan.buffers.size(); ++i) {
    if (!ir::ConstantBytes(*plan.buffers[i]).has_value())
      return Symbolic("buffer", plan.buffers[i]->name);
    program.temporaries.push_back(plan.buffers[i]);
  }
  for (const Launch& launch : plan.launches) {
    TW_ASSIGN(Call call, CallOf(launch));
    program.calls.push_back(std::move(call));
  }
  return program;
}

}  // namespace

absl::StatusOr<Artifact> GenerateLaunches(const Request& request, const KernelEmitter& emit) {
  if (request.functions.empty())
    return support::InvalidArgument("codegen.function.none", "expected at least one function");
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  Artifact artifact;
  artifact.format = request.target.family().code_format;
  std::vector<ir::Function> kernels;
  for (const ir::Function& f : request.functions) {
    TW_ASSIGN(HostPlan plan, SplitHostDevice(f));
    TW_TRY(CheckLaunchLimits(plan, request.target.machine.launch));
    TW_ASSIGN(Program program, ProgramOf(plan));
    artifact.programs.push_back(std::move(program));
    for (Launch& launch : plan.launches) kernels.push_back(std::move(launch.kernel));
  }
  TW_ASSIGN(KernelCode code, emit(kernels));
  artifact.bytes = std::move(code.bytes);
  artifact.required_features = std::move(code.features);
  artifact.codegen_seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  return artifact;
}

}  // namespace tilewright::codegen
