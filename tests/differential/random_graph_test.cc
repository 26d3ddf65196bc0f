// Random graphs through the graph passes: the reference interpreter gives the same before and
// after, with every pass on and with random ones left out; a sample is compiled with default
// schedules and run on one and two threads, with the memory plan, behind guard pages, a few on an
// OpenCL and a Vulkan device where there are, and some on an emulated GPU. A failure is shrunk to
// text.
#include "tests/support/random_graph.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/targets/kind_table.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/differential/graph_runs.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright {
namespace {

using graph::Graph;
using op::RefTensor;
using support::StrCat;
using tests::FirstDifference;
using tests::RunModule;

std::map<std::string, std::shared_ptr<const graph::ConstantData>> Constants(const Graph& g) {
  std::map<std::string, std::shared_ptr<const graph::ConstantData>> constants;
  for (const graph::Value& value : g.values) {
    if (value.constant) constants[support::Sha256Hex(value.constant->view())] = value.constant;
  }
  return constants;
}

// Of both kinds: sums of bytes want blocks of four.
int64_t ChannelBlock(const Graph& g) { return g.nodes.size() % 2 == 0 ? 2 : 4; }

// What is wrong with the passes on this graph; "" = nothing.
std::string CheckPasses(const Graph& g, const std::vector<std::string>& disabled,
                        const std::vector<std::string>& enabled) {
  const std::vector<RefTensor> inputs = tests::RandomGraphInputs(g, 1);
  auto expected = graph::Interpret(g, inputs);
  if (!expected.ok()) return support::StatusText(expected.status());
  auto parsed = graph::ParseGraph(graph::Print(g), Constants(g));
  if (!parsed.ok() || graph::Print(*parsed) != graph::Print(g)) return "text does not round-trip";
  graph::GraphPassContext context;
  context.disabled = disabled;
  context.enabled = enabled;
  context.channel_block = ChannelBlock(g);
  context.view_alignment = 4;
  context.packed_weight_rows = 2;
  context.half_weights = {ir::kF16, ir::kBF16};
  context.half_pairs = {ir::kBF16};
  context.near_row = 8;
  context.join_products = true;
  auto after = graph::RunGraphPasses(g, context);
  if (!after.ok()) return support::StatusText(after.status());
  for (const graph::Node& node : after->nodes) {
    if (node.body == nullptr && !graph::IsView(node)) return "not every node is a kernel";
  }
  auto actual = graph::Interpret(*after, inputs);
  if (!actual.ok()) return support::StatusText(actual.status());
  return FirstDifference(*expected, *actual);
}

std::string CheckCompiled(const Graph& g, bool blocks, const target::Target& target,
                          const std::vector<int>& thread_counts) {
  const std::vector<RefTensor> inputs = tests::RandomGraphInputs(g, 1);
  auto expected = graph::Interpret(g, inputs);
  graph::GraphPassContext context;
  context.channel_block = ChannelBlock(g);
  context.view_alignment = driver::PassContext(target).view_alignment;
  context.packed_weight_rows = driver::PassContext(target).packed_weight_rows;
  context.half_weights = driver::PassContext(target).half_weights;
  if (target.kind == target::kProcessors) context.half_pairs = {ir::kBF16};
  context.near_row = driver::PassContext(target).near_row;
  context.join_products = true;
  if (blocks) context.enabled = {"block_layouts"};
  auto fused = graph::RunGraphPasses(g, context);
  if (!expected.ok() || !fused.ok()) return "the passes fail";
  auto module = driver::CompileModel(*fused, target, nullptr, {}, nullptr);
  if (!module.ok()) return support::StatusText(module.status());
  for (int threads : thread_counts) {
    std::string error;
    auto actual = RunModule(*fused, *module, inputs, threads, &error);
    if (!actual) return error;
    error = FirstDifference(*expected, *actual);
    if (!error.empty()) return StrCat(threads, " threads: ", error);
  }
  if (target.kind != target::kProcessors) return "";
  std::string error;
  support::Rng rng(g.nodes.size());
  int64_t on_device = 0;
  const std::string sides = tests::OnTwoSides(*module, &rng, &on_device);
  const auto actual = RunModule(*fused, sides, inputs, 1, &error);
  if (actual) error = FirstDifference(*expected, *actual);
  return error.empty() ? "" : StrCat("on two sides: ", error);
}

std::string Shrunk(const Graph& g, const std::function<std::string(const Graph&)>& check) {
  const Graph small = tests::ShrinkGraph(g, [&](const Graph& s) { return !check(s).empty(); });
  return StrCat(check(small), "\n", graph::Print(small));
}

TEST(RandomGraph, PassesKeepEveryOutput) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(1500);
  std::vector<std::string> standard;  // each of these runs alone, too
  for (const graph::GraphPass& pass : graph::GraphPasses()) {
    if (pass.use == graph::GraphPass::Use::kStandard) standard.emplace_back(pass.name);
  }
  std::map<std::string, int> made;
  std::map<std::string, std::string> left_out;
  for (const auto& [name, why] : tests::OperatorsLeftOut()) left_out[name] = why;
  const auto all_made = [&] {
    return std::ranges::all_of(op::Operators(), [&](const op::OpSpec& spec) {
      const std::string name(spec.name);
      return made.count(name) > 0 || left_out.count(name) > 0;
    });
  };
  int64_t kernels = 0, nodes = 0, i = 0;
  // A kind that chance left out gets as many rounds again.
  for (; i < rounds || (i < 2 * rounds && !all_made()); ++i) {
    support::Rng rng = support::Rng(seed).Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    ASSERT_TRUE(graph::Verify(g).ok()) << graph::Verify(g) << graph::Print(g);
    for (const graph::Node& node : g.nodes) ++made[node.op];
    std::vector<std::string> disabled, enabled;
    const std::string alone = i % 4 == 2 ? standard[i / 4 % standard.size()] : "";
    for (const graph::GraphPass& pass : graph::GraphPasses()) {
      using Use = graph::GraphPass::Use;
      const bool left_out = !alone.empty() ? pass.name != alone : i % 2 == 1 && rng.Bernoulli(0.3);
      if (pass.use == Use::kStandard && left_out) disabled.push_back(std::string(pass.name));
      if (pass.use == Use::kOptional && i % 3 == 1) enabled.push_back(std::string(pass.name));
    }
    auto check = [&](const Graph& s) { return CheckPasses(s, disabled, enabled); };
    if (!check(g).empty()) {
      FAIL() << "seed " << seed << ", graph " << i << ", without [" << support::Join(disabled, ",")
             << "], with [" << support::Join(enabled, ",") << "]: " << Shrunk(g, check);
    }
    nodes += static_cast<int64_t>(g.nodes.size());
    kernels += static_cast<int64_t>(graph::RunGraphPasses(g)->nodes.size());
  }
  std::printf("%lld graphs, %lld nodes, %lld kernels and views, %zu kinds\n",
              static_cast<long long>(i), static_cast<long long>(nodes),
              static_cast<long long>(kernels), made.size());
  std::printf("counts: graphs=%lld nodes=%lld\n", static_cast<long long>(i),
              static_cast<long long>(nodes));
  for (const op::OpSpec& spec : op::Operators()) {
    const std::string name(spec.name);
    EXPECT_NE(made.count(name) > 0, left_out.count(name) > 0) << name << ": made " << made[name];
  }
  EXPECT_LT(kernels, nodes * 3 / 4);
}

