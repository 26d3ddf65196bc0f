// Graph passes on texts: every file of tests/golden/graph is a graph, a line `# after PASS`, and
// what the pass makes of it. Both compute the same. A new case is a file with the graph and that
// line; TILEWRIGHT_UPDATE_GOLDEN=1 adds the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tests/support/golden.h"
#include "tests/support/random_graph.h"

namespace tilewright::graph {
namespace {

constexpr std::string_view kMarker = "# after ";

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(tests::GoldenPath("graph"))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

const GraphPass* FindPass(std::string_view name) {
  for (const GraphPass& pass : GraphPasses()) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

struct Case {
  std::string before, pass;
};

Case ReadCase(const std::string& name) {
  auto text = support::ReadFile(tests::GoldenPath("graph/" + name), 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  const size_t at = text->find(kMarker);
  EXPECT_NE(at, std::string::npos) << name;
  const size_t start = at + kMarker.size();
  return {text->substr(0, at), text->substr(start, text->find('\n', start) - start)};
}

class GraphGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(GraphGolden, PassMakesThisText) {
  const Case c = ReadCase(GetParam());
  const GraphPass* pass = FindPass(c.pass);
  ASSERT_NE(pass, nullptr) << c.pass;
  auto before = ParseGraph(c.before);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(Print(*before), c.before);
  GraphPassContext context;
  context.channel_block = GetParam().ends_with("_filled.txt") ? 4 : 2;
  context.cold_weights_bytes = 16;
  context.view_alignment = 8;
  context.packed_weight_rows = 2;
  context.half_products = {ir::kF16, ir::kBF16};
  context.half_weights = context.half_products;
  if (GetParam().starts_with("pairs_")) {
    context.half_products = {};
    context.half_pairs = {ir::kBF16};
  }
  if (GetParam().starts_with("factors_")) {
    context.half_products = {};
    context.half_factors = {ir::kF16};
  }
  context.computed_in_f32 = {ir::kF16};
  if (GetParam().starts_with("arithmetic_")) context.half_arithmetic = {ir::kF16};
  context.byte_products = GetParam().starts_with("bytes_");
  context.attention = {.rows = 8, .few_tokens = 4};
  context.near_row = 16;
  context.join_products = true;
  context.enabled = {"block_layouts"};
  if (GetParam().starts_with("matrix_")) context.matrix_block = 2;
  auto after = pass->run(*before, context);
  ASSERT_TRUE(after.ok()) << after.status();
  ASSERT_TRUE(Verify(*after).ok()) << Verify(*after) << Print(*after);
  EXPECT_TRUE(tests::MatchesGolden(
      "graph/" + GetParam(), c.before + std::string(kMarker) + c.pass + "\n" + Print(*after)));
  auto again = pass->run(*after, context);
  if (again.ok()) {
    EXPECT_EQ(Print(*again), Print(*after)) << "not idempotent";
  }
  // Open dimensions at some sizes.
  op::Sizes sizes;
  for (const std::string& name : SizeVariables(*before)) {
    sizes[name] = static_cast<int64_t>(sizes.size()) + 5;
  }
  if (!sizes.empty()) {
    before = Specialize(*before, sizes);
    after = Specialize(*after, sizes);
    ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  }
  const std::vector<op::RefTensor> inputs = tests::RandomGraphInputs(*before, 7);
  // What is no longer rounded differs by a place of f16.
  const double room = c.pass == "drop_roundings" ? 0.001 : 1e-6;
  auto a = Interpret(*before, inputs), b = Interpret(*after, inputs);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  for (size_t o = 0; o < a->size(); ++o) {
    ASSERT_EQ((*a)[o].type, (*b)[o].type);
    EXPECT_EQ(before->values[before->outputs[o]].name, after->values[after->outputs[o]].name);
    for (size_t i = 0; i < (*a)[o].values.size(); ++i) {
      const double e = (*a)[o].values[i];
      EXPECT_NEAR((*b)[o].values[i], e, room * (1 + std::fabs(e))) << "output " << o << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GraphGolden, ::testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.substr(0, info.param.find('.'));
});

TEST(GraphGoldens, EveryPassHasOne) {
  std::set<std::string, std::less<>> seen = {"infer_types"};  // changes no text that parses
  for (const std::string& name : Cases()) seen.insert(ReadCase(name).pass);
  for (const GraphPass& pass : GraphPasses()) EXPECT_TRUE(seen.contains(pass.name)) << pass.name;
}

TEST(GraphPassTable, UnknownAndRequiredPassesCannotBeDisabled) {
  auto graph = ParseGraph("graph {\n  input %0: f32[2]\n  %1: f32[2] = relu(%0)\n  output %1\n}\n");
  ASSERT_TRUE(graph.ok());
  GraphPassContext context;
  context.disabled = {"nonesuch"};
  EXPECT_EQ(support::Slug(RunGraphPasses(*graph, context).status()), "graph.pass.unknown");
  context.disabled = {"wrap_operators"};
  EXPECT_EQ(support::Slug(RunGraphPasses(*graph, context).status()), "graph.pass.fixed");
}

TEST(GraphPassTable, OptionalPassesRunWhereEnabled) {
  GraphPassContext context;
  auto graph = ParseGraph("graph {\n  input %0: f32[2]\n  %1: f32[2] = relu(%0)\n  output %1\n}\n");
  context.enabled = {"clean"};
  EXPECT_EQ(support::Slug(RunGraphPasses(*graph, context).status()), "graph.pass.fixed");
  context.enabled = {"block_layouts"};
  EXPECT_TRUE(RunGraphPasses(*graph, context).ok());
}

TEST(GraphPassTable, AnOptionalPassThatIsEnabledSaysWhetherItChangedTheGraph) {
  for (const std::string node : {"conv2d(%0, %1)", "mul(%0, %0)"}) {
    auto graph = ParseGraph(
        "graph {\n  input %0: f32[1,2,4,4]\n  constant %1: f32[2,2,1,1] = "
        "hex:0000803f000000400000404000008040\n  %2: f32[1,2,4,4] = " +
        node + "\n  output %2\n}\n");
    ASSERT_TRUE(graph.ok()) << graph.status();
    std::vector<std::string> changed;
    GraphPassContext context;
    context.channel_block = 2;
    context.disabled = {"fuse_operators"};
    context.changed = &changed;
    const auto blocked = [&] {
      changed.clear();
      return Print(*RunGraphPasses(*graph, context)).find("data_layout=\"NCHW2c\"") !=
             std::string::npos;
    };
    EXPECT_FALSE(blocked());
    EXPECT_TRUE(changed.empty());
    context.enabled = {"block_layouts"};
    const bool convolves = node.starts_with("conv2d");
    EXPECT_EQ(blocked(), convolves);
    EXPECT_EQ(changed, convolves ? context.enabled : std::vector<std::string>());
    context.disabled.push_back("block_layouts");
    EXPECT_FALSE(blocked());
    EXPECT_TRUE(changed.empty());
  }
}

TEST(GraphPassTable, WithoutFusionEveryOperatorIsAKernel) {
  auto graph = ParseGraph(
      "graph {\n  input %0: f32[2]\n  %1: f32[2] = relu(%0)\n  %2: f32[2] = exp(%1)\n  output "
      "%2\n}\n");
  ASSERT_TRUE(graph.ok());
  GraphPassContext context;
  EXPECT_EQ(RunGraphPasses(*graph, context)->nodes.size(), 1u);
  context.disabled = {"fuse_operators"};
  EXPECT_EQ(RunGraphPasses(*graph, context)->nodes.size(), 2u);
}

}  // namespace
}  // namespace tilewright::graph
