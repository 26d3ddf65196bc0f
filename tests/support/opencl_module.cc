#include "tests/support/opencl_module.h"

#include <utility>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/text_module.h"

namespace tilewright::tests {
namespace {

absl::StatusOr<codegen::HostPlan> PlanOf(const std::string& program, const std::string& steps) {
  TW_ASSIGN(const ir::Function function, ir::ParseFunction(program));
  TW_ASSIGN(const auto parsed, schedule::ParseSteps(steps));
  schedule::Schedule schedule(function);
  TW_TRY(schedule.ApplyAll(parsed));
  transform::PassContext context;
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(schedule.function(), transform::GpuPipeline(), context));
  return codegen::SplitHostDevice(lowered);
}

absl::StatusOr<module::KernelTensor> TensorOf(const ir::Buffer& buffer) {
  module::KernelTensor tensor;
  tensor.name = buffer->name;
  for (const ir::Expr& extent : buffer->shape) {
    TW_ASSIGN(const int64_t value, ir::EvalIntExpr(extent, {}));
    tensor.shape.push_back(value);
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::string> OpenClModule(const std::string& program, const std::string& steps) {
  TW_ASSIGN(const codegen::HostPlan plan, PlanOf(program, steps));
  if (plan.launches.size() != 1 || plan.buffers.size() != plan.num_params) {
    return support::Unimplemented("test.opencl_module.plan", "expected one launch and no buffers");
  }
  const codegen::Launch& from = plan.launches[0];
  module::KernelModule kernel;
  kernel.name = plan.name;
  kernel.target = "opencl";
  kernel.format = "opencl-c";
  TW_ASSIGN(kernel.code, opencl::EmitOpenCl({from.kernel}));
  module::Launch& launch = kernel.launches.emplace_back();
  launch.symbol = "tw_kernel_" + from.kernel.name;
  launch.steps = steps;
  for (size_t axis = 0; axis < launch.grid.size(); ++axis) {
    TW_ASSIGN(launch.grid[axis], ir::EvalIntExpr(from.grid[axis], {}));
    TW_ASSIGN(launch.group[axis], ir::EvalIntExpr(from.group[axis], {}));
  }
  for (size_t i = 0; i < plan.num_params; ++i) {
    if (from.arguments.size() != plan.num_params || from.arguments[i] != static_cast<int>(i)) {
      return support::Unimplemented("test.opencl_module.arguments", "expected all, in order");
    }
    TW_ASSIGN(module::KernelTensor tensor, TensorOf(plan.buffers[i]));
    const bool output = i + 1 == plan.num_params;
    (output ? kernel.outputs : kernel.inputs).push_back(std::move(tensor));
  }
  return module::SerializeKernelModule(kernel);
}

std::string OpenClTextModule(const std::string& kernel, const std::string& text, int64_t elements) {
  return TextModule({"opencl", "opencl-c", kernel, text, elements});
}

}  // namespace tilewright::tests
