// The memory plan: nothing that is alive overlaps, views share, and the arena stays near the bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

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
// values, reshapes make views, and slices and concats may become some.
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
    } else if (rng->Bernoulli(0.15)) {
      const int64_t k = g.values[from].type.size(1);
      const int64_t size = rng->UniformInt(1, k), start = rng->UniformInt(0, k - size) / 16 * 16;
      using Ints = std::vector<int64_t>;
      const ValueId part = AddValue(&g, "p", {ir::kF32, {1, size}});
      g.nodes.push_back(
          MakeNode("slice", {from}, part,
                   {{"starts", Ints{0, start}}, {"steps", Ints{1, 1}}, {"sizes", Ints{1, size}}}));
      rows.push_back(part);
    } else if (rng->Bernoulli(0.2)) {
      std::vector<ValueId> parts = {from};
      int64_t total = 0;
      while (rng->Bernoulli(0.6)) parts.push_back(rng->Choice(rows));
      for (ValueId id : parts) total += g.values[id].type.size(1);
      if (total > 20000) continue;
      const ValueId all = AddValue(&g, "c", {ir::kF32, {1, total}});
      g.nodes.push_back(MakeNode("concat", parts, all, {{"axis", int64_t{1}}}));
      rows.push_back(all);
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

// Runs the plan on words that are names: a kernel writes (node, position) to every element of its
// result, and every operand must hold the names that the operators in front of it say, wherever it
// lies. Sees overlaps of lives and wrong places of views.
class NamedWords {
 public:
  NamedWords(const Graph& g, const MemoryPlan& plan)
      : g_(g),
        plan_(plan),
        storage_(StorageOf(g)),
        arena_(static_cast<size_t>(plan.arena_bytes / 4), 0) {}

  void Run() {
    const ValueId x = g_.inputs[0];  // the only input that is no matrix
    names_[x].assign(g_.values[x].type.elements(), -1);
    for (size_t id = 0; id < g_.values.size(); ++id) {
      const int64_t at = plan_.offset[id];
      if (at < 0) continue;
      ASSERT_EQ(at % kArenaAlignment, 0);
      ASSERT_LE(at + g_.values[id].type.bytes(), plan_.arena_bytes);
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      std::vector<int64_t> names;
      if (node.op == "concat") {
        for (ValueId id : node.inputs) {
          names.insert(names.end(), names_[id].begin(), names_[id].end());
        }
      } else if (node.op == "slice") {
        const auto begin =
            names_[node.inputs[0]].begin() + op::GetInts(node.attrs, "starts", {})[1];
        names.assign(begin, begin + g_.values[node.outputs[0]].type.elements());
      } else if (node.op == kViewOp) {
        names = names_[node.inputs[0]];
      }
      const ValueId out = node.outputs[0];
      if (!IsView(node)) {
        for (ValueId id : node.inputs) Reads(id);
        names.clear();
        for (int64_t i = 0; i < g_.values[out].type.elements(); ++i) {
          names.push_back((static_cast<int64_t>(n) << 32) + i + 1);
        }
        if (plan_.offset[out] >= 0) std::copy(names.begin(), names.end(), Words(out));
      }
      names_[out] = std::move(names);
    }
    for (ValueId id : g_.outputs) EXPECT_EQ(plan_.offset[id], -1) << "an output in the arena";
  }

 private:
  std::vector<int64_t>::iterator Words(ValueId id) { return arena_.begin() + plan_.offset[id] / 4; }

  void Reads(ValueId id) {
    if (plan_.offset[id] < 0) {
      const ValueId root = storage_[id].root;
      EXPECT_TRUE(std::count(g_.inputs.begin(), g_.inputs.end(), root) > 0 ||
                  std::count(g_.outputs.begin(), g_.outputs.end(), root) > 0)
          << g_.values[id].name;
      return;
    }
    EXPECT_TRUE(std::equal(names_[id].begin(), names_[id].end(), Words(id))) << g_.values[id].name;
  }

  const Graph& g_;
  const MemoryPlan& plan_;
  const std::vector<Storage> storage_;
  std::vector<int64_t> arena_;
  std::map<ValueId, std::vector<int64_t>> names_;
};

TEST(MemoryPlan, RandomNetworksStayNearTheBound) {
  double worst = 1, total = 0;
  int64_t counted = 0;
  std::map<std::string, int64_t> views;
  const int64_t rounds = tests::TestRounds(300);
  const uint64_t seed = tests::TestSeed();
  for (int64_t i = 0; i < rounds; ++i) {
    Rng rng = Rng(seed).Split(static_cast<uint64_t>(i));
    GraphPassContext context;
    context.view_alignment = kArenaAlignment;
    const Graph g = *ViewMoves(RandomNetwork(&rng), context);
    ASSERT_TRUE(Verify(g).ok()) << Verify(g);
    for (const Node& node : g.nodes) {
      if (IsView(node)) ++views[node.op];
    }
    auto plan = PlanMemory(g);
    ASSERT_TRUE(plan.ok());
    NamedWords(g, *plan).Run();
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
  for (const char* op : {"reshape", "slice", "concat"}) EXPECT_GT(views[op], rounds / 4) << op;
  EXPECT_LE(worst, 1.2);
  EXPECT_LE(total, 1.01 * static_cast<double>(counted));
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