constexpr int64_t kUsualRounds = 60;
// The rounds of slower tests, of which usually `usual` suffice: as large a part of those asked for.
int64_t RoundsOf(int64_t usual) { return tests::TestRounds(kUsualRounds) * usual / kUsualRounds; }

TEST(RandomGraph, CompiledModelsComputeTheSame) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(kUsualRounds);
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("compiled").Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    auto check = [&](const Graph& s) {
      return CheckCompiled(s, i % 3 == 1, tests::WidestTarget(), {1, 2});
    };
    if (!check(g).empty()) FAIL() << "seed " << seed << ", graph " << i << ": " << Shrunk(g, check);
  }
  std::printf("counts: compiled=%lld\n", static_cast<long long>(rounds));
}

// A network of rows whose sizes are whole cache lines, so that most slices and concats of it are
// views in the compiled module.
Graph RandomRows(support::Rng* rng) {
  using Ints = std::vector<int64_t>;
  Graph g;
  std::vector<graph::ValueId> rows;
  auto add = [&](const char* op, const std::vector<graph::ValueId>& inputs, int64_t size,
                 const op::Attrs& attrs) {
    graph::Node node;
    node.name = node.op = op;
    node.attrs = attrs;
    node.inputs = inputs;
    node.outputs = {graph::AddValue(&g, op, {ir::kF32, {1, size}})};
    rows.push_back(node.outputs[0]);
    g.nodes.push_back(std::move(node));
  };
  auto size_of = [&](graph::ValueId id) { return g.values[id].type.size(1); };
  g.inputs = rows = {graph::AddValue(&g, "x", {ir::kF32, {1, 32}})};
  for (int64_t n = rng->UniformInt(6, 16); n > 0; --n) {
    const graph::ValueId from = rng->Bernoulli(0.7) ? rows.back() : rng->Choice(rows);
    const int64_t k = size_of(from);
    if (rng->Bernoulli(0.3) && k > 16) {
      const int64_t size = 16 * rng->UniformInt(1, k / 16 - 1);
      const int64_t start = 16 * rng->UniformInt(0, (k - size) / 16);
      add("slice", {from}, size,
          {{"starts", Ints{0, start}}, {"steps", Ints{1, 1}}, {"sizes", Ints{1, size}}});
    } else if (rng->Bernoulli(0.5) && k < 512) {
      const graph::ValueId other = rng->Choice(rows);
      add("concat", {from, other}, k + size_of(other), {{"axis", int64_t{1}}});
    } else if (rng->Bernoulli(0.4)) {
      add("softmax", {from}, k, {{"axis", int64_t{1}}});
    } else {
      add(rng->Bernoulli(0.5) ? "tanh" : "neg", {from}, k, {});
    }
  }
  g.outputs = {rows.back(), rows[rows.size() - 2]};
  return graph::Compact(g);
}

