#include "tests/support/emulated_counts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/driver/compile.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/split_prepare.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

constexpr double kSectorBytes = 32;

// Cycles of a unit's ports for one group. A request is issued in one, and its sectors come as fast
// as the first cache gives them.
double PortCycles(const CountedLaunch& counted, const target::Machine& machine) {
  const simt::Traffic t = simt::Sum(counted.parts);
  const auto requests = static_cast<double>(t.global_requests);
  const auto bytes = static_cast<double>(t.global_sectors) * kSectorBytes;
  const auto excess = static_cast<double>(t.global_sectors - t.global_ideal_sectors) * kSectorBytes;
  const target::LaunchLimits& limits = machine.launch;
  const double groups = std::min(counted.shape.groups, static_cast<double>(kCountedGroups));
  return (std::max(requests, bytes / std::max(machine.l1.bytes_per_cycle, 1.0)) +
          limits.excess_cycles * excess / static_cast<double>(limits.transaction_bytes) +
          static_cast<double>(t.shared_turns)) /
         groups / std::max(machine.loads_per_cycle, 0.5);
}

}  // namespace

bool HasProduct(const driver::Task& task) {
  for (const char* op : {"conv2d", "matmul", "gemm", "dense", "conv_transpose", "attention"}) {
    if (task.name.find(op) != std::string::npos) return true;
  }
  return false;
}

double CountedProgram::CountedNs(const target::Machine& machine) const {
  double ports = 0, sectors = 0, least = 0;
  const auto units = static_cast<double>(std::max<int64_t>(1, machine.launch.units));
  for (const CountedLaunch& l : launches) {
    const simt::Traffic t = simt::Sum(l.parts);
    sectors += l.OfAllGroups(t.global_sectors);
    least += l.OfAllGroups(t.global_ideal_sectors);
    ports += std::ceil(l.shape.groups / units) * PortCycles(l, machine) / machine.clock_ghz;
  }
  const double ns =
      std::max(ports, without_ports_ns) + machine.port_share * std::min(ports, without_ports_ns);
  return ns * (1 + machine.launch.waste_share * (sectors / std::max(least, 1.0) - 1));
}

absl::StatusOr<CountedProgram> CountProgram(const std::string& task_text, std::string_view steps,
                                            const target::Target& target) {
  CountedProgram out;
  TW_ASSIGN(const auto variants, driver::TaskVariants(task_text));
  TW_ASSIGN(const ir::Function scheduled, schedule::Replay(variants, steps));
  TW_ASSIGN(const transform::PreparedFunction split, transform::SplitPrepare(scheduled));
  transform::PassContext context;
  context.target = target;
  TW_ASSIGN(const ir::Function loops, transform::LowerToLoops(split.main, context));
  const estimate::ProgramSummary program = estimate::Summarize(loops);
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(split.main, transform::GpuPipeline(), context));
  TW_ASSIGN(const codegen::HostPlan plan, codegen::SplitHostDevice(lowered));
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan.launches) kernels.push_back(l.kernel);
  TW_ASSIGN(out.text, cuda::EmitCuda(kernels, target.machine.launch.sub_groups));
  TW_ASSIGN(const auto compiled, simt::CompilePlans({{simt::Language::kCuda, plan, out.text}}));
  TW_ASSIGN(const auto counts, simt::CountPlan(compiled[0], kCountedGroups));
  for (size_t l = 0; l < plan.launches.size(); ++l) {
    out.launches.push_back(
        {plan.launches[l], estimate::AnalyzeLaunch(program, l, target), counts[l]});
  }
  out.estimated_ns = estimate::EstimateTime(program, target).total_ns;
  target::Target free_ports = target;
  free_ports.machine.loads_per_cycle = 1e9;
  free_ports.machine.launch.waste_share = 0;
  out.without_ports_ns = estimate::EstimateTime(program, free_ports).total_ns;
  return out;
}

}  // namespace tilewright::tests
