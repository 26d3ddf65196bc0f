// From a model's bytes to numbers: tasks, compiled modules run by the runtime against the graph
// interpreter, schedules from a provider, candidates as the agent measures them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/driver/in_place.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/structural.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/backend.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/runtime/result_check.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"
#include "tests/unit/onnx_builder.h"
#include "tests/unit/packing_steps.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using op::RefTensor;
using tests::OnnxBuilder;

Graph Fused(const OnnxBuilder& b) {
  auto g = graph::ImportOnnx(b.Bytes());
  EXPECT_TRUE(g.ok()) << g.status();
  auto fused = graph::RunGraphPasses(*g);
  EXPECT_TRUE(fused.ok()) << fused.status();
  return *fused;
}

// Two equal convolutions, a branch, several kinds of outputs.
OnnxBuilder Twins() {
  OnnxBuilder b;
  b.Input("x", {1, 6, 7, 5}).Weight("w1", {6, 6, 3, 3}, 0.3).Weight("w2", {6, 6, 3, 3}, 0.3);
  for (int i : {1, 2}) {
    const std::string n = std::to_string(i);
    auto* conv = b.Node("Conv", {i == 1 ? "x" : "r1", "w" + n}, "c" + n);
    OnnxBuilder::Attr(conv, "pads", std::vector<int64_t>{1, 1, 1, 1});
    b.Node("Relu", {"c" + n}, "r" + n);
  }
  b.Node("Add", {"r2", "x"}, "sum");
  OnnxBuilder::Attr(b.Node("Flatten", {"r1"}, "flat"), "axis", int64_t{1});
  OnnxBuilder::Attr(b.Node("Softmax", {"flat"}, "soft"), "axis", int64_t{1});
  b.Output("sum", {1, 6, 7, 5})
      .Output("flat", {1, 210})
      .Output("soft", {1, 210})
      .Output("x", {1, 6, 7, 5});
  return b;
}

struct Compiled {
  std::string bytes;
  CompileReport report;
};

Compiled Compile(const Graph& fused, ScheduleProvider* schedules = nullptr) {
  Compiled c;
  auto bytes = CompileModel(fused, tests::WidestTarget(), schedules, {}, &c.report);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (bytes.ok()) c.bytes = *bytes;
  return c;
}

