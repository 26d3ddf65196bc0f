// A target and a device that live in the tests: with four files and a plug-in, models compile for
// the toy, run on it and compute the right numbers, and every list of kinds has it.
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/space.h"
#include "compiler/targets/backend.h"
#include "deploy/module/kernel_module.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/device_session.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "device_agent/device_spec.h"
#include "device_agent/self_test.h"
#include "device_agent/self_test_module.h"
#include "gtest/gtest.h"
#include "tests/support/equivalence.h"

namespace tilewright::toy {
namespace {

class ToyTarget : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("TILEWRIGHT_PLUGIN_DIR", TILEWRIGHT_TOY_FOLDER, 1); }

  void SetUp() override {
    auto plugin = runtime::DevicePlugin::Open(*runtime::FindDevicePlugin("toy"));
    ASSERT_TRUE(plugin.ok()) << plugin.status();
    plugin_ = *std::move(plugin);
    ASSERT_EQ(plugin_->table().open(0, &device_, nullptr, 0), TW_DEVICE_OK);
  }
  void TearDown() override { plugin_->table().close(device_); }

  // As the worker of an agent runs a candidate.
  absl::StatusOr<std::vector<uint8_t>> Measured(const std::string& module,
                                                const std::vector<std::vector<uint8_t>>& inputs);
  absl::Status RunFunction(const ir::Function& f, const std::vector<ir::TensorData*>& args);
  absl::Status ComputesTheSame(const ir::Function& f, const ir::Function& scheduled);

  const target::Target target_ = *target::ParseTarget("toy");
  std::optional<runtime::DevicePlugin> plugin_;
  TwDevice* device_ = nullptr;
};

absl::StatusOr<std::vector<uint8_t>> ToyTarget::Measured(
    const std::string& module, const std::vector<std::vector<uint8_t>>& inputs) {
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(module));
  TW_ASSIGN(auto session,
            runtime::DeviceSession::Create(std::move(file), plugin_->table(), device_, "main"));
  for (size_t i = 0; i < inputs.size(); ++i)
    std::memcpy(session->MutableInput(i), inputs[i].data(), inputs[i].size());
  TW_TRY(session->Poison(0xFF));
  TW_TRY(session->Prepare());
  TW_ASSIGN(const int64_t groups, session->Time(1));
  EXPECT_GT(groups, 0);
  TW_TRY(session->Collect());
  const runtime::TensorView out = session->output(0);
  const auto* bytes = static_cast<const uint8_t*>(out.data);
  return std::vector<uint8_t>(bytes, bytes + out.bytes);
}

// One launch that takes all parameters, of which the last is the output.
absl::StatusOr<std::string> KernelModule(const ir::Function& f, const codegen::Artifact& code) {
  const codegen::Program& program = code.programs[0];
  if (program.calls.size() != 1 || !program.temporaries.empty())
    return support::Unimplemented("test.toy.launches", "expected one launch");
  module::KernelModule kernel;
  kernel.name = f.name;
  kernel.target = "toy";
  kernel.format = code.format;
  kernel.code = code.bytes;
  for (const ir::Buffer& buffer : f.params) {
    module::KernelTensor tensor;
    tensor.name = buffer->name;
    TW_ASSIGN(tensor.dtype, driver::ModuleDType(buffer->dtype));
    for (const ir::Expr& extent : buffer->shape) tensor.shape.push_back(*ir::AsInt(extent));
    (buffer == f.params.back() ? kernel.outputs : kernel.inputs).push_back(std::move(tensor));
  }
  module::Launch& launch = kernel.launches.emplace_back();
  launch.symbol = program.calls[0].symbol;
  launch.grid = program.calls[0].grid;
  launch.group = program.calls[0].group;
  return module::SerializeKernelModule(kernel);
}

absl::Status ToyTarget::RunFunction(const ir::Function& f,
                                    const std::vector<ir::TensorData*>& args) {
  const targets::Backend& backend = targets::BackendOf(target_);
  transform::PassContext context;
  context.target = target_;
  context.verify_each = true;
  TW_ASSIGN(const ir::Function lowered, transform::RunPipeline(f, backend.pipeline(), context));
  const std::vector<ir::Function> functions = {lowered};
  TW_ASSIGN(const codegen::Artifact code, backend.generate({functions, target_, {}}));
  TW_ASSIGN(const std::string module, KernelModule(f, code));
  std::vector<std::vector<uint8_t>> inputs;
  for (size_t i = 0; i + 1 < args.size(); ++i) inputs.push_back(args[i]->bytes);
  TW_ASSIGN(args.back()->bytes, Measured(module, inputs));
  return absl::OkStatus();
}

absl::Status ToyTarget::ComputesTheSame(const ir::Function& f, const ir::Function& scheduled) {
  tests::EquivalenceOptions options;
  options.run_other = [this](const ir::Function& other, const std::vector<int64_t>&,
                             std::vector<ir::TensorData*> args) {
    return RunFunction(other, args);
  };
  return tests::SameResults(f, scheduled, options);
}

TEST_F(ToyTarget, EveryListOfKindsHasIt) {
  const target::Kind* kind = target::FindKind("toy");
  ASSERT_NE(kind, nullptr);
  EXPECT_EQ(target::KindNames(" or "),
            "cpu or cuda or hip or metal or opencl or toy or vta or vulkan");
  EXPECT_EQ(target_.ToString(), "toy");
  EXPECT_TRUE(target_.machine.has_groups());
  EXPECT_EQ(targets::BackendOf(target_).toolchain(), "c99");
  EXPECT_TRUE(device_agent::ParseDeviceSpec("toy").ok());
}

