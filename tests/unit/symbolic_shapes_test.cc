// Dimensions as expressions: their arithmetic, the symbolic type rules against the operators' own
// rules at many sizes, inference with equalities, specialisation.
#include <gtest/gtest.h>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/op/symbolic.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/random_graph.h"
#include "tests/support/test_seed.h"

namespace tilewright::graph {
namespace {

using op::Dim;
using op::DimEqualities;
using op::SymbolicType;
using op::TensorType;
using support::Rng;

Dim ParseDim(std::string_view text) {
  std::string_view rest;
  auto dim = Dim::Parse(text, &rest);
  EXPECT_TRUE(dim.ok() && rest.empty()) << text << dim.status() << rest;
  return dim.ok() ? *dim : Dim();
}

TEST(Dim, CanonicalText) {
  const std::pair<const char*, const char*> cases[] = {
      {"N", "N"},
      {"1 + N", "N + 1"},
      {"N*2 + N", "3*N"},
      {"2*(N - 1)*M", "-2*M + 2*M*N"},
      {"N - N", "0"},
      {"-N + 3", "-N + 3"},
      {"(4*N + 6)/2", "2*N + 3"},
      {"(4*N + 7)/2", "2*N + 3"},
      {"(2*N + M - 3) / 2", "(M + 1) / 2 + N - 2"},
      {"(N/2 + 4)/2", "((N) / 2) / 2 + 2"},
  };
  for (const auto& [text, canonical] : cases) {
    EXPECT_EQ(ParseDim(text).ToText(), canonical) << text;
    EXPECT_EQ(ParseDim(canonical), ParseDim(text)) << text;
  }
  for (const char* bad : {"", "N +", "(N", "N/0", "N/M", "1234567890123", "N*N*N*N*N*N", "*N"}) {
    std::string_view rest;
    EXPECT_EQ(support::Slug(Dim::Parse(bad, &rest).status()), "op.dim.syntax") << bad;
  }
}

TEST(Dim, EvaluateIsWhatTheTextSays) {
  EXPECT_EQ(*ParseDim("(3*N - M + 1) / 4").Evaluate({{"N", 3}, {"M", 12}}), -1);  // floor(-2 / 4)
  EXPECT_EQ(support::Slug(ParseDim("N").Evaluate({}).status()), "op.dim.unknown");
  EXPECT_EQ(support::Slug(ParseDim("N*N*N*N").Evaluate({{"N", 1 << 20}}).status()),
            "op.dim.overflow");
}

// A random expression as a tree, evaluated beside what Dim makes of it.
struct Both {
  Dim dim;
  int64_t value;
};
Both RandomDim(Rng* rng, const op::Sizes& sizes, int depth) {
  if (depth == 0 || rng->Bernoulli(0.2)) {
    if (rng->Bernoulli(0.4)) {
      const int64_t number = rng->UniformInt(-9, 9);
      return {Dim(number), number};
    }
    const std::string name = rng->Bernoulli(0.5) ? "N" : "M";
    return {Dim::Variable(name), sizes.at(name)};
  }
  const Both a = RandomDim(rng, sizes, depth - 1);
  if (rng->Bernoulli(0.25)) {
    const int64_t by = rng->UniformInt(1, 5);
    return {a.dim.FloorDiv(by), a.value / by - (a.value % by < 0 ? 1 : 0)};
  }
  const Both b = RandomDim(rng, sizes, depth - 1);
  switch (rng->Uniform(3)) {
    case 0:
      return {a.dim + b.dim, a.value + b.value};
    case 1:
      return {a.dim - b.dim, a.value - b.value};
    default:
      return {a.dim * b.dim, a.value * b.value};
  }
}

TEST(Dim, ArithmeticKeepsValues) {
  Rng rng(tests::TestSeed());
  for (int i = 0; i < 5000; ++i) {
    const op::Sizes sizes = {{"N", rng.UniformInt(1, 40)}, {"M", rng.UniformInt(1, 40)}};
    const Both both = RandomDim(&rng, sizes, 3);
    ASSERT_EQ(*both.dim.Evaluate(sizes), both.value) << both.dim.ToText();
    const Dim again = both.dim.Substitute({{"N", Dim::Variable("M") + Dim(1)}});
    ASSERT_EQ(*again.Evaluate(sizes),
              *both.dim.Evaluate({{"N", sizes.at("M") + 1}, {"M", sizes.at("M")}}));
    std::string_view rest;
    auto parsed = Dim::Parse(both.dim.ToText(), &rest);
    if (!parsed.ok()) continue;  // too many terms for a text
    ASSERT_EQ(*parsed, both.dim) << both.dim.ToText();
  }
}

// Every symbolic rule says at every size what the operator's own rule says.
TEST(SymbolicRules, AgreeWithTheOperatorsAtAllSizes) {
  const uint64_t seed = tests::TestSeed();
  std::map<std::string, int> compared;
  for (int64_t i = 0; i < tests::TestRounds(400); ++i) {
    Rng rng = Rng(seed).Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    for (const Node& node : g.nodes) {
      const op::OpSpec& spec = *op::FindOp(node.op);
      std::vector<TensorType> types;
      std::vector<SymbolicType> symbolic;
      for (ValueId id : node.inputs) {
        types.push_back(g.values[id].type);
        symbolic.push_back(op::Symbolic(types.back()));
      }
      const size_t operand = rng.Uniform(types.size());
      if (types[operand].shape.empty()) continue;
      const size_t d = rng.Uniform(types[operand].shape.size());
      if (types[operand].shape[d] == 1) continue;  // broadcasts
      symbolic[operand].dims[d] = Dim::Variable("N");
      DimEqualities equal;
      auto results = op::InferSymbolic(spec, symbolic, node.attrs, &equal);
      if (!results.ok()) {
        EXPECT_EQ(support::Slug(results.status()), "op." + node.op + ".symbolic");
        continue;
      }
      for (int64_t size :
           {types[operand].shape[d], int64_t{2}, int64_t{3}, int64_t{7}, int64_t{12}}) {
        const op::Sizes sizes = {{"N", size}};
        bool holds = true;
        for (const auto& [a, b] : equal) holds = holds && *a.Evaluate(sizes) == *b.Evaluate(sizes);
        std::vector<TensorType> at = types;
        at[operand].shape[d] = size;
        auto wanted = op::InferTypes(spec, at, node.attrs);
        if (size == types[operand].shape[d]) {
          ASSERT_TRUE(holds && wanted.ok()) << node.op;
        }
        if (!holds || !wanted.ok()) continue;
        TensorType found{(*results)[0].dtype, {}};
        for (const Dim& dim : (*results)[0].dims) found.shape.push_back(*dim.Evaluate(sizes));
        ASSERT_EQ(op::ToText(found), op::ToText((*wanted)[0])) << node.op << " N=" << size;
        ++compared[node.op];
      }
    }
  }
  const std::set<std::string_view> fixed = {"arg_reduce", "conv2d_blocked", "expand",
                                            "gather_elements", "top_k"};  // have no rule
  int elementwise = 0;
  for (const op::OpSpec& spec : op::Operators()) {
    const int times = compared[std::string(spec.name)];
    if (spec.elementwise()) {  // one rule for all of them; graphs have most of them
      elementwise += times > 0;
    } else if (!fixed.contains(spec.name)) {
      EXPECT_GT(times, 0) << spec.name;
    } else {
      EXPECT_EQ(times, 0) << spec.name;
    }
  }
  EXPECT_GE(elementwise, 40);
}

TEST(SymbolicRules, ReduceKeepsDimensionsWhereTheAttributeIsAbsent) {
  const op::OpSpec& reduce = *op::FindOp("reduce");
  const op::Attrs attrs = {{"axes", std::vector<int64_t>{1}}};
  const std::vector<TensorType> types = {{ir::kF32, {3, 4}}};
  const std::vector<SymbolicType> symbolic = {op::Symbolic(types[0])};
  DimEqualities equal;
  auto results = op::InferSymbolic(reduce, symbolic, attrs, &equal);
  auto wanted = op::InferTypes(reduce, types, attrs);
  ASSERT_TRUE(results.ok() && wanted.ok()) << results.status() << wanted.status();
  EXPECT_EQ(op::ToText((*wanted)[0]), "f32[3,1]");
  EXPECT_EQ((*results)[0].dims, op::Symbolic((*wanted)[0]).dims);
}

// An image network with a free batch and free image sides.
const char kNetwork[] = R"(graph "free" {
  input %0 "x": f32[N,3,H,W]
  input %1 "w": f32[8,3,3,3]
  input %2 "d": f32[8,5]
  %3 "c": f32[N,8,(H + 1) / 2,(W + 1) / 2] = conv2d(%0, %1) {pads=[1,1,1,1], strides=[2,2]} "c"
  %4 "r": f32[N,8,(H + 1) / 2,(W + 1) / 2] = relu(%3) "r"
  %5 "m": f32[N,8] = reduce(%4) {axes=[2,3], keepdims=0, kind="mean"} "m"
  %6 "y": f32[N,5] = dense(%5, %2) {weight_layout="KN"} "y"
  %7 "v": f32[5*N] = reshape(%6) {shape=[-1]} "v"
  output %6, %7
}
)";