// Runs the module on seeded inputs and compares every output with the graph interpreter.
void ExpectRunsLikeInterpreter(const std::string& bytes, const Graph& fused, int threads) {
  auto file = module::ModuleFile::FromBytes(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  auto loaded = runtime::LoadedModule::Load(*std::move(file));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  runtime::SessionOptions options;
  options.num_threads = threads;
  options.guard_pages = true;
  auto session = runtime::Session::Create(*loaded, options);
  ASSERT_TRUE(session.ok()) << session.status();
  support::Rng rng(tests::TestSeed());
  std::vector<RefTensor> inputs;
  for (size_t i = 0; i < fused.inputs.size(); ++i) {
    RefTensor tensor{fused.values[fused.inputs[i]].type, {}};
    for (int64_t e = 0; e < tensor.type.elements(); ++e) {
      tensor.values.push_back(op::RoundToType(2 * rng.UniformDouble() - 1, tensor.type.dtype));
    }
    const std::string raw = op::ToBytes(tensor);
    ASSERT_TRUE((*session)->SetInput(i, raw.data(), raw.size()).ok());
    inputs.push_back(std::move(tensor));
  }
  auto expected = graph::Interpret(fused, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  (*session)->Poison(0xFF);
  ASSERT_TRUE((*session)->Run().ok());
  ASSERT_TRUE((*session)->CheckGuards().ok());
  ASSERT_EQ((*session)->num_outputs(), expected->size());
  for (size_t o = 0; o < expected->size(); ++o) {
    const runtime::TensorView view = (*session)->output(o);
    EXPECT_EQ(view.tensor->name, fused.values[fused.outputs[o]].name);
    auto actual =
        op::FromBytes((*expected)[o].type, {static_cast<const char*>(view.data), view.bytes});
    ASSERT_TRUE(actual.ok()) << actual.status();
    double error = 0, norm = 0;
    for (size_t i = 0; i < actual->values.size(); ++i) {
      const double d = actual->values[i] - (*expected)[o].values[i];
      error += d * d;
      norm += (*expected)[o].values[i] * (*expected)[o].values[i];
    }
    EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(norm)) << view.tensor->name;
    EXPECT_GT(norm, 0);
  }
}

TEST(Tasks, ChannelBlocksAreVectorsOrLinesWhereRegistersAreMany) {
  const auto block = [](const char* target) {
    return PassContext(*target::ParseTarget(target)).channel_block;
  };
  EXPECT_EQ(block("cpu,arch=x86_64,cpu=znver4"), 16);
  EXPECT_EQ(block("cpu,arch=x86_64,cpu=haswell"), 8);
  EXPECT_EQ(block("cpu,arch=x86_64,cpu=x86-64"), 4);
  // 32 registers of 16 bytes: tiles of several vectors load fewer values for each product.
  EXPECT_EQ(block("cpu,arch=aarch64,cpu=cortex-a76"), 16);
}

TEST(Tasks, DenseLayersKeepTheWeightsThatTheMachineWidensFast) {
  const auto weights = [](const char* target) {
    return PassContext(*target::ParseTarget(target)).half_weights;
  };
  const std::vector<ir::DType> both = {ir::kBF16, ir::kF16};
  EXPECT_EQ(weights("cpu,arch=x86_64,cpu=haswell"), both);
  EXPECT_EQ(weights("cpu,arch=aarch64,cpu=cortex-a53"), both);
  EXPECT_EQ(weights("cpu,arch=x86_64,cpu=x86-64-v2"), std::vector<ir::DType>{ir::kBF16});
  EXPECT_EQ(weights("cuda,arch=sm_90a"), std::vector<ir::DType>{});
}

TEST(Tasks, ProductsReadBothFactorsWhereAnInstructionWidensThem) {
  const auto factors = [](const char* target) {
    return PassContext(*target::ParseTarget(target)).half_factors;
  };
  EXPECT_EQ(factors("cpu,arch=aarch64,cpu=neoverse-v1"), std::vector<ir::DType>{ir::kF16});
  EXPECT_EQ(factors("cpu,arch=aarch64,cpu=cortex-a76"), std::vector<ir::DType>{});
  EXPECT_EQ(factors("cpu,arch=x86_64,cpu=sapphirerapids"), std::vector<ir::DType>{});
}

TEST(Tasks, UniqueByTextWithWeights) {
  const Graph fused = Fused(Twins());
  auto tasks = ExtractTasks(fused);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  std::map<std::string, int> weights;
  for (const Task& task : *tasks) {
    EXPECT_EQ(task.hash, support::Sha256Hex(task.text));
    EXPECT_EQ(task.hash.size(), 64u);
    weights[task.name.substr(0, task.name.find(' '))] = task.weight;
    auto again = MakeTask(task.text);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->name, task.name);
    EXPECT_EQ(again->flops, task.flops);
  }
  EXPECT_EQ(weights["conv2d_relu"], 1);  // the second one adds x
  EXPECT_EQ(weights["conv2d_relu_add"], 1);

  OnnxBuilder same;
  same.Input("x", {1, 4, 6, 6}).Output("y", {1, 4, 6, 6});
  std::string x = "x";
  for (int i = 0; i < 3; ++i) {
    const std::string n = "c" + std::to_string(i);
    same.Weight(n + "w", {4, 4, 3, 3});
    OnnxBuilder::Attr(same.Node("Conv", {x, n + "w"}, i == 2 ? "y" : n), "pads",
                      std::vector<int64_t>{1, 1, 1, 1});
    x = n;
  }
  tasks = ExtractTasks(Fused(same));
  ASSERT_TRUE(tasks.ok());
  ASSERT_EQ(tasks->size(), 1u);
  EXPECT_EQ((*tasks)[0].weight, 3);
  EXPECT_EQ((*tasks)[0].name, "conv2d 1x4x6x6 → 1x4x6x6 k3x3");
}

// What people meet in a profile, in the log and in the model are names of one thing.
TEST(Tasks, KnowTheirLaunchesAndOnnxNodes) {
  OnnxBuilder b;
  b.Input("x", {1, 4, 6, 6}).Output("y", {1, 4, 6, 6});
  b.Weight("w", {4, 4, 3, 3}).Weight("v", {4, 4, 3, 3}).Weight("bias", {4});
  const auto conv = [&](const std::vector<std::string>& inputs, const std::string& output,
                        const std::string& name) {
    auto* node = b.Node("Conv", inputs, output);
    OnnxBuilder::Attr(node, "pads", std::vector<int64_t>{1, 1, 1, 1});
    node->set_name(name);
  };
  conv({"x", "w", "bias"}, "a", "Conv_0");
  b.Node("Relu", {"a"}, "r")->set_name("Relu_1");
  conv({"r", "v", "bias"}, "c", "Conv_2");
  b.Node("Relu", {"c"}, "y")->set_name("");
  const auto tasks = ExtractTasks(Fused(b));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 1u);
  const Task& task = (*tasks)[0];
  EXPECT_EQ(task.label, "t0-conv2d-add-relu");
  EXPECT_EQ(task.data_type, "float32");
  ASSERT_EQ(task.uses.size(), 2u);
  EXPECT_EQ(task.uses[0], (module::LaunchNames{task.label, "r", {"Conv_0", "Relu_1"}}));
  EXPECT_EQ(task.uses[1], (module::LaunchNames{task.label, "y", {"Conv_2", "y"}}))
      << "a node without a name has that of its output";
}