TEST(RandomGraph, CompiledViewsComputeTheSame) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(40);
  int64_t views = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("views").Split(static_cast<uint64_t>(i));
    const Graph g = RandomRows(&rng);
    ASSERT_TRUE(graph::Verify(g).ok()) << graph::Verify(g) << graph::Print(g);
    const auto passes = graph::RunGraphPasses(g, driver::PassContext(tests::WidestTarget()));
    ASSERT_TRUE(passes.ok()) << passes.status();
    for (const graph::Node& node : passes->nodes) {
      views += node.op != graph::kViewOp && graph::IsView(node);
    }
    auto check = [&](const Graph& s) {
      return CheckCompiled(s, /*blocks=*/false, tests::WidestTarget(), {1});
    };
    if (!check(g).empty()) FAIL() << "seed " << seed << ", graph " << i << ": " << Shrunk(g, check);
  }
  EXPECT_GT(views, rounds / 2);
}

// A layer of few rows with weights of 4 or 8 bits, in groups or by column, any of them with zero
// points, and what follows it. One column with one scale would be folded to floats.
Graph RandomPacked(support::Rng* rng) {
  using Ints = std::vector<int64_t>;
  const int64_t group = 16 * rng->UniformInt(1, 3), groups = rng->UniformInt(1, 4);
  const int64_t k = group * groups,
                n = rng->Bernoulli(0.5) ? 16 * rng->UniformInt(1, 4) : rng->UniformInt(2, 70);
  const bool nibbles = rng->Bernoulli(0.5), in_groups = rng->Bernoulli(0.6);
  const int64_t rows = rng->UniformInt(1, nibbles ? 2 : 4);
  Graph g;
  auto random = [&](const char* name, ir::DType type, const Ints& shape, double low, double high) {
    RefTensor tensor{{type, shape}, {}};
    for (int64_t i = 0; i < tensor.type.elements(); ++i) {
      const double value = low + (high - low) * rng->UniformDouble();
      tensor.values.push_back(op::RoundToType(value, type));
    }
    return graph::AddConstant(&g, name, tensor.type, op::ToBytes(tensor));
  };
  auto add = [&](const char* op, const std::vector<graph::ValueId>& inputs, const Ints& shape,
                 const op::Attrs& attrs) {
    graph::Node node;
    node.name = node.op = op;
    node.attrs = attrs;
    node.inputs = inputs;
    node.outputs = {graph::AddValue(&g, op, {ir::kF32, shape})};
    g.nodes.push_back(node);
    return node.outputs[0];
  };
  g.inputs = {graph::AddValue(&g, "x", {ir::kF32, {rows, k}})};
  const Ints cut = in_groups ? Ints{n, groups, group} : Ints{n, k};
  Ints one = cut;
  one.back() = 1;
  const ir::DType type = nibbles ? ir::kU8 : ir::kI8;
  const auto q = random("q", type, cut, nibbles ? 0 : -128, nibbles ? 15.9 : 127);
  const auto scale = random("scale", ir::kF32, one, 0.1, 0.2);
  const auto zero = rng->Bernoulli(0.5)
                        ? random("zero", type, one, 0, 9)
                        : random("zero", type, {}, nibbles ? 8 : 0, nibbles ? 8 : 0);
  auto w = add("dequantize", {q, scale, zero}, cut, {});
  if (in_groups) w = add("reshape", {w}, {n, k}, {{"shape", Ints{n, k}}});
  const bool kn = rng->Bernoulli(0.5);
  if (kn) w = add("transpose", {w}, {k, n}, {{"perm", Ints{1, 0}}});
  const auto y =
      add("dense", {g.inputs[0], w}, {rows, n}, {{"weight_layout", std::string(kn ? "KN" : "NK")}});
  g.outputs = {rng->Bernoulli(0.5) ? add("tanh", {y}, {rows, n}, {}) : y};
  return g;
}

