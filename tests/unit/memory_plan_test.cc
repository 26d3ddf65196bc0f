// The memory plan: nothing that is alive overlaps, views share, and the arena stays near the bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/rng.h"
#include "tests/support/test_seed.h"

namespace tilewright::graph {
namespace {

using support::Rng;

Node MakeNode(std::string op_name, std::vector<ValueId> inputs, ValueId output,
              op::Attrs attrs = {}) {
  Node node;
  node.name = op_name;
  node.op = std::move(op_name);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  node.outputs = {output};
  return node;
}

// A random network of rows [1,n]: products with fresh weights change the size, sums join two
// values, reshapes make views.
Graph RandomNetwork(Rng* rng) {
  Graph g;
  const std::vector<int64_t> sizes = {16, 24, 100, 256, 1000, 1024, 3000, 4096, 20000};
  std::vector<ValueId> rows = {AddValue(&g, "x", {ir::kF32, {1, rng->Choice(sizes)}})};
  g.inputs = rows;
  const int64_t nodes = rng->UniformInt(5, 60);
  auto product = [&](ValueId from, int64_t n) {
    const ValueId w = AddValue(&g, "w", {ir::kF32, {g.values[from].type.shape[1], n}});
    g.inputs.push_back(w);
    const ValueId y = AddValue(&g, "d", {ir::kF32, {1, n}});
    g.nodes.push_back(MakeNode("dense", {from, w}, y, {{"weight_layout", std::string("KN")}}));
    return y;
  };
  while (static_cast<int64_t>(g.nodes.size()) < nodes) {
    // Recent values are read more often, but old ones stay alive too.
    const size_t back =
        std::min<size_t>(rows.size() - 1, rng->Uniform(rng->Bernoulli(0.3) ? 20 : 3));
    const ValueId from = rows[rows.size() - 1 - back];
    const int64_t n = rng->Choice(sizes);
    if (rng->Bernoulli(0.2)) {
      const int64_t k = g.values[from].type.size(1);
      const ValueId view = AddValue(&g, "v", {ir::kF32, {k, 1}});
      g.nodes.push_back(
          MakeNode(std::string(kViewOp), {from}, view, {{"shape", std::vector<int64_t>{k, 1}}}));
      const ValueId again = AddValue(&g, "v", {ir::kF32, {1, k}});
      g.nodes.push_back(
          MakeNode(std::string(kViewOp), {view}, again, {{"shape", std::vector<int64_t>{1, k}}}));
      rows.push_back(again);
    } else if (rng->Bernoulli(0.4)) {
      const ValueId a = product(from, n), b = product(rng->Choice(rows), n);
      const ValueId sum = AddValue(&g, "s", {ir::kF32, {1, n}});
      g.nodes.push_back(MakeNode("add", {a, b}, sum));
      rows.push_back(sum);
    } else {
      rows.push_back(product(from, n));
    }
  }
  const ValueId last = AddValue(&g, "y", g.values[rows.back()].type);
  g.nodes.push_back(MakeNode("relu", {rows.back()}, last));
  g.outputs = {last};
  return Compact(g);
}

// Which nodes' kernels each storage root must survive, recomputed from scratch.
void CheckPlan(const Graph& g, const MemoryPlan& plan) {
  const std::vector<ValueId> roots = StorageRoots(g);
  std::vector<int> first(g.values.size(), -1), last(g.values.size(), -1);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op == kViewOp) continue;
    for (ValueId id : g.nodes[n].outputs) first[roots[id]] = static_cast<int>(n);
    for (ValueId id : g.nodes[n].inputs) last[roots[id]] = static_cast<int>(n);
  }
  std::vector<ValueId> placed;
  for (size_t id = 0; id < g.values.size(); ++id) {
    EXPECT_EQ(plan.offset[id], plan.offset[roots[id]]);
    const bool own = static_cast<ValueId>(id) == roots[id];
    if (own && plan.offset[id] >= 0) placed.push_back(static_cast<ValueId>(id));
    if (own && plan.offset[id] < 0) {
      const bool outside =
          std::count(g.inputs.begin(), g.inputs.end(), id) > 0 ||
          std::count_if(g.outputs.begin(), g.outputs.end(),
                        [&](ValueId o) { return roots[o] == static_cast<ValueId>(id); }) > 0 ||
          g.values[id].constant != nullptr;
      EXPECT_TRUE(outside) << g.values[id].name;
    }
  }
  for (ValueId a : placed) {
    EXPECT_EQ(plan.offset[a] % kArenaAlignment, 0);
    EXPECT_LE(plan.offset[a] + g.values[a].type.bytes(), plan.arena_bytes);
    for (ValueId b : placed) {
      if (a >= b) continue;
      const bool alive =
          first[a] <= std::max(last[b], first[b]) && first[b] <= std::max(last[a], first[a]);
      const bool apart = plan.offset[a] + g.values[a].type.bytes() <= plan.offset[b] ||
                         plan.offset[b] + g.values[b].type.bytes() <= plan.offset[a];
      EXPECT_TRUE(!alive || apart) << g.values[a].name << " and " << g.values[b].name;
    }
  }
}