TEST(Tasks, TextMustBeCanonical) {
  const std::string text = (*ExtractTasks(Fused(OnnxBuilder::Dqn(36, 4, 4, 4, 8))))[0].text;
  EXPECT_TRUE(ParseTask(text).ok());
  EXPECT_EQ(support::Slug(ParseTask(text + "\n").status()), "driver.task.text");
  EXPECT_EQ(support::Slug(ParseTask(" " + text).status()), "driver.task.text");
  EXPECT_FALSE(ParseTask("").ok());
  EXPECT_FALSE(ParseTask("graph {\n  input %0: f32[2]\n  output %0\n}\n").ok());
}

// The unscheduled function of every task of two models, run by the IR interpreter, is the
// reference.
TEST(Tasks, FunctionMatchesReference) {
  for (const OnnxBuilder& b : {OnnxBuilder::Dqn(36, 6, 5, 4, 7), Twins()}) {
    auto tasks = ExtractTasks(Fused(b));
    ASSERT_TRUE(tasks.ok()) << tasks.status();
    for (const Task& task : *tasks) {
      SCOPED_TRACE(task.name);
      auto function = TaskFunction(task.text);
      ASSERT_TRUE(function.ok()) << function.status();
      auto body = ParseTask(task.text);
      auto check = MakeTaskCheck(task, 5);
      ASSERT_TRUE(check.ok()) << check.status();
      auto inputs = TaskInputs(*body, 5);
      ASSERT_TRUE(inputs.ok());
      std::vector<ir::TensorData> data(inputs->size() + 1);
      std::vector<ir::TensorData*> args;
      for (size_t i = 0; i < inputs->size(); ++i) {
        const std::string bytes = op::ToBytes(*MakeInput((*inputs)[i]));
        data[i].bytes.assign(bytes.begin(), bytes.end());
      }
      for (auto& d : data) args.push_back(&d);
      ASSERT_TRUE(ir::Interpret(*function, {}, args).ok()) << ir::Interpret(*function, {}, args);
      ASSERT_EQ(data.back().bytes.size(), check->expected_bytes.size());
      auto result = runtime::CompareTensors(
          module::DType::kFloat32, data.back().bytes.data(), check->expected_bytes.data(),
          static_cast<int64_t>(check->expected_bytes.size() / 4), {check->atol, check->rtol});
      EXPECT_TRUE(result.ok()) << runtime::CompareText(result);
      // A tolerance that accepts zeros would check nothing.
      const std::string zeros(check->expected_bytes.size(), '\0');
      EXPECT_FALSE(runtime::CompareTensors(
                       module::DType::kFloat32, zeros.data(), check->expected_bytes.data(),
                       static_cast<int64_t>(zeros.size() / 4), {check->atol, check->rtol})
                       .ok());
    }
  }
}

// Scalars become literals of the program.
TEST(Tasks, LiteralsOf64BitsAreExact) {
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();  // no double is it
  OnnxBuilder b(17);
  b.Input("x", {2}, tests::pb::TensorProto::INT64).Output("y", {2}, tests::pb::TensorProto::INT64);
  b.Ints("large", {kLarge}).Node("Sub", {"large", "x"}, "y");
  const auto tasks = ExtractTasks(Fused(b));
  ASSERT_TRUE(tasks.ok() && tasks->size() == 1) << tasks.status();
  const auto function = TaskFunction((*tasks)[0].text);
  ASSERT_TRUE(function.ok()) << function.status();
  const auto inputs = TaskInputs(*ParseTask((*tasks)[0].text), 1);
  ASSERT_TRUE(inputs.ok() && inputs->size() == 1) << "the number is no operand";
  ir::TensorData x, y;
  const std::string bytes = op::ToBytes(op::FromIntegers({ir::kI64, {2}}, {0, 5}));
  x.bytes.assign(bytes.begin(), bytes.end());
  ASSERT_TRUE(ir::Interpret(*function, {}, {&x, &y}).ok());
  const auto out = op::FromBytes({ir::kI64, {2}}, std::string(y.bytes.begin(), y.bytes.end()));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(op::IntegersOf(*out), (std::vector<int64_t>{kLarge, kLarge - 5}));
}

TEST(Tasks, HostileTasksAreErrors) {
  // 60 gelus as one expression would be 2^60 operations.
  std::string text = "graph {\n  input %0: f32[2]\n";
  for (int i = 1; i <= 60; ++i) {
    text += "  %" + std::to_string(i) + ": f32[2] = gelu(%" + std::to_string(i - 1) + ")\n";
  }
  text += "  output %60\n}\n";
  EXPECT_EQ(support::Slug(TaskFunction(text).status()), "driver.task.expression");
  const std::string constant =
      "graph {\n  constant %0: f32[1,2] = hex:0000803f00000040\n  input %1: f32[2,2]\n"
      "  %2: f32[1,2] = dense(%0, %1) {weight_layout=\"KN\"}\n  output %2\n}\n";
  auto odd = ParseTask(constant);
  EXPECT_EQ(support::Slug(odd.status()),
            "driver.task.text");  // inputs come first in canonical text
}

