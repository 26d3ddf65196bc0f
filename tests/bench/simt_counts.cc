// What the chosen kernels of products and convolutions move and use, without a GPU: schedules as
// `compile` chooses them for a GPU of CUDA, counted by the emulated GPU (tests/support/simt), and
// compiled by NVRTC where it is. For simt_counts.py, which makes the models and the table.
//   simt_counts TARGET MODEL.onnx...
// Prints a line of JSON for each launch.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/target/occupancy.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "cost_model/model.h"
#include "deploy/support/strings.h"
#include "tests/bench/local_tuner.h"
#include "tests/support/emulated_counts.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::bench {
namespace {

using nlohmann::json;
using tests::CountedProgram;
using tests::CountProgram;
using tests::HasProduct;

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
  const CountedProgram program = Must(CountProgram(task.text, steps, target), what);
  const bool nvrtc = cuda::NvrtcName() != "nvrtc-none";
  std::vector<codegen::KernelResources> used;
  if (nvrtc)
    used = Must(cuda::CompileText(program.text, std::string(target.machine.name)), what).kernels;
  for (size_t l = 0; l < program.launches.size(); ++l) {
    const auto& [launch, shape, parts] = program.launches[l];
    json row = {{"model", model},
                {"task", task.name},
                {"launch", l},
                {"steps", steps},
                {"estimated_us", estimated_ns / 1e3},
                {"counts", CountsOf(simt::Sum(parts))},
                {"parts", PartsOf(parts)},
                {"threads", shape.threads},
                {"groups", shape.groups},
                {"registers_estimated", shape.registers},
                {"occupancy_estimated", shape.occupancy}};
    for (const codegen::KernelResources& kernel : used) {
      if (kernel.name != launch.kernel.name) continue;
      row["registers"] = kernel.registers;
      row["spill_bytes"] = kernel.spill_bytes;
      row["occupancy"] =
          target::Occupancy(target.machine.launch, static_cast<int64_t>(shape.threads),
                            launch.shared_bytes, kernel.registers);
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
      if (HasProduct(task)) Count(argv[i], task, target);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