TEST(SymbolicGraph, TextVerifyAndSpecialize) {
  auto g = ParseGraph(kNetwork);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(Print(*g), kNetwork);
  EXPECT_EQ(SizeVariables(*g), (std::set<std::string>{"H", "N", "W"}));
  EXPECT_EQ(support::Slug(RunGraphPasses(*g).status()), "graph.pass.symbolic");
  EXPECT_EQ(support::Slug(Interpret(*g, {}).status()), "graph.interp.symbolic");
  auto fixed = Specialize(*g, {{"N", 2}, {"H", 9}, {"W", 6}});
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_FALSE(IsSymbolic(*fixed));
  EXPECT_EQ(op::ToText(fixed->values[3].type), "f32[2,8,5,3]");
  EXPECT_EQ(op::ToText(fixed->values[fixed->outputs[1]].type), "f32[10]");
  EXPECT_EQ(op::GetInts(fixed->nodes.back().attrs, "shape", {}), (std::vector<int64_t>{10}));
  EXPECT_TRUE(RunGraphPasses(*fixed).ok());
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 2}}).status()), "graph.shape.size");
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 0}, {"H", 9}, {"W", 6}}).status()),
            "graph.shape.size");
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 2}, {"H", 9}, {"W", 6}, {"Z", 1}}).status()),
            "graph.shape.size");
  std::string wrong = kNetwork;
  wrong.replace(wrong.find("(H + 1) / 2"), 11, "(H + 2) / 2");
  EXPECT_EQ(support::Slug(ParseGraph(wrong).status()), "graph.verify.type");
}