// Task text comes over the network: changed numbers, words and structure must give a function or an
// error.
TEST(Tasks, MutatedTextsNeverCrash) {
  std::vector<std::string> texts = {
      "graph {\n  input %0: f32[2,3,5]\n  input %1: i64[4]\n"
      "  %2: f32[2,4,5] = gather(%0, %1) {axis=1}\n"
      "  %3: f32[2,6,5] = pad(%2) {pads=[0,1,0,0,1,0], value=0.5}\n"
      "  %4: f32[2,3,5] = slice(%3) {sizes=[2,3,5], starts=[0,5,0], steps=[1,-2,1]}\n"
      "  %5: f32[2,6,5] = concat(%4, %0) {axis=1}\n"
      "  %6: f32[2,5,6] = transpose(%5) {perm=[0,2,1]}\n"
      "  %7: f32[10,6] = reshape(%6) {shape=[10,6]}\n"
      "  %8: f32[10,6] = softmax(%7) {axis=1}\n  output %8\n}\n",
      "graph {\n  input %0: f32[1,2,6,6]\n  weight %1: f32[2,3,3,3]\n"
      "  %2: f32[1,3,13,13] = conv2d_transpose(%0, %1) {dilations=[1,1], groups=1, "
      "output_padding=[0,0], pads=[0,0,0,0], strides=[2,2]}\n"
      "  %3: f32[1,3,6,6] = pool2d(%2) {count_include_pad=0, dilations=[1,1], kernel=[3,3], "
      "kind=\"avg\", pads=[0,0,0,0], strides=[2,2]}\n"
      "  %4: f32[1,3,1,1] = reduce(%3) {axes=[2,3], keepdims=1, kind=\"mean\"}\n"
      "  output %4\n}\n"};
  for (const OnnxBuilder& b : {OnnxBuilder::Dqn(36, 4, 4, 4, 8), Twins()}) {
    const auto tasks = ExtractTasks(Fused(b));
    ASSERT_TRUE(tasks.ok()) << tasks.status();
    for (const Task& task : *tasks) texts.push_back(task.text);
  }
  for (const std::string& text : texts) {
    ASSERT_TRUE(TaskFunction(text).ok()) << TaskFunction(text).status() << text;
  }
  support::Rng rng(tests::TestSeed());
  int64_t accepted = 0;
  const int64_t rounds = tests::TestRounds(20000);
  for (int64_t round = 0; round < rounds; ++round) {
    std::string text = rng.Choice(texts);
    for (uint64_t edits = 1 + rng.Uniform(2); edits > 0; --edits) {
      const size_t at = rng.Uniform(text.size());
      if (text[at] >= '0' && text[at] <= '9') {
        text[at] = static_cast<char>('0' + rng.Uniform(10));
      } else if (rng.Bernoulli(0.3)) {
        text[at] = static_cast<char>(rng.Uniform(128));
      } else if (rng.Bernoulli(0.2)) {
        text.erase(at, 1 + rng.Uniform(6));
      }
    }
    auto function = TaskFunction(text);
    if (!function.ok()) {
      ASSERT_FALSE(support::Slug(function.status()).empty()) << function.status();
      continue;
    }
    ++accepted;
    ASSERT_TRUE(ParseTask(text).ok());
  }
  EXPECT_GT(accepted, rounds / 100);
}

TEST(Backends, EverySupportedKindHasOne) {
  for (const target::Kind& kind : target::Kinds()) {
    const targets::Backend& backend = targets::BackendOf(*target::ParseTarget(kind.name));
    EXPECT_FALSE(backend.pipeline().empty()) << kind.name;
    EXPECT_FALSE(backend.toolchain().empty()) << kind.name;
    EXPECT_EQ(backend.on_device, kind.families[0].arch.empty()) << kind.name;
    EXPECT_GE(backend.alignment, 1) << kind.name;
  }
}

TEST(Compile, SmallDqnRunsLikeTheInterpreter) {
  for (int64_t size : {36, 44, 52}) {
    const Graph fused = Fused(OnnxBuilder::Dqn(size, 8, 16, 12, 33));
    const Compiled c = Compile(fused);
    EXPECT_EQ(c.report.kernels.size(), 5u);
    for (int threads : {1, 2}) ExpectRunsLikeInterpreter(c.bytes, fused, threads);
    EXPECT_TRUE(Compile(fused).bytes == c.bytes) << "same inputs, other bytes";
  }
}

