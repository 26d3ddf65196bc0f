// Random loops whose number of trips is an input, some in each other, against the same trips
// written out: interpreted, after all passes, and compiled with its memory plan. States are
// matrices and vectors; trips swap them, keep them, replace them by what no trip changes, and stack
// them.
#include <gtest/gtest.h>

#include <map>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/loops.h"
#include "deploy/support/hash.h"
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
using op::RefTensor;
using support::Rng;
using support::StrCat;
using Ids = std::vector<ValueId>;

constexpr int64_t kRows = 3, kColumns = 8, kMostTrips = 4;

// Makes one graph: with loops for `trips` < 0, else with so many trips of each loop written out.
class LoopsWriter {
 public:
  explicit LoopsWriter(int64_t trips) : trips_(trips) {
    for (int i = 0; i < 2; ++i) outside_.push_back(Input("x", {ir::kF32, {kRows, kColumns}}));
    outside_.push_back(Input("v", {ir::kF32, {kColumns}}));
    most_ = Input("trips", {ir::kI64, std::vector<int64_t>{}});
  }

  Graph Run(Rng rng) {
    const Ids results = Loop(&rng, outside_, 0);
    for (ValueId id : results) {
      // Some results are looked at as they are, others after an operator.
      g_.outputs.push_back(rng.Bernoulli(0.5) ? id : Op("neg", {id}));
    }
    return graph::OrderLoops(graph::Compact(g_));
  }

 private:
  ValueId Input(const std::string& name, op::TensorType type) {
    g_.inputs.push_back(graph::AddValue(&g_, name, std::move(type)));
    return g_.inputs.back();
  }

  ValueId Op(std::string_view row, Ids inputs, op::Attrs attrs = {}) {
    op::TensorTypes types;
    for (ValueId id : inputs) types.push_back(g_.values[id].type);
    const auto results = op::InferTypes(*op::FindOp(row), types, attrs);
    EXPECT_TRUE(results.ok()) << results.status();
    const ValueId out = graph::AddValue(&g_, StrCat(row, "_", g_.nodes.size()), results->at(0));
    graph::Node node;
    node.name = g_.values[out].name;
    node.op = std::string(row);
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    node.outputs = {out};
    g_.nodes.push_back(std::move(node));
    return out;
  }

  ValueId Constant(op::TensorType type, const std::vector<double>& values) {
    const std::string bytes = op::ToBytes({type, values});
    return graph::AddConstant(&g_, StrCat("c", g_.values.size()), std::move(type), bytes);
  }
  ValueId Number(int64_t n) {
    return Constant({ir::kI64, std::vector<int64_t>{}}, {static_cast<double>(n)});
  }

  // A value of the type of `like`, of magnitude 1, from values that there are.
  ValueId Step(Rng* rng, ValueId like, const Ids& there, ValueId trip) {
    const bool matrix = g_.values[like].type.rank() == 2;
    const ValueId other = rng->Choice(there);
    switch (rng->Uniform(5)) {
      case 0: {  // the number of the trip decides
        const ValueId scale = Op("cast", {trip}, {{"dtype", std::string("f32")}});
        return Op("tanh", {Op("add", {like, scale})});
      }
      case 1:
        if (matrix) {
          std::vector<double> weights;
          for (int64_t i = 0; i < kColumns * kColumns; ++i)
            weights.push_back(op::RoundToType(rng->UniformDouble() * 0.5 - 0.25, ir::kF32));
          const ValueId w = Constant({ir::kF32, {kColumns, kColumns}}, weights);
          return Op("tanh", {Op("matmul", {like, w})});
        }
        return Op("sin", {like});
      case 2:
        if (!matrix && g_.values[other].type.rank() == 2) {
          return Op("reduce", {Op("tanh", {other})},
                    {{"kind", std::string("mean")},
                     {"axes", std::vector<int64_t>{0}},
                     {"keepdims", int64_t{0}}});
        }
        return Op("neg", {like});
      case 3:
        if (g_.values[other].type == g_.values[like].type) return other;  // a swap, or nothing new
        return like;
      default:
        return matrix ? Op("tanh", {Op("sub", {like, other})}) : Op("cos", {like});
    }
  }

