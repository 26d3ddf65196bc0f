// What the chosen kernels of products and convolutions move and use, without a GPU: schedules as
// `compile` chooses them for a GPU of CUDA, counted by the emulated GPU (tests/support/simt), and
// compiled by NVRTC where it is. For simt_counts.py, which makes the models and the table.
//   simt_counts TARGET MODEL.onnx...
// Prints a line of JSON for each launch. Groups of a launch are alike: some of them are counted.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/driver/compile.h"
#include "compiler/estimate/group_model.h"
#include "compiler/target/occupancy.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/split_prepare.h"
#include "cost_model/model.h"
#include "deploy/support/strings.h"
#include "tests/bench/local_tuner.h"
#include "tests/support/simt/simt_plan.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::bench {
namespace {

using nlohmann::json;

constexpr int64_t kGroups = 4;  // of a launch, that are counted

bool IsProduct(const driver::Task& task) {
  for (const char* op : {"conv2d", "matmul", "gemm", "dense", "conv_transpose", "attention"}) {
    if (task.name.find(op) != std::string::npos) return true;
  }
  return false;
}

// As `compile` chooses it.
struct Chosen {
  std::string steps;
  double estimated_ns = 0;  // of the task
};
Chosen ChosenSteps(const driver::Task& task, const target::Target& target) {
  const std::string usual = Must(driver::DefaultSteps(task.text, target), task.name);
  auto search = Must(search::SearchTask::Create(Must(driver::TaskVariants(task.text), task.name),
                                                task.flops, target, {}),
                     task.name);
  const auto estimate = cost_model::MakePriorModel(target.machine.feature_set);
  const std::string best = Must(search->PredictBest(usual, estimate.get()), task.name).steps;
  const std::string& steps = best.empty() ? usual : best;
  return {steps, Must(search->EstimateNs(steps), task.name)};
}

json CountsOf(const simt::Traffic& t) {
  return {{"global_sectors", t.global_sectors},
          {"global_ideal_sectors", t.global_ideal_sectors},
          {"shared_turns", t.shared_turns},
          {"shared_ideal_turns", t.shared_ideal_turns}};
}

// What each array's reads and writes take.
json PartsOf(const simt::TrafficParts& parts) {
  json out = json::array();
  for (const auto& [array, traffic] : parts) {
    json part = CountsOf(traffic);
    part["array"] = array.first;
    part["write"] = array.second;
    out.push_back(std::move(part));
  }
  return out;
}

void Count(const std::string& model, const driver::Task& task, const target::Target& target) {
  const auto [steps, estimated_ns] = ChosenSteps(task, target);
  const std::string what = support::StrCat(task.name, " by ", steps);
  const ir::Function scheduled =
      Must(schedule::Replay(Must(driver::TaskVariants(task.text), what), steps), what);
  const ir::Function main = Must(transform::SplitPrepare(scheduled), what).main;
  transform::PassContext context;
  context.target = target;
  const auto program = estimate::Summarize(Must(transform::LowerToLoops(main, context), what));
  const ir::Function lowered =
      Must(transform::RunPipeline(main, transform::GpuPipeline(), context), what);
  const codegen::HostPlan plan = Must(codegen::SplitHostDevice(lowered), what);
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan.launches) kernels.push_back(l.kernel);
  const target::LaunchLimits& limits = target.machine.launch;
  const std::string text = Must(cuda::EmitCuda(kernels, limits.sub_groups), what);
  const auto compiled = Must(simt::CompilePlans({{simt::Language::kCuda, plan, text}}), text);
  const auto counts = Must(simt::CountPlan(compiled[0], kGroups), text);
  const bool nvrtc = cuda::NvrtcName() != "nvrtc-none";
  std::vector<codegen::KernelResources> used;
  if (nvrtc) used = Must(cuda::CompileText(text, std::string(target.machine.name)), text).kernels;
  for (size_t l = 0; l < plan.launches.size(); ++l) {
    const estimate::LaunchShape shape = estimate::AnalyzeLaunch(program, l, target);
    json row = {{"model", model},
                {"task", task.name},
                {"launch", l},
                {"steps", steps},
                {"estimated_us", estimated_ns / 1e3},
                {"counts", CountsOf(simt::Sum(counts[l]))},
                {"parts", PartsOf(counts[l])},
                {"threads", shape.threads},
                {"groups", shape.groups},
                {"registers_estimated", shape.registers},
                {"occupancy_estimated", shape.occupancy}};
    for (const codegen::KernelResources& kernel : used) {
      if (kernel.name != plan.launches[l].kernel.name) continue;
      row["registers"] = kernel.registers;
      row["spill_bytes"] = kernel.spill_bytes;
      row["occupancy"] = target::Occupancy(limits, static_cast<int64_t>(shape.threads),
                                           plan.launches[l].shared_bytes, kernel.registers);
    }
    printf("%s\n", row.dump().c_str());
    fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: simt_counts TARGET MODEL.onnx...\n");
    return 2;
  }
  const target::Target target = Must(target::ParseTarget(argv[1]), "target");
  for (int i = 2; i < argc; ++i) {
    for (const driver::Task& task : ModelTasks(argv[i], target)) {
      if (IsProduct(task)) Count(argv[i], task, target);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