// Searches among scores: ranks have as many lanes as floats, and each stage of a pick has lanes.
TEST(DefaultSteps, OrdersAndPicksHaveLanes) {
  const auto target = target::ParseTarget("cpu,arch=x86_64,cpu=znver4,threads=1");
  const auto steps = [&](const std::string& body) {
    const auto task = graph::ParseGraph("graph {\n" + body + "}\n");
    EXPECT_TRUE(task.ok()) << task.status();
    const auto found = DefaultSteps(graph::CanonicalText(*task), *target);
    EXPECT_TRUE(found.ok()) << found.status();
    return *found;
  };
  const std::string ranks =
      steps("  input %0: f32[640]\n  %1: i64[9] = top_k(%0) {k=9}\n  output %1\n");
  EXPECT_NE(ranks.find(",16]"), std::string::npos) << ranks;
  const std::string picks = steps(
      "  input %0: f32[1,5,640]\n  input %1: f32[1,1,640]\n  input %2: f32[]\n"
      "  input %3: f32[]\n  %4: i64[1,1,64] = pick_boxes(%0, %1, %2, %3) {picks=64}\n"
      "  output %4\n");
  int vectorized = 0;
  for (size_t at = 0; (at = picks.find("vectorize", at)) != std::string::npos; ++at) ++vectorized;
  EXPECT_GE(vectorized, 5) << picks;  // the scores, their best, its place, what is left, the result
}

TEST(InPlace, OnlyOperandsReadWhereTheOutputIsWritten) {
  auto operands = [](const std::string& body, const std::string& more_steps = "") {
    const std::string text = "graph {\n" + body + "}\n";
    auto task = graph::ParseGraph(text);
    EXPECT_TRUE(task.ok()) << task.status() << text;
    auto function = TaskFunction(*task);
    auto steps = DefaultSteps(graph::CanonicalText(*task), tests::WidestTarget());
    EXPECT_TRUE(function.ok() && steps.ok()) << function.status() << steps.status();
    auto scheduled = schedule::Replay(*function, *steps);
    EXPECT_TRUE(scheduled.ok()) << scheduled.status();
    return InPlaceOperands(*scheduled, *steps + more_steps);
  };
  using Positions = std::vector<int>;
  const std::string elementwise =
      "  input %0: f32[8,8]\n  input %1: f32[8,8]\n  input %2: f32[8]\n"
      "  %3: f32[8,8] = add(%0, %1)\n  %4: f32[8,8] = mul(%3, %2)\n  output %4\n";
  EXPECT_EQ(operands(elementwise), (Positions{0, 1}));
  EXPECT_EQ(operands(elementwise, "; split %1 [?,3] tail=overlap"), Positions{});
  EXPECT_EQ(operands("  input %0: f32[8,8]\n  input %1: f32[8,8]\n"
                     "  %2: f32[8,8] = transpose(%0) {perm=[1,0]}\n"
                     "  %3: f32[8,8] = add(%2, %1)\n  output %3\n"),
            Positions{1});
  EXPECT_EQ(operands("  input %0: f32[8,8]\n  input %1: f32[8,8]\n  weight %2: f32[8,8]\n"
                     "  %3: f32[8,8] = dense(%0, %2) {weight_layout=\"KN\"}\n"
                     "  %4: f32[8,8] = add(%3, %1)\n  %5: f32[8,8] = relu(%4)\n  output %5\n"),
            Positions{1});
  EXPECT_EQ(operands("  input %0: f32[8,8]\n  %1: f32[8,8] = softmax(%0) {axis=1}\n  output %1\n"),
            Positions{});
}

TEST(InPlace, ResidualNetworkNeedsTwoBuffers) {
  OnnxBuilder b;
  b.Input("x", {1, 4, 6, 6}).Weight("w", {4, 4, 3, 3}, 0.2);
  std::string last = "x";
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    OnnxBuilder::Attr(b.Node("Conv", {last, "w"}, "c" + n), "pads",
                      std::vector<int64_t>{1, 1, 1, 1});
    b.Node("Add", {"c" + n, last}, "s" + n);
    b.Node("Relu", {"s" + n}, "r" + n);
    OnnxBuilder::Attr(b.Node("Conv", {"r" + n, "w"}, "d" + n), "pads",
                      std::vector<int64_t>{1, 1, 1, 1});
    b.Node("Add", {"d" + n, "r" + n}, "t" + n);
    last = "t" + n;
  }
  b.Node("Relu", {last}, "y");
  b.Output("y", {1, 4, 6, 6});
  const Graph fused = Fused(b);
  const Compiled c = Compile(fused);
  EXPECT_EQ(c.report.arena_bytes, 2 * 4 * 6 * 6 * 4);  // a convolution's operand and its result
  EXPECT_EQ(c.report.arena_bound_bytes, c.report.arena_bytes);
  for (int threads : {1, 2}) ExpectRunsLikeInterpreter(c.bytes, fused, threads);
}