  // One trip: what the states become, then what is stacked.
  Ids Trip(Rng* rng, const Ids& states, const Ids& around, ValueId trip, int depth) {
    Ids there = states;
    there.insert(there.end(), around.begin(), around.end());
    Ids results;
    if (depth == 0 && rng->Bernoulli(0.6)) {
      const Ids inner = Loop(rng, states, depth + 1);
      there.insert(there.end(), inner.begin(),
                   inner.begin() + static_cast<std::ptrdiff_t>(states.size()));
    }
    for (ValueId state : states) {
      ValueId next = state;
      for (uint64_t n = rng->Uniform(3); n > 0; --n) next = Step(rng, next, there, trip);
      there.push_back(next);
      results.push_back(next);
    }
    results.push_back(rng->Choice(there));
    return results;
  }

  // The states behind a loop, then a stack of kMostTrips parts of which those of no trip are 0.
  Ids Loop(Rng* rng, const Ids& init, int depth) {
    const Rng body = rng->Split("body");
    return trips_ < 0 ? Rolled(body, init, depth) : Unrolled(body, init, depth);
  }

  Ids Unrolled(const Rng& body, Ids states, int depth) {
    Ids parts;
    for (int64_t t = 0; t < trips_; ++t) {
      Rng rng = body;
      states = Trip(&rng, states, outside_, Number(t), depth);
      parts.push_back(states.back());
      states.pop_back();
    }
    states.push_back(Stacked(body, states, depth, std::move(parts)));
    return states;
  }

  ValueId Stacked(const Rng& body, const Ids& states, int depth, Ids parts) {
    std::vector<int64_t> shape;
    if (parts.empty()) {  // the type of a part is known from a trip
      Rng rng = body;
      shape = g_.values[Trip(&rng, states, outside_, Number(0), depth).back()].type.sizes();
    } else {
      shape = g_.values[parts[0]].type.sizes();
    }
    shape.insert(shape.begin(), 1);
    for (ValueId& part : parts) part = Op("reshape", {part}, {{"shape", shape}});
    const auto missing = kMostTrips - static_cast<int64_t>(parts.size());
    if (missing > 0) {
      shape[0] = missing;
      const op::TensorType type(ir::kF32, shape);
      parts.push_back(Constant(type, std::vector<double>(static_cast<size_t>(type.elements()))));
    }
    return Op("concat", parts, {{"axis", int64_t{0}}});
  }

  Ids Rolled(const Rng& body, const Ids& init, int depth) {
    const int64_t number = loops_++;
    const auto carry = [&](ValueId id, int64_t index) {
      return Op(graph::kLoopValueOp, {id}, {{"loop", number}, {"index", index}});
    };
    Ids values = {carry(Op("less", {Number(0), most_}), 0), carry(Number(0), 1)};
    Ids states;
    for (ValueId id : init) {
      states.push_back(carry(id, static_cast<int64_t>(values.size())));
      values.push_back(states.back());
    }
    Rng rng = body;
    Ids next = Trip(&rng, states, outside_, values[1], depth);
    const ValueId part = next.back();
    next.pop_back();
    const ValueId done = Op("add", {values[1], Number(1)});
    next.insert(next.begin(), {Op("less", {done, most_}), done});
    Ids operands = next;
    operands.insert(operands.end(), values.begin(), values.end());
    operands.push_back(part);
    const ValueId end = Op(graph::kLoopEndOp, operands,
                           {{"loop", number}, {"carried", static_cast<int64_t>(values.size())}});
    Ids results;
    for (ValueId state : states) results.push_back(Op(graph::kLoopResultOp, {end, state}));
    std::vector<int64_t> sizes(g_.values[part].type.shape.size() + 1, -1);
    sizes[0] = kMostTrips;
    const ValueId stack = Op(graph::kLoopStackOp, {end, part}, {{"sizes", sizes}});
    // Parts of trips that there were not are anything.
    std::vector<int64_t> column(sizes.size(), 1);
    column[0] = kMostTrips;
    const ValueId counting =
        Op("counting", {},
           {{"shape", std::vector<int64_t>{kMostTrips}}, {"start", std::vector<int64_t>{0}}});
    const ValueId trip = Op("reshape", {counting}, {{"shape", column}});
    const ValueId made = Op("less", {trip, most_});
    const ValueId zeros = Constant({ir::kF32, std::vector<int64_t>{}}, {0});
    results.push_back(Op("where", {made, stack, zeros}));
    return results;
  }

