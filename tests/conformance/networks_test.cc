// Whole networks: made by tests/models/make_models.py, compiled with default schedules, run by the
// runtime on one and two threads, compared with what tests/models/numpy_eval.py computes. Fresh
// weights, inputs, image sizes and widths, so that nothing can be prepared for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "compiler/space/trace.h"
#include "compiler/transform/passes.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/run_compiled.h"

namespace tilewright {
namespace {

using runtime::HostTensor;
using support::PathJoin;

constexpr char kPython[] = "/usr/bin/python3";
constexpr char kBlockLayouts[] = "block_layouts";
constexpr uint64_t kMaxFile = uint64_t{1} << 31;
constexpr int64_t kScriptTimeoutMs = 300'000;
// Golden rule of the networks: ‖a−e‖ / ‖e‖ and max|a−e| / max|e|.
constexpr double kNorm = 1e-5, kMax = 1e-4;
// Of the arena: its size over the sum of live intermediates where that is largest.
constexpr double kArenaShare = 1.15;

absl::Status RunScript(const std::string& script, std::vector<std::string> args) {
  support::ChildOptions options;
  options.program = kPython;
  options.args = {PathJoin(TILEWRIGHT_SOURCE_DIR, "tests/models/" + script)};
  options.args.insert(options.args.end(), args.begin(), args.end());
  TW_ASSIGN(support::CommandResult result, support::RunCommand(options, "", kScriptTimeoutMs));
  if (result.status.ok()) return absl::OkStatus();
  return support::Internal("test.script", support::StrCat(script, ": ", result.status.ToString(),
                                                          ": ", result.stderr_text));
}

struct Errors {
  double norm = 0, max = 0;
};

Errors Difference(const float* actual, const std::string& expected) {
  const float* e = reinterpret_cast<const float*>(expected.data());
  double error = 0, size = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < expected.size() / sizeof(float); ++i) {
    const double d = static_cast<double>(actual[i]) - e[i];
    error += d * d;
    size += static_cast<double>(e[i]) * e[i];
    worst = std::max(worst, std::fabs(d));
    largest = std::max(largest, std::fabs(static_cast<double>(e[i])));
  }
  return {std::sqrt(error / size), worst / largest};
}

// A network that make_models.py has written, and its graph as imported.
struct Network {
  support::TempDir folder;
  std::string name, model;
  graph::Graph graph;
};

absl::StatusOr<Network> MakeNetwork(std::vector<std::string> arguments) {
  TW_ASSIGN(support::TempDir folder, support::TempDir::Create("networks"));
  const std::string name = arguments[0], model = folder.File(name + "/model.onnx");
  arguments.insert(arguments.begin(), folder.path());
  TW_TRY(RunScript("make_models.py", arguments));
  TW_ASSIGN(const std::string bytes, support::ReadFile(model, kMaxFile));
  TW_ASSIGN(graph::Graph graph, graph::ImportOnnx(bytes));
  return Network{std::move(folder), name, model, std::move(graph)};
}

// The tasks of a network on a target, with its images in blocks of channels.
absl::StatusOr<std::vector<driver::Task>> TasksOn(const graph::Graph& imported,
                                                  const target::Target& target) {
  graph::GraphPassContext context = driver::PassContext(target);
  context.enabled = {kBlockLayouts};
  TW_ASSIGN(const graph::Graph fused, graph::RunGraphPasses(imported, context));
  return driver::ExtractTasks(fused);
}

class Networks : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Networks, CompiledOutputsMatchNumpy) {
  const auto network = MakeNetwork(GetParam());
  ASSERT_TRUE(network.ok()) << network.status();
  const support::TempDir& folder = network->folder;
  const std::string input = folder.File(network->name + "/test_data_set_0/input_0.pb");
  absl::Status evaluated = RunScript("numpy_eval.py", {network->model, input, "-o", folder.path()});
  ASSERT_TRUE(evaluated.ok()) << evaluated;
  graph::GraphPassContext blocks;
  blocks.enabled = {kBlockLayouts};
  auto fused = graph::RunGraphPasses(network->graph, blocks);
  ASSERT_TRUE(fused.ok()) << fused.status();
  driver::CompileReport report;
  auto module = driver::CompileModel(*fused, tests::WidestTarget(), nullptr, {}, &report);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_LE(static_cast<double>(report.arena_bytes),
            kArenaShare * static_cast<double>(report.arena_bound_bytes));
  auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(*module));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto feed = runtime::ReadTensorFile(input);
  auto expected = runtime::ReadTensorFile(folder.File("output_0.pb"));
  ASSERT_TRUE(feed.ok() && expected.ok());
  for (int threads : {1, 2}) {
    runtime::SessionOptions options;
    options.num_threads = threads;
    options.guard_pages = true;
    auto session = runtime::Session::Create(*loaded, options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->SetInput(0, feed->data.data(), feed->data.size()).ok());
    (*session)->Poison(0xFF);
    ASSERT_TRUE((*session)->Run().ok());
    ASSERT_TRUE((*session)->CheckGuards().ok());
    const runtime::TensorView output = (*session)->output(0);
    ASSERT_EQ(output.bytes, expected->data.size());
    const Errors errors = Difference(static_cast<const float*>(output.data), expected->data);
    std::printf("%s, %d threads: %zu kernels, |a-e|/|e| %.2g, max %.2g, arena %lld of %lld\n",
                network->name.c_str(), threads, report.kernels.size(), errors.norm, errors.max,
                static_cast<long long>(report.arena_bytes),
                static_cast<long long>(report.arena_bound_bytes));
    EXPECT_LE(errors.norm, kNorm);
    EXPECT_LE(errors.max, kMax);
  }
}