TEST(Compile, OutputsOfEveryKindAndSharedKernels) {
  const Graph fused = Fused(Twins());
  const Compiled c = Compile(fused);
  ExpectRunsLikeInterpreter(c.bytes, fused, 2);
  auto file = module::ModuleFile::FromBytes(c.bytes);
  ASSERT_TRUE(file.ok());
  const module::Manifest& m = file->manifest();
  EXPECT_EQ(m.arena_bytes, c.report.arena_bytes);
  for (const module::Launch& launch : m.functions[0].launches) {
    EXPECT_EQ(launch.task.size(), 64u);
    EXPECT_EQ(launch.program_hash.size(), 16u);
  }
}

class FixedProvider : public ScheduleProvider {
 public:
  Found Find(const std::string& task_hash, const target::Target&) override {
    return found[task_hash];
  }
  std::map<std::string, Found> found;
};

TEST(Compile, ProvidedSchedulesAreAppliedUnlessStale) {
  const Graph fused = Fused(OnnxBuilder::Dqn(36, 8, 8, 8, 16));
  auto tasks = ExtractTasks(fused);
  ASSERT_TRUE(tasks.ok());
  FixedProvider provider;
  auto provide = [&](const Task& task, const std::string& steps) {
    auto scheduled = schedule::Replay(*TaskFunction(task.text), steps);
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    provider.found[task.hash] = {steps, ir::ProgramHash(*scheduled), "m-" + task.hash.substr(0, 4)};
  };
  // %2 is the second loop of the first block.
  provide((*tasks)[0], "split %1 [?,4]");
  provide((*tasks)[1], "split %1 [?,3]");
  provider.found[(*tasks)[1].hash].program_hash = "0123456789abcdef";
  provider.found[(*tasks)[2].hash] = {"split %999 [2,2]", "0", "bad"};
  const Compiled c = Compile(fused, &provider);
  ASSERT_EQ(c.report.kernels.size(), 5u);
  EXPECT_TRUE(c.report.kernels[0].tuned);
  EXPECT_EQ(c.report.kernels[0].steps, "split %1 [?,4]");
  EXPECT_TRUE(c.report.kernels[1].stale && !c.report.kernels[1].tuned);
  EXPECT_NE(c.report.kernels[1].stale_reason.find("recorded as 0123456789abcdef"),
            std::string::npos);
  EXPECT_TRUE(c.report.kernels[2].stale);
  EXPECT_NE(c.report.kernels[2].stale_reason.find("schedule."), std::string::npos);
  EXPECT_FALSE(c.report.kernels[3].tuned || c.report.kernels[3].stale);
  ExpectRunsLikeInterpreter(c.bytes, fused, 1);
  auto file = module::ModuleFile::FromBytes(c.bytes);
  EXPECT_EQ(file->manifest().provenance.at("log_records"), c.report.kernels[0].measurement_id);
  const auto names =
      module::ParseLaunchNames(file->manifest().provenance.at(module::LaunchNamesKey("main")));
  const auto& launches = file->manifest().FindFunction("main")->launches;
  ASSERT_EQ(names.size(), launches.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i].launch, launches[i].name);
    EXPECT_TRUE(names[i].task.starts_with("t")) << names[i].task;
    EXPECT_FALSE(names[i].nodes.empty()) << names[i].launch;
  }
}

// Weights that a schedule packs are packed once: by a launch of their own, before the first run.
TEST(Compile, PackedWeightsArePreparedOnce) {
  OnnxBuilder b;
  b.Input("x", {3, 10}).Weight("w", {10, 20}, 0.5).Output("y", {3, 20});
  b.Node("MatMul", {"x", "w"}, "y");
  const Graph fused = Fused(b);
  auto tasks = ExtractTasks(fused);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 1u);
  FixedProvider provider;
  provider.found[tasks->front().hash] = tests::PackingSteps(tasks->front().text);
  ASSERT_FALSE(provider.found[tasks->front().hash].steps.empty());
  const Compiled c = Compile(fused, &provider);
  ASSERT_EQ(c.report.kernels.size(), 1u);
  EXPECT_TRUE(c.report.kernels[0].tuned) << c.report.kernels[0].stale_reason;
  auto file = module::ModuleFile::FromBytes(c.bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const module::Function* main = file->manifest().FindFunction("main");
  ASSERT_EQ(main->prepare.size(), 1u);
  EXPECT_EQ(main->launches.size(), 1u);
  EXPECT_EQ(main->launches[0].args.size(), 4u);  // x, w, the packed w, y
  ExpectRunsLikeInterpreter(c.bytes, fused, 1);
}