TEST(RandomGraph, CompiledPackedWeightsComputeTheSame) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(30);
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("packed").Split(static_cast<uint64_t>(i));
    const Graph g = RandomPacked(&rng);
    ASSERT_TRUE(graph::Verify(g).ok()) << graph::Verify(g) << graph::Print(g);
    const auto passes = graph::RunGraphPasses(g, driver::PassContext(tests::WidestTarget()));
    ASSERT_TRUE(passes.ok()) << passes.status();
    EXPECT_NE(graph::Print(*passes).find("packed_dense"), std::string::npos)
        << graph::Print(g) << graph::Print(*passes);
    auto check = [&](const Graph& s) {
      return CheckCompiled(s, /*blocks=*/false, tests::WidestTarget(), {1, 2});
    };
    if (!check(g).empty()) FAIL() << "seed " << seed << ", graph " << i << ": " << Shrunk(g, check);
  }
}

// The same layer with an open number of rows: one module for all, which unpacks the weights of many
// rows first. Returns what is wrong with it; "" = nothing.
std::string CheckOpenRows(Graph g, int threads, const target::Target& target) {
  constexpr int64_t kMostRows = 40;
  const target::PackedRows& packed = target.machine.packed_rows;
  const op::Dim rows = g.values[g.inputs[0]].type.shape[0];
  for (graph::Value& value : g.values) {
    if (value.constant == nullptr && value.name != "dequantize" && value.name != "reshape" &&
        value.name != "transpose") {
      value.type.shape[0] = op::Dim::Variable("R");
    }
  }
  g.size_ranges["R"] = {1, kMostRows};
  auto fused = graph::RunGraphPasses(g, driver::PassContext(target));
  if (!fused.ok()) return support::StatusText(fused.status());
  if (graph::Print(*fused).find("packed_dense") == std::string::npos) return "it is not packed";
  auto bytes = driver::CompileModel(*fused, target, nullptr, {}, nullptr);
  if (!bytes.ok()) return support::StatusText(bytes.status());
  auto session = tests::GuardedSession(*bytes, threads);
  if (!session.ok()) return support::StatusText(session.status());
  for (const int64_t size : {int64_t{1}, rows.value(), packed.in_registers, packed.in_registers + 1,
                             packed.in_fixed_point, packed.in_fixed_point + 1, kMostRows}) {
    const auto fixed = graph::Specialize(g, {{"R", size}});
    if (!fixed.ok()) return support::StatusText(fixed.status());
    const std::vector<RefTensor> inputs = tests::RandomGraphInputs(*fixed, 1);
    const auto expected = graph::Interpret(*fixed, inputs);
    if (!expected.ok()) return support::StatusText(expected.status());
    std::string error;
    const auto actual = tests::RunSession(session->get(), inputs, {expected->at(0).type}, &error);
    if (actual) error = FirstDifference(*expected, *actual);
    if (!error.empty()) return StrCat(size, " rows, ", threads, " threads: ", error);
  }
  return "";
}