// The default schedules of a network's tasks on `text` try no step that is refused: each rule knows
// what it may do.
void ExpectNothingRefused(const graph::Graph& imported, const std::string& text) {
  SCOPED_TRACE(text);
  const auto target = target::ParseTarget(text);
  ASSERT_TRUE(target.ok()) << target.status();
  const auto tasks = TasksOn(imported, *target);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  for (const driver::Task& task : *tasks) {
    auto variants = driver::TaskVariants(task.text);
    ASSERT_TRUE(variants.ok()) << variants.status();
    schedule::Schedule schedule(*variants);
    space::Trace trace;
    space::ApplyDefaultSchedule(*target, {}, &schedule, &trace);
    const bool refused = std::any_of(trace.entries().begin(), trace.entries().end(),
                                     [](const space::Trace::Entry& e) { return e.refused; });
    EXPECT_FALSE(refused) << task.text << space::ToText(trace);
  }
}

// Of every task the default schedule is a point of the space, with neighbours; whatever else is
// drawn from the space is legal.
TEST_P(Networks, SpacesHoldTheDefaultSchedules) {
  const auto network = MakeNetwork(GetParam());
  ASSERT_TRUE(network.ok()) << network.status();
  const auto target = target::ParseTarget("cpu,arch=x86_64,cpu=znver4,threads=2");
  ASSERT_TRUE(target.ok());
  const auto tasks = TasksOn(network->graph, *target);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  support::Rng rng(1);
  int sketches = 0;
  for (const driver::Task& task : *tasks) {
    SCOPED_TRACE(task.name);
    auto variants = driver::TaskVariants(task.text);
    ASSERT_TRUE(variants.ok()) << variants.status();
    auto space = space::Space::Create(*variants, *target);
    ASSERT_TRUE(space.ok()) << space.status();
    sketches += static_cast<int>((*space)->sketches().size());
    const auto point = (*space)->DefaultPoint();
    ASSERT_TRUE(point.has_value());
    EXPECT_TRUE((*space)->Feasible(*point));
    EXPECT_FALSE((*space)->Neighbours(*point).empty());
    const auto schedule = (*space)->Apply(*point);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule::ToText(schedule->steps()), *driver::DefaultSteps(task.text, *target));
    for (int i = 0; i < 4; ++i) {
      space::Point drawn;
      ASSERT_TRUE((*space)->Sample(&rng, &drawn));
      const auto legal = (*space)->Apply(drawn);
      EXPECT_TRUE(legal.ok()) << legal.status();
    }
  }
  std::printf("%s: %zu tasks, %d sketches\n", network->name.c_str(), tasks->size(), sketches);
  for (const char* other :
       {"cpu,arch=x86_64,cpu=znver4,threads=2", "cpu,arch=x86_64,cpu=skylake",
        "cpu,arch=aarch64,cpu=cortex-a76", "opencl", "cuda,arch=sm_90a", "vulkan"}) {
    ExpectNothingRefused(network->graph, other);
  }
}

// Points of the search on a device of groups and threads lower: what the pipeline refuses costs a
// trial and teaches nothing.
void ExpectPointsLower(const graph::Graph& imported, const std::string& text, int points) {
  SCOPED_TRACE(text);
  const auto target = target::ParseTarget(text);
  ASSERT_TRUE(target.ok()) << target.status();
  const auto tasks = TasksOn(imported, *target);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  transform::PassContext context;
  context.target = *target;
  support::Rng rng(7);
  int lowered = 0;
  for (const driver::Task& task : *tasks) {
    const auto variants = driver::TaskVariants(task.text);
    ASSERT_TRUE(variants.ok()) << variants.status();
    const auto space = space::Space::Create(*variants, *target);
    ASSERT_TRUE(space.ok()) << space.status();
    for (int i = 0; i < points; ++i) {
      space::Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      const auto& sketch = *(*space)->sketches()[static_cast<size_t>(point.sketch)];
      const auto scheduled = (*space)->Apply(point);
      ASSERT_TRUE(scheduled.ok()) << sketch.name() << ": " << scheduled.status();
      const auto made =
          transform::RunPipeline(scheduled->function(), transform::GpuPipeline(), context);
      EXPECT_TRUE(made.ok()) << task.name << ", " << sketch.name() << ": "
                             << schedule::ToText(scheduled->steps()) << "\n"
                             << made.status() << "\n"
                             << task.text;
      lowered += made.ok();
    }
  }
  std::printf("%s: %zu tasks, %d points lower\n", text.c_str(), tasks->size(), lowered);
}

TEST_P(Networks, PointsOfDevicesLower) {
  const auto network = MakeNetwork(GetParam());
  ASSERT_TRUE(network.ok()) << network.status();
  constexpr int kPoints = 1;  // of each task
  ExpectPointsLower(network->graph, "cuda,arch=sm_90a", kPoints);
  ExpectPointsLower(network->graph, "opencl", kPoints);
}

using V = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    MakeModels, Networks,
    ::testing::Values(V{"dqn"}, V{"dqn", "--seed", "3"}, V{"dqn", "--size", "60", "--width", "0.5"},
                      V{"dqn", "--size", "111", "--width", "1.7", "--seed", "9"},
                      V{"resnet18", "--size", "64", "--width", "0.3", "--logits"},
                      V{"resnet50", "--size", "64", "--width", "0.2", "--seed", "2"},
                      V{"mobilenet", "--size", "96", "--width", "0.4", "--logits"}, V{"lstm_lm"},
                      V{"dcgan"}, V{"bert_small"}),
    [](const auto& info) { return info.param[0] + "_" + std::to_string(info.index); });

}  // namespace
}  // namespace tilewright