// Runs a candidate as the agent does: generated inputs, outputs against the expected bytes.
runtime::CompareResult RunCandidate(const std::string& bytes, const TaskCheck& check) {
  auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(bytes));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  const module::Manifest& m = (*loaded)->manifest();
  auto session = runtime::Session::Create(*loaded);
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(m.measurement->inputs.size(), (*session)->num_inputs());
  for (size_t i = 0; i < (*session)->num_inputs(); ++i) {
    const runtime::TensorView view = (*session)->input(i);
    const module::InputSpec& spec = m.measurement->inputs[i];
    EXPECT_TRUE(runtime::GenerateInput(view.tensor->dtype, *module::NumElements(view.tensor->shape),
                                       spec.distribution, spec.seed, (*session)->MutableInput(i))
                    .ok());
  }
  (*session)->Poison(0xFF);
  EXPECT_TRUE((*session)->Run().ok());
  EXPECT_EQ(m.measurement->expected_digest, support::Sha256Hex(check.expected_bytes));
  return runtime::CompareTensors(
      (*session)->output(0).tensor->dtype, (*session)->output(0).data, check.expected_bytes.data(),
      static_cast<int64_t>(check.expected_bytes.size() / 4), m.measurement->tolerance);
}

TEST(Candidate, DefaultScheduleOfEveryTaskPassesItsCheck) {
  const target::Target target = tests::WidestTarget();
  for (const OnnxBuilder& b : {OnnxBuilder::Dqn(44, 8, 12, 7, 33), Twins()}) {
    const auto tasks = ExtractTasks(Fused(b));
    ASSERT_TRUE(tasks.ok()) << tasks.status();
    for (const Task& task : *tasks) {
      SCOPED_TRACE(task.name);
      auto check = MakeTaskCheck(task, 11);
      ASSERT_TRUE(check.ok()) << check.status();
      auto steps = DefaultSteps(task.text, target);
      ASSERT_TRUE(steps.ok()) << steps.status();
      auto built = BuildCandidate(task.text, *steps, target, &*check);
      ASSERT_TRUE(built.ok()) << built.status();
      const runtime::CompareResult result = RunCandidate(built->module_bytes, *check);
      EXPECT_TRUE(result.ok()) << runtime::CompareText(result);
      EXPECT_EQ(built->program_hash,
                ir::ProgramHash(*schedule::Replay(*TaskFunction(task.text), *steps)));
      EXPECT_TRUE(BuildCandidate(task.text, *steps, target, &*check)->module_bytes ==
                  built->module_bytes);
      auto unscheduled = BuildCandidate(task.text, "", target, &*check);
      ASSERT_TRUE(unscheduled.ok()) << unscheduled.status();
      EXPECT_TRUE(RunCandidate(unscheduled->module_bytes, *check).ok());
    }
  }
}

// Where a target lets products round, their check allows as much: less than a missing term.
TEST(TaskCheck, RoundedFactorsWidenTheToleranceOfProducts) {
  const auto error = [](const std::string& type, const char* op, const char* target) {
    const auto task = ParseTask("graph {\n  input %0: " + type + "[8,256]\n  input %1: " + type +
                                "[256,8]\n  %2: f32[8,8] = " + op + "(%0, %1)\n  output %2\n}\n");
    EXPECT_TRUE(task.ok()) << task.status();
    return RoundedProductError(*task, target::ParseTarget(target)->machine);
  };
  EXPECT_EQ(error("f32", "matmul", "cuda,arch=sm_80"), 0);
  EXPECT_EQ(error("f16", "matmul", "cuda,arch=sm_80,tf32=on"), 0);
  const double rounded = error("f32", "matmul", "cuda,arch=sm_80,tf32=on");
  EXPECT_GT(rounded, 0.01);
  EXPECT_LT(rounded, 0.1);
}

TEST(Candidate, PackedWeightsPassTheCheck) {
  OnnxBuilder b;
  b.Input("x", {3, 10}).Weight("w", {10, 20}, 0.5).Output("y", {3, 20});
  b.Node("MatMul", {"x", "w"}, "y");
  auto tasks = ExtractTasks(Fused(b));
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  const Task& task = tasks->front();
  auto function = TaskFunction(task.text);
  ASSERT_TRUE(function.ok()) << function.status();
  auto check = MakeTaskCheck(task, 7);
  ASSERT_TRUE(check.ok()) << check.status();
  schedule::Schedule s(*function);
  std::string steps = "cache_read %" + std::to_string(s.BlockHandle(s.BlockNames().back())) +
                      " read=1 scope=global";
  auto built = BuildCandidate(task.text, steps, tests::WidestTarget(), &*check);
  ASSERT_TRUE(built.ok()) << built.status();
  auto file = module::ModuleFile::FromBytes(built->module_bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->manifest().FindFunction("main")->prepare.size(), 1u);
  EXPECT_TRUE(RunCandidate(built->module_bytes, *check).ok());
}

