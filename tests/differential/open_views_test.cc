// Concats of open sizes that are views: random networks whose concats share storage with their
// parts, in one module, against the interpreter at every size.
#include <gtest/gtest.h>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/differential/graph_runs.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::ValueId;
using op::Dim;

constexpr int64_t kMost = 40, kColumns = 16;

// Rows of 16 numbers, as many as an expression of L says: a row is 64 bytes, so that every part
// begins where storage may.
class Network {
 public:
  explicit Network(support::Rng* rng) : rng_(*rng) {
    const Dim length = Dim::Variable("L");
    g_.size_ranges["L"] = {1, kMost};
    for (const Dim& rows : {length, (length + 1).FloorDiv(2), length * 2 + 3, Dim(5)}) {
      rows_.push_back(Add("x", rows));
      g_.inputs.push_back(rows_.back());
    }
    weights_ = graph::AddValue(&g_, "w", {ir::kF32, {1, kColumns, kColumns}});
    g_.inputs.push_back(weights_);
    const int64_t nodes = rng_.UniformInt(4, 16);
    for (int64_t n = 0; n < nodes; ++n) rng_.Bernoulli(n < 3 ? 0 : 0.4) ? Concat() : Product();
    for (int64_t n = rng_.UniformInt(1, 3); n > 0; --n) {
      Product();
      g_.outputs.push_back(rows_.back());
    }
  }
  Graph Take() { return graph::Compact(g_); }

 private:
  ValueId Add(const std::string& name, const Dim& rows) {
    return graph::AddValue(&g_, name, {ir::kF32, {1, rows, kColumns}});
  }
  const Dim& RowsOf(ValueId id) const { return g_.values[id].type.shape[1]; }

  // Mostly a recent one.
  ValueId Some() {
    const size_t recent = std::min<size_t>(rows_.size(), 5);
    return rng_.Bernoulli(0.2) ? rng_.Choice(rows_)
                               : rows_[rows_.size() - 1 - rng_.Uniform(recent)];
  }

  // Of numbers from -1 to 1.
  void Product() {
    const ValueId from = Some();
    const ValueId product = Add("p", RowsOf(from)), small = Add("t", RowsOf(from));
    g_.nodes.push_back(graph::MakeNode("matmul", "matmul", {from, weights_}, product));
    g_.nodes.push_back(graph::MakeNode("tanh", "tanh", {product}, small));
    rows_.push_back(small);
  }

  void Concat() {
    std::vector<ValueId> parts;
    Dim rows;
    do {
      parts.push_back(Some());
      rows = rows + RowsOf(parts.back());
    } while (parts.size() < 2 || rng_.Bernoulli(0.4));
    const ValueId all = Add("c", rows);
    g_.nodes.push_back(graph::MakeNode("concat", "concat", parts, all, {{"axis", int64_t{1}}}));
    rows_.push_back(all);
  }

  support::Rng& rng_;
  Graph g_;
  std::vector<ValueId> rows_;
  ValueId weights_ = -1;
};

// What is wrong with the module at one size; "" = nothing.
std::string Difference(const Graph& g, runtime::Session* session, int64_t length) {
  const auto fixed = graph::Specialize(g, {{"L", length}});
  if (!fixed.ok()) return support::StatusText(fixed.status());
  const std::vector<op::RefTensor> inputs = tests::RandomGraphInputs(*fixed, 1);
  const auto expected = graph::Interpret(*fixed, inputs);
  if (!expected.ok()) return support::StatusText(expected.status());
  std::vector<op::TensorType> types;
  for (const op::RefTensor& output : *expected) types.push_back(output.type);
  std::string error;
  const auto found = tests::RunSession(session, inputs, types, &error);
  return found ? tests::FirstDifference(*expected, *found) : error;
}

TEST(OpenViews, PartsAreWrittenWhereTheWholeHasThem) {
  const target::Target& target = tests::WidestTarget();
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(30);
  int64_t views = 0, kernels = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    support::Rng rng = support::Rng(seed).Split(static_cast<uint64_t>(i));
    const Graph g = Network(&rng).Take();
    ASSERT_TRUE(graph::Verify(g).ok()) << graph::Verify(g) << graph::Print(g);
    const auto fused = graph::RunGraphPasses(g, driver::PassContext(target));
    ASSERT_TRUE(fused.ok()) << fused.status();
    for (const graph::Node& node : fused->nodes) {
      (graph::IsView(node) ? views : kernels) += node.op == "concat" || node.body != nullptr;
    }
    const auto module = driver::CompileModel(*fused, target, nullptr, {}, nullptr);
    ASSERT_TRUE(module.ok()) << module.status();
    const auto session = tests::GuardedSession(*module, 1 + static_cast<int>(i % 2));
    ASSERT_TRUE(session.ok()) << session.status();
    for (const int64_t length : {int64_t{7}, int64_t{1}, kMost, int64_t{2}, int64_t{16}}) {
      ASSERT_EQ(Difference(g, session->get(), length), "")
          << "seed " << seed << ", network " << i << ", L = " << length << "\n"
          << graph::Print(*fused);
    }
  }
  EXPECT_GT(views, rounds / 2);
  EXPECT_GT(kernels, views);
}

}  // namespace
}  // namespace tilewright
