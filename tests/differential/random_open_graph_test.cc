// Random graphs with an open size, through the graph passes and compiled: at every size the
// interpreter, the passes and the one module give what the graph of that size gives.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/differential/graph_runs.h"
#include "tests/support/open_graph.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright {
namespace {

using graph::Graph;
using op::RefTensor;
using support::StrCat;
using tests::FirstDifference;
using tests::OpenedGraph;

constexpr int64_t kMost = 24;

// The sizes at which a graph runs: the ends, and around vectors of eight.
std::set<int64_t> SizesOf(const OpenedGraph& opened) {
  const graph::SizeRange& range = opened.graph.size_ranges.at(opened.size);
  std::set<int64_t> sizes = {range.min, 2, opened.before, 8, 9, range.max};
  std::erase_if(sizes, [&](int64_t size) { return size < range.min || size > range.max; });
  return sizes;
}

struct Example {
  int64_t size = 0;
  std::vector<RefTensor> inputs, expected;
};
// What the graphs of fixed sizes give. Sizes at which an operator has no meaning, such as a window
// that is larger than its image, are left out.
std::vector<Example> ExamplesOf(const OpenedGraph& opened) {
  std::vector<Example> examples;
  for (const int64_t size : SizesOf(opened)) {
    const auto fixed = graph::Specialize(opened.graph, {{opened.size, size}});
    if (!fixed.ok()) continue;
    Example example{size, tests::RandomGraphInputs(*fixed, 1), {}};
    auto expected = graph::Interpret(*fixed, example.inputs);
    if (!expected.ok()) continue;
    example.expected = *std::move(expected);
    examples.push_back(std::move(example));
  }
  return examples;
}

std::string CheckPasses(const OpenedGraph& opened, const std::vector<Example>& examples,
                        const graph::GraphPassContext& context) {
  const auto after = graph::RunGraphPasses(opened.graph, context);
  if (!after.ok()) return support::StatusText(after.status());
  for (const Example& example : examples) {
    for (const Graph* form : {&opened.graph, &*after}) {
      const auto found = graph::Interpret(*form, example.inputs, {{opened.size, example.size}});
      if (!found.ok()) return support::StatusText(found.status());
      const std::string error = FirstDifference(example.expected, *found);
      if (error.empty()) continue;
      return StrCat(form == &*after ? "passes" : "open", ", size ", example.size, ": ", error);
    }
  }
  return "";
}

std::string CheckCompiled(const OpenedGraph& opened, const std::vector<Example>& examples,
                          int threads, bool* refused, int64_t* on_device) {
  const target::Target& target = tests::WidestTarget();
  // Modules with a device have no views.
  const bool views = opened.graph.nodes.size() % 2 == 0;
  graph::GraphPassContext context = driver::PassContext(target);
  if (!views) context.view_alignment = 0;
  const auto fused = graph::RunGraphPasses(opened.graph, context);
  if (!fused.ok()) return support::StatusText(fused.status());
  const auto bytes = driver::CompileModel(*fused, target, nullptr, {}, nullptr);
  // Some operators have no kernel for some open dimensions, such as output channels.
  if (!bytes.ok() && support::Slug(bytes.status()).ends_with(".symbolic")) {
    *refused = true;
    return "";
  }
  if (!bytes.ok()) return support::StatusText(bytes.status());
  support::Rng rng(opened.graph.nodes.size());
  std::vector<std::string> modules = {*bytes};
  if (!views) modules.push_back(tests::OnTwoSides(*bytes, &rng, on_device));
  for (const std::string& module : modules) {
    auto session = tests::GuardedSession(module, threads);
    if (!session.ok()) return support::StatusText(session.status());
    for (const Example& example : examples) {
      std::string error;
      std::vector<op::TensorType> types;
      for (const RefTensor& output : example.expected) types.push_back(output.type);
      const auto found = tests::RunSession(session->get(), example.inputs, types, &error);
      if (found) error = FirstDifference(example.expected, *found);
      if (error.empty()) continue;
      return StrCat(&module == &modules[0] ? "" : "on two sides, ", threads, " threads, size ",
                    example.size, ": ", error);
    }
  }
  return "";
}

TEST(RandomOpenGraph, EverySizeComputesTheSame) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(80);
  int64_t graphs = 0, sizes = 0, compiled = 0, on_device = 0;
  std::set<std::string> kinds;
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split("open").Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    const OpenedGraph opened = tests::OpenGraph(g, &rng, i % 2 == 0, kMost);
    if (opened.graph.nodes.empty()) continue;
    ASSERT_TRUE(graph::Verify(opened.graph).ok())
        << graph::Verify(opened.graph) << graph::Print(opened.graph);
    graph::GraphPassContext context = driver::PassContext(tests::WidestTarget());
    for (const graph::GraphPass& pass : graph::GraphPasses()) {
      if (pass.use == graph::GraphPass::Use::kStandard && i % 3 == 1 && rng.Bernoulli(0.3)) {
        context.disabled.emplace_back(pass.name);
      }
    }
    const bool compiles = i % 4 < 2;
    bool refused = false;
    const auto check = [&](const OpenedGraph& part) {
      const std::vector<Example> examples = ExamplesOf(part);
      std::string error = CheckPasses(part, examples, context);
      if (error.empty() && compiles)
        error = CheckCompiled(part, examples, i % 4 + 1, &refused, &on_device);
      return error;
    };
    if (const std::string error = check(opened); !error.empty()) {
      OpenedGraph small = opened;
      small.graph = tests::ShrinkGraph(opened.graph, [&](const Graph& part) {
        small.graph = part;
        return !check(small).empty();
      });
      FAIL() << "seed " << seed << ", graph " << i << ": " << error << "\nshrunk: " << check(small)
             << "\n"
             << graph::Print(small.graph);
    }
    for (const graph::Node& node : opened.graph.nodes) kinds.insert(node.op);
    sizes += static_cast<int64_t>(ExamplesOf(opened).size());
    graphs += 1;
    compiled += compiles && !refused ? 1 : 0;
  }
  std::printf("counts: open_graphs=%lld sizes=%lld compiled_open=%lld\n",
              static_cast<long long>(graphs), static_cast<long long>(sizes),
              static_cast<long long>(compiled));
  std::printf("%zu kinds\n", kinds.size());
  EXPECT_GT(graphs, rounds / 2);
  EXPECT_GT(compiled, graphs / 3);
  EXPECT_GT(on_device, 0);
}

}  // namespace
}  // namespace tilewright