  const int64_t trips_;
  Graph g_{.name = "loops", .values = {}, .nodes = {}, .inputs = {}, .outputs = {}};
  Ids outside_;
  ValueId most_ = -1;
  int64_t loops_ = 0;
};

// The number of trips is the last input.
std::vector<RefTensor> Inputs(const Graph& g, int64_t trips, uint64_t seed) {
  std::vector<RefTensor> inputs = tests::RandomGraphInputs(g, seed);
  inputs.back().values = {static_cast<double>(trips)};
  return inputs;
}

TEST(RandomLoops, TripsComputeWhatTheyDoWrittenOut) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(150);
  int64_t nested = 0, on_device = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    const Rng rng = Rng(seed).Split("loops").Split(static_cast<uint64_t>(i));
    const Graph g = LoopsWriter(-1).Run(rng);
    const std::string where = StrCat("seed ", seed, ", graph ", i, "\n", graph::Print(g));
    ASSERT_EQ(graph::Verify(g), absl::OkStatus()) << where;
    nested += graph::LoopsOf(g).size() > 1 ? 1 : 0;
    std::map<std::string, std::shared_ptr<const graph::ConstantData>> constants;
    for (const graph::Value& value : g.values) {
      if (value.constant) constants[support::Sha256Hex(value.constant->view())] = value.constant;
    }
    const auto parsed = graph::ParseGraph(graph::Print(g), constants);
    ASSERT_TRUE(parsed.ok() && graph::Print(*parsed) == graph::Print(g)) << where;
    const target::Target target = tests::WidestTarget();
    const auto fused = graph::RunGraphPasses(g, driver::PassContext(target));
    ASSERT_TRUE(fused.ok()) << fused.status() << where;
    const bool compiles = i % 3 == 0;
    const auto module = compiles ? driver::CompileModel(*fused, target, nullptr, {}, nullptr)
                                 : absl::StatusOr<std::string>("");
    ASSERT_TRUE(module.ok()) << module.status() << where;
    for (int64_t trips = 0; trips <= kMostTrips; ++trips) {
      const std::vector<RefTensor> inputs = Inputs(g, trips, static_cast<uint64_t>(i));
      const auto expected = graph::Interpret(LoopsWriter(trips).Run(rng), inputs);
      ASSERT_TRUE(expected.ok()) << expected.status() << where;
      const auto rolled = graph::Interpret(g, inputs), passed = graph::Interpret(*fused, inputs);
      ASSERT_TRUE(rolled.ok() && passed.ok()) << rolled.status() << passed.status() << where;
      ASSERT_EQ(tests::FirstDifference(*expected, *rolled), "") << trips << " trips, " << where;
      ASSERT_EQ(tests::FirstDifference(*expected, *passed), "") << trips << " trips, " << where;
      if (!compiles) continue;
      std::string error;
      const int threads = 1 + static_cast<int>(trips % 2);
      const auto ran = tests::RunModule(*fused, *module, inputs, threads, &error);
      ASSERT_TRUE(ran.has_value()) << error << where;
      ASSERT_EQ(tests::FirstDifference(*expected, *ran), "") << trips << " trips, " << where;
      Rng sides_rng = rng.Split(static_cast<uint64_t>(trips));
      const std::string sides = tests::OnTwoSides(*module, &sides_rng, &on_device);
      const auto mixed = tests::RunModule(*fused, sides, inputs, threads, &error);
      ASSERT_TRUE(mixed.has_value()) << error << where;
      ASSERT_EQ(tests::FirstDifference(*ran, *mixed), "") << trips << " trips, sides, " << where;
    }
  }
  EXPECT_GT(nested, rounds / 5);
  EXPECT_GT(on_device, rounds);
}

}  // namespace
}  // namespace tilewright