TEST(RandomGraph, PackedWeightsOfOpenRowsComputeTheSame) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = RoundsOf(16);
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("open rows").Split(static_cast<uint64_t>(i));
    const Graph g = RandomPacked(&rng);
    // With products of floats, and where there are any of integers.
    const auto target = i % 4 < 2 ? tests::WidestTarget() : tests::RunnableDotTargets().back();
    const std::string error = CheckOpenRows(g, i % 2 == 0 ? 1 : 2, target);
    EXPECT_EQ(error, "") << "seed " << seed << ", graph " << i << ": " << graph::Print(g);
  }
}

// Default schedules for groups and threads, launches, transfers and the device's arena.
class RandomGraphOnDevice : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(RandomGraphOnDevice, CompiledModelsComputeTheSame) {
  const uint64_t seed = tests::TestSeed();
  const auto [kind, usual_rounds] = GetParam();
  const int64_t rounds = RoundsOf(usual_rounds);
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("device").Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng, {.bfloat_inputs = false});
    auto check = [&](const Graph& s) {
      return CheckCompiled(s, i % 3 == 1, *target::ParseTarget(GetParam().first), {1});
    };
    const std::string error = check(g);
    if (error.starts_with("runtime.device.none") || error.starts_with("runtime.device.missing"))
      GTEST_SKIP() << "[SKIP] no device of kind " << kind << ": " << error;
    if (!error.empty()) FAIL() << "seed " << seed << ", graph " << i << ": " << Shrunk(g, check);
  }
}

// OpenCL's driver takes a second for each kernel, so its rounds are few.
INSTANTIATE_TEST_SUITE_P(Kinds, RandomGraphOnDevice,
                         testing::Values(std::pair("opencl", 6), std::pair("vulkan", 20)),
                         [](const auto& row) { return std::string(row.param.first); });

// The same on an emulated GPU, which refuses races and accesses out of bounds, behind a driver and
// a compiler that stand in for the vendor's.
TEST(RandomGraph, CompiledModelsComputeTheSameOnAnEmulatedGpu) {
  for (const char* fake : {TILEWRIGHT_FAKE_CUDA_DRIVER, TILEWRIGHT_FAKE_NVRTC})
    ASSERT_NE(dlopen(fake, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = RoundsOf(24);
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("emulated").Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    auto check = [&](const Graph& s) {
      return CheckCompiled(s, i % 3 == 1, *target::ParseTarget("cuda,arch=sm_90"), {1});
    };
    if (!check(g).empty()) FAIL() << "seed " << seed << ", graph " << i << ": " << Shrunk(g, check);
  }
}

}  // namespace
}  // namespace tilewright