TEST(SymbolicGraph, EqualitiesSettleVariables) {
  // The addition makes M the batch N; the product makes K the 16 rows of the weights.
  auto g = ParseGraph(R"(graph {
  input %0: f32[N,K]
  input %1: f32[M,K]
  input %2: f32[16,4]
  %3: f32[N,K] = add(%0, %1)
  %4: f32[N,4] = dense(%3, %2) {weight_layout="KN"}
  output %4
}
)");
  ASSERT_TRUE(g.ok()) << g.status();
  auto inferred = InferShapes(*g);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  EXPECT_EQ(SizeVariables(*inferred), (std::set<std::string>{"M"}));
  for (ValueId id : {0, 1, 3}) {
    EXPECT_EQ(op::DimsText(inferred->values[id].dims), "[M,16]") << Print(*inferred);
  }
  // Without inference the sizes are checked one by one.
  EXPECT_TRUE(Specialize(*g, {{"N", 3}, {"M", 3}, {"K", 16}}).ok());
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 3}, {"M", 2}, {"K", 16}}).status()),
            "graph.shape.unequal");
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 3}, {"M", 3}, {"K", 15}}).status()),
            "graph.shape.unequal");
}

TEST(SymbolicGraph, ContradictionsAreRefused) {
  EXPECT_EQ(support::Slug(ParseGraph(R"(graph {
  input %0: f32[N,4]
  %1: f32[N,4] = dense(%0, %0) {weight_layout="KN"}
  %2: f32[N,5] = slice(%1) {sizes=[-1,5], starts=[0,0], steps=[1,1]}
  %3: f32[N,5] = add(%1, %2)
  output %3
}
)")
                              .status()),
            "op.add.symbolic");
}

}  // namespace
}  // namespace tilewright::graph