// The shortest of many walks over an input's cache lines, one load after the other, that follow
// EvictFar: of memory each line costs several times what it costs of a cache, on every machine.
// (The kernel's own time says less: a prefetcher may hide where its operands come from.)
double WalkNs(runtime::Session* session, size_t input) {
  constexpr size_t kLineWords = 16;
  const runtime::TensorView view = session->input(input);
  const auto* words = static_cast<const volatile uint32_t*>(view.data);
  std::vector<size_t> order(view.bytes / 64);
  std::iota(order.begin(), order.end(), size_t{0});
  support::Rng(7).Shuffle(&order);
  const volatile uint32_t zero = 0;
  double best = 1e300;
  for (int i = 0; i < 200; ++i) {
    for (const size_t line : order) (void)words[line * kLineWords];
    session->EvictFar();
    uint32_t loaded = 0;  // what makes the next address known
    const auto start = std::chrono::steady_clock::now();
    for (const size_t line : order) loaded = words[line * kLineWords + (loaded & zero)];
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

// A weight that comes from memory in the network does so when its kernel is measured alone.
TEST(Candidate, ColdWeightsAreOutOfTheCachesBeforeEachRun) {
  std::map<std::string, double> ns;
  for (const std::string word : {"weight", "cold_weight"}) {
    const std::string text = "graph {\n  input %0: f32[32768]\n  " + word +
                             " %1: f32[32768]\n  %2: f32[32768] = mul(%0, %1)\n  output %2\n}\n";
    const auto task = MakeTask(text);
    ASSERT_TRUE(task.ok()) << task.status();
    auto check = MakeTaskCheck(*task, 5);
    ASSERT_TRUE(check.ok()) << check.status();
    const target::Target target = tests::WidestTarget();
    const auto built = BuildCandidate(text, *DefaultSteps(text, target), target, &*check);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_TRUE(RunCandidate(built->module_bytes, *check).ok());
    auto file = module::ModuleFile::FromBytes(built->module_bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    auto loaded = runtime::LoadedModule::Load(*std::move(file));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    auto session = runtime::Session::Create(*loaded);
    ASSERT_TRUE(session.ok()) << session.status();
    const auto& inputs = (*loaded)->manifest().measurement->inputs;
    ASSERT_TRUE(runtime::FillInputs(inputs, session->get()).ok());
    EXPECT_EQ((*session)->has_cold(), word == "cold_weight");
    ASSERT_TRUE((*session)->Run().ok());
    ASSERT_EQ((*session)->input(1).bytes, 32768 * sizeof(float));
    ns[word] = WalkNs(session->get(), 1);
  }
#if defined(__x86_64__)
  EXPECT_GT(ns["cold_weight"], 1.5 * ns["weight"]) << "128 KB of memory cost nothing";
#endif
}

// Another algorithm passes with the tolerance that it is allowed; a sum without one of its terms
// does not.
TEST(Candidate, AlgorithmsPassWithTheirToleranceAndNoMore) {
  const std::string y = "f32[1,2,9,10,4]";
  const std::string text =
      "graph {\n  input %0: f32[1,3,9,10,4]\n  weight %1: f32[2,3,3,3,4,4]\n  %2: " + y +
      " = conv2d(%0, %1) {data_layout=\"NCHW4c\", pads=[1,1,1,1], weight_layout=\"OIHW4i4o\"}\n  "
      "%3: " +
      y + " = relu(%2)\n  output %3\n}\n";
  const auto task = MakeTask(text);
  ASSERT_TRUE(task.ok()) << task.status();
  const auto factors = VariantTolerances(*ParseTask(text));
  ASSERT_EQ(factors.size(), 3u);
  auto check = MakeTaskCheck(*task, 5);
  ASSERT_TRUE(check.ok()) << check.status();
  for (const auto& [name, factor] : factors) {
    TaskCheck wider = *check;
    wider.atol *= factor;
    wider.rtol *= factor;
    for (const char* fault : {"", "init"}) {
      const auto built =
          BuildCandidate(text, "variant " + name, tests::WidestTarget(), &wider, fault);
      ASSERT_TRUE(built.ok()) << built.status();
      const runtime::CompareResult result = RunCandidate(built->module_bytes, wider);
      EXPECT_EQ(result.ok(), *fault == 0) << name << fault << ": " << runtime::CompareText(result);
    }
  }
}

TEST(Candidate, PlantedMiscompileIsCaught) {
  const Task task = (*ExtractTasks(Fused(OnnxBuilder::Dqn(36, 8, 8, 8, 16))))[0];
  const target::Target target = tests::WidestTarget();
  auto check = MakeTaskCheck(task, 3);
  ASSERT_TRUE(check.ok());
  auto wrong = BuildCandidate(task.text, *DefaultSteps(task.text, target), target, &*check, "init");
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_FALSE(RunCandidate(wrong->module_bytes, *check).ok());
}

TEST(Candidate, BadStepsAreScheduleErrors) {
  const Task task = (*ExtractTasks(Fused(OnnxBuilder::Dqn(36, 4, 4, 4, 8))))[0];
  auto bad = BuildCandidate(task.text, "split %999 [2,2]", tests::WidestTarget(), nullptr);
  EXPECT_EQ(support::Slug(bad.status()).substr(0, 9), "schedule.") << bad.status();
  EXPECT_FALSE(BuildCandidate("nonsense", "", tests::WidestTarget(), nullptr).ok());
}

}  // namespace
}  // namespace tilewright::driver