constexpr char kModel[] = R"(graph {
  input %0: f32[5,12]
  input %1: f32[12,7]
  %2: f32[5,7] = matmul(%0, %1)
  %3: f32[5,7] = relu(%2)
  %4: f32[5,7] = softmax(%3) {axis=1}
  output %4
}
)";

TEST_F(ToyTarget, AModelCompilesAndComputesTheSame) {
  auto graph = graph::ParseGraph(kModel);
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto fused = graph::RunGraphPasses(*graph);
  ASSERT_TRUE(fused.ok()) << fused.status();
  auto module = driver::CompileModel(*fused, target_, nullptr, {}, nullptr);
  ASSERT_TRUE(module.ok()) << module.status();
  auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(*module));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_STREQ((*loaded)->device_plugin()->kind, "toy");
  auto session = runtime::Session::Create(*loaded);
  ASSERT_TRUE(session.ok()) << session.status();
  (*session)->Poison(0xFF);
  support::Rng rng(1);
  std::vector<op::RefTensor> inputs;
  for (size_t i = 0; i < graph->inputs.size(); ++i) {
    op::RefTensor& input = inputs.emplace_back();
    input.type = graph->values[graph->inputs[i]].type;
    input.values.resize(i == 0 ? 5 * 12 : 12 * 7);
    for (double& value : input.values) value = static_cast<float>(rng.UniformDouble() * 2 - 1);
    const std::string bytes = op::ToBytes(input);
    ASSERT_TRUE((*session)->SetInput(i, bytes.data(), bytes.size()).ok());
  }
  ASSERT_EQ((*session)->Run(), absl::OkStatus());
  auto expected = graph::Interpret(*graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto* actual = static_cast<const float*>((*session)->output(0).data);
  for (size_t i = 0; i < (*expected)[0].values.size(); ++i)
    EXPECT_NEAR(actual[i], (*expected)[0].values[i], 1e-5) << i;
}

// Sums of u8 x i8 over groups of four, packed for four lanes.
constexpr char kDots[] =
    R"(fn dots(A: u8[3,20] input, W: i8[2,5,4,4] constant, C: i32[3,2,4] output) stage=scheduled {
  for i in 0..3 {
    for jo in 0..2 {
      for ko in 0..5 {
        for ji in 0..4 {
          for ki in 0..4 {
            block C(vi: spatial 0..3 = i, vj: spatial 0..2 = jo, vl: spatial 0..4 = ji,
                    vo: reduce 0..5 = ko, vk: reduce 0..4 = ki) {
              reads A[vi:1, vo * 4 + vk:1], W[vj:1, vo:1, vl:1, vk:1];
              writes C[vi:1, vj:1, vl:1];
              init {
                C[vi, vj, vl] = 0i32;
              }
              C[vi, vj, vl] = C[vi, vj, vl] + i32(A[vi, vo * 4 + vk]) * i32(W[vj, vo, vl, vk]);
            }
          }
        }
      }
    }
  }
}
)";

TEST_F(ToyTarget, ATensorIntrinsicIsItsInstruction) {
  auto function = ir::ParseFunction(kDots);
  ASSERT_TRUE(function.ok()) << function.status();
  schedule::Schedule schedule(*function);
  const absl::Status applied = schedule.ApplyAll(
      *schedule::ParseSteps("bind %0 blockIdx.x; tensorize %3 intrin=toy.dot4.4"));
  ASSERT_TRUE(applied.ok()) << applied;
  transform::PassContext context;
  context.target = target_;
  const targets::Backend& backend = targets::BackendOf(target_);
  auto lowered = transform::RunPipeline(schedule.function(), backend.pipeline(), context);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const std::vector<ir::Function> functions = {*lowered};
  auto code = backend.generate({functions, target_, {}});
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_NE(code->bytes.find("= toy_dot4("), std::string::npos) << code->bytes;
  const absl::Status same = ComputesTheSame(*function, schedule.function());
  EXPECT_TRUE(same.ok()) << same << "\n" << code->bytes;
}

TEST_F(ToyTarget, PointsOfItsSpaceComputeTheSame) {
  auto function = ir::ParseFunction(kDots);
  ASSERT_TRUE(function.ok()) << function.status();
  auto space = space::Space::Create(*function, target_);
  ASSERT_TRUE(space.ok()) << space.status();
  support::Rng rng(1);
  for (int i = 0; i < 5; ++i) {
    space::Point point;
    ASSERT_TRUE((*space)->Sample(&rng, &point));
    auto schedule = (*space)->Apply(point);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const absl::Status same = ComputesTheSame(*function, schedule->function());
    EXPECT_TRUE(same.ok()) << same << "\n" << schedule->Describe();
  }
}

// What an agent runs before it measures on a device.
TEST_F(ToyTarget, ItsPluginPassesTheSelfTestOfAgents) {
  auto module = device_agent::SelfTestModule(plugin_->table());
  ASSERT_TRUE(module.ok()) << module.status();
  const auto n = static_cast<size_t>(device_agent::kSelfTestElements);
  std::vector<float> x(n), y(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 7);
  std::vector<uint8_t> bytes(n * sizeof(float));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  auto out = Measured(*module, {bytes});
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_EQ(out->size(), bytes.size());
  std::memcpy(y.data(), out->data(), out->size());
  for (size_t i = 0; i < n; ++i) {
    float sum = 0;
    for (size_t j = 0; j < 16; ++j) sum += static_cast<float>(j + 1) / 8 * x[(i + j) % n];
    ASSERT_EQ(y[i], sum) << i;
  }
}

}  // namespace
}  // namespace tilewright::toy