TEST(MemoryPlan, RandomNetworksStayNearTheBound) {
  double worst = 1, total = 0;
  int64_t counted = 0;
  const int64_t rounds = tests::TestRounds(300);
  const uint64_t seed = tests::TestSeed();
  for (int64_t i = 0; i < rounds; ++i) {
    Rng rng = Rng(seed).Split(static_cast<uint64_t>(i));
    const Graph g = RandomNetwork(&rng);
    ASSERT_TRUE(Verify(g).ok()) << Verify(g);
    auto plan = PlanMemory(g);
    ASSERT_TRUE(plan.ok());
    CheckPlan(g, *plan);
    if (::testing::Test::HasFailure()) FAIL() << "round " << i << "\n" << Print(g);
    ASSERT_GE(plan->arena_bytes, plan->liveness_bound);
    if (plan->liveness_bound == 0) continue;
    const double ratio =
        static_cast<double>(plan->arena_bytes) / static_cast<double>(plan->liveness_bound);
    worst = std::max(worst, ratio);
    total += ratio;
    ++counted;
  }
  std::printf("arena / liveness bound over %lld networks: worst %.4f, mean %.4f\n",
              static_cast<long long>(counted), worst, total / static_cast<double>(counted));
  EXPECT_GT(counted, rounds / 2);
  EXPECT_LE(worst, 1.15);
}

TEST(MemoryPlan, ChainNeedsTwoBuffersAndViewsNone) {
  auto g = ParseGraph(R"(graph {
  input %0: f32[100]
  %1: f32[100] = exp(%0)
  %2: f32[10,10] = reshape(%1) {shape=[10,10]}
  %3: f32[10,10] = exp(%2)
  %4: f32[10,10] = exp(%3)
  %5: f32[10,10] = exp(%4)
  output %5
}
)");
  ASSERT_TRUE(g.ok()) << g.status();
  auto plan = PlanMemory(*g);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->arena_bytes, 2 * 448);  // 400 bytes, aligned
  EXPECT_EQ(plan->offset[1], plan->offset[2]);
  EXPECT_EQ(plan->offset[0], -1);
  EXPECT_EQ(plan->offset[5], -1);
  EXPECT_EQ(PlanMemory(*g)->offset, plan->offset);
}

TEST(MemoryPlan, ResultsTakeTheStorageOfDyingOperands) {
  auto g = ParseGraph(R"(graph {
  input %0: f32[100]
  %1: f32[100] = exp(%0)
  %2: f32[100] = neg(%1)
  %3: f32[10,10] = reshape(%2) {shape=[10,10]}
  %4: f32[10,10] = relu(%3)
  %5: f32[10,10] = add(%4, %3)
  %6: f32[10,10] = mul(%5, %5)
  %7: f32[10,10] = tanh(%6)
  output %7
}
)");
  ASSERT_TRUE(g.ok()) << g.status();
  // Every operand may be overwritten, as far as the kernels go.
  const InPlaceOperands may = {{0}, {0}, {}, {0}, {0, 1}, {0, 1}, {0}};
  auto plan = PlanMemory(*g, may);
  ASSERT_TRUE(plan.ok());
  // %1 is an input's reader: the input stays. %4 reads %3, which %5 needs too. %6 reads %5 twice:
  // one of the two operands would be read after it is overwritten.
  EXPECT_EQ(plan->in_place, (std::vector<int>{-1, 0, -1, -1, 0, -1, -1}));
  EXPECT_EQ(plan->offset[1], plan->offset[2]);
  EXPECT_EQ(plan->offset[4], plan->offset[5]);
  EXPECT_EQ(plan->arena_bytes, 2 * 448);
  EXPECT_EQ(plan->liveness_bound, 2 * 448);
  EXPECT_EQ(PlanMemory(*g)->in_place, std::vector<int>(7, -1));
}

TEST(MemoryPlan, GraphWithoutIntermediatesNeedsNothing) {
  auto g = ParseGraph("graph {\n  input %0: f32[4]\n  %1: f32[4] = exp(%0)\n  output %1\n}\n");
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(PlanMemory(*g)->arena_bytes, 0);
}

}  // namespace
}  // namespace tilewright::graph
