// The graph IR: text, verifier, equality, interpreter, every pass, fusion.
#include "compiler/graph/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <thread>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"

namespace tilewright::graph {
namespace {

using op::RefTensor;
using op::TensorType;
using support::Rng;

Graph Parse(std::string_view text) {
  auto graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  return graph.ok() ? *graph : Graph();
}

std::string Error(std::string_view text) { return support::Slug(ParseGraph(text).status()); }

RefTensor Random(const TensorType& type, Rng* rng) {
  RefTensor tensor{type, std::vector<double>(type.elements())};
  for (double& v : tensor.values) v = op::RoundToType(rng->UniformDouble() * 2 - 1, type.dtype);
  return tensor;
}

std::vector<RefTensor> RandomInputs(const Graph& g, uint64_t seed) {
  Rng rng(seed);
  std::vector<RefTensor> inputs;
  for (ValueId id : g.inputs) inputs.push_back(Random(g.values[id].type, &rng));
  return inputs;
}

// `after` computes what `before` does, up to rounding.
void ExpectSameOutputs(const Graph& before, const Graph& after) {
  ASSERT_EQ(before.outputs.size(), after.outputs.size());
  const std::vector<RefTensor> inputs = RandomInputs(before, tests::TestSeed());
  auto a = Interpret(before, inputs), b = Interpret(after, inputs);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status() << Print(after);
  for (size_t o = 0; o < a->size(); ++o) {
    ASSERT_EQ((*a)[o].type, (*b)[o].type);
    EXPECT_EQ(before.values[before.outputs[o]].name, after.values[after.outputs[o]].name);
    for (size_t i = 0; i < (*a)[o].values.size(); ++i) {
      ASSERT_NEAR((*a)[o].values[i], (*b)[o].values[i], 1e-5 * (1 + std::fabs((*a)[o].values[i])))
          << "output " << o << " at " << i;
    }
  }
}

Graph Checked(absl::StatusOr<Graph> (*pass)(Graph, const GraphPassContext&), const Graph& g) {
  auto result = pass(g, {});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return g;
  EXPECT_TRUE(Verify(*result).ok()) << Verify(*result) << "\n" << Print(*result);
  ExpectSameOutputs(g, *result);
  return *result;
}

std::vector<std::string> Ops(const Graph& g) {
  std::vector<std::string> ops;
  for (const Node& node : g.nodes) ops.push_back(node.body ? node.body->name : node.op);
  return ops;
}

constexpr std::string_view kNoOutput = "graph {\n  input %0: f32[2]\n}\n";

const char kSmall[] = R"(graph "small" {
  input %0 "x": f32[1,2,6,6]
  input %1 "w": f32[3,2,3,3]
  input %2 "b": f32[3]
  constant %3 "half": f32[] = hex:0000003f
  %4 "c": f32[1,3,4,4] = conv2d(%0, %1, %2) {pads=[0,0,0,0], strides=[1,1], weight_layout="OIHW"} "conv"
  %5 "r": f32[1,3,4,4] = relu(%4) "relu"
  %6 "m": f32[1,3,4,4] = mul(%5, %3) "mul"
  %7 "cl": f32[1,3,4,4] = clip(%6) {max=6.0, min=-0.25} "clip"
  %8 "y": f32[1,48] = reshape(%7) {shape=[1,48]} "flat"
  output %8
}
)";

TEST(GraphText, PrintOfParseIsTheSameText) {
  EXPECT_EQ(Print(Parse(kSmall)), kSmall);
  const Graph g = Parse(kSmall);
  const std::string canonical = CanonicalText(g);
  EXPECT_EQ(CanonicalText(Parse(canonical)), canonical);
  EXPECT_EQ(canonical.find('"'), canonical.find("\"OIHW\""));  // no names
}

TEST(GraphText, AttributesOfEveryKindAndStrangeNames) {
  const char text[] = R"(graph "q\x22\x5c\x0a" {
  input %0 "a b": f32[]
  %1 "y": f32[] = relu(%0) {d=1.0, dl=f[0.5,-inf,1e+300], e=[], i=-7, il=[1,-2], nan=nan, s="x\x0ay"} "n"
  output %1
}
)";
  const Graph g = Parse(text);
  EXPECT_EQ(Print(g), text);
  EXPECT_EQ(g.name, "q\"\\\n");
  EXPECT_EQ(std::get<std::string>(g.nodes[0].attrs.at("s")), "x\ny");
  EXPECT_TRUE(std::holds_alternative<double>(g.nodes[0].attrs.at("d")));
  EXPECT_TRUE(std::isnan(std::get<double>(g.nodes[0].attrs.at("nan"))));
}

// Copies of a graph share constants, and threads may ask for the bytes of one at the same time.
TEST(GraphConstants, AreMadeOnceWhereSomebodyAsks) {
  const auto source = std::make_shared<std::string>(12, '\2');
  std::atomic<int> made{0};
  Graph g;
  const ValueId c = AddConstant(&g, "c", {ir::kF32, {3}}, [source, &made] {
    ++made;
    return *source;
  });
  const Graph copy = g;
  EXPECT_EQ(copy.values[c].constant->size(), 12);
  EXPECT_EQ(made, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { EXPECT_EQ(copy.values[c].constant->view(), *source); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(g.values[c].constant->view(), *source);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(source.use_count(), 1) << "what it was made of is kept";
}

TEST(GraphText, LargeConstantsStandAsDigests) {
  Graph g;
  g.name = "c";
  const ValueId x = AddValue(&g, "x", {ir::kF32, {32}});
  g.inputs = {x};
  const ValueId c = AddConstant(&g, "c", {ir::kF32, {32}}, std::string(128, '\1'));
  const ValueId y = AddValue(&g, "y", {ir::kF32, {32}});
  Node node;
  node.name = "n";
  node.op = "add";
  node.inputs = {x, c};
  node.outputs = {y};
  g.nodes.push_back(node);
  g.outputs = {y};
  const std::string text = Print(g);
  const std::string digest = support::Sha256Hex(std::string(128, '\1'));
  EXPECT_NE(text.find("sha256:" + digest), std::string::npos);
  EXPECT_EQ(Error(text), "graph.text.constant");
  auto back = ParseGraph(text, {{digest, g.values[c].constant}});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Print(*back), text);
}

TEST(GraphText, ErrorsNameTheLine) {
  auto bad = ParseGraph("graph {\n  input %0: f32[2]\n  %1: f32[2] = relu(%7)\n  output %1\n}\n");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(std::string(bad.status().message()).find("line 3"), std::string::npos) << bad.status();
  EXPECT_EQ(Error("graph {\n  input %0: q32[2]\n}"), "graph.text.type");
  EXPECT_EQ(Error("graph {\n  input %0: f32[-2]\n}"), "op.type.dimension");
  EXPECT_EQ(Error("graph {\n  input %1: f32[2]\n}"), "graph.text.value");
  EXPECT_EQ(Error("graph {"), "graph.text.syntax");
  EXPECT_EQ(Error(""), "graph.text.syntax");
  EXPECT_EQ(Error(std::string(kSmall) + "x"), "graph.text.trailing");
  EXPECT_EQ(Error(kNoOutput), "graph.text.syntax");
}

TEST(GraphText, MutatedTextsNeverCrash) {
  const Graph fused = *RunGraphPasses(Parse(kSmall));
  const std::string sizes =
      "graph {\n  input %0: f32[N,2*M + 1,(H + 3) / 2]\n  input %1: f32[N,1,1]\n"
      "  %2: f32[N,2*M + 1,(H + 3) / 2] = add(%0, %1)\n"
      "  %3: f32[(H + 3) / 2,N,2*M + 1] = transpose(%2) {perm=[2,0,1]}\n  output %3\n}\n";
  const std::string texts[] = {kSmall, Print(fused), CanonicalText(fused), sizes};
  Rng rng(tests::TestSeed());
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = texts[round % 4];
    for (uint64_t edits = 1 + rng.Uniform(3); edits > 0; --edits) {
      const size_t at = rng.Uniform(text.size());
      switch (rng.Uniform(4)) {
        case 0:
          text[at] = static_cast<char>(rng.Uniform(256));
          break;
        case 1:
          text.erase(at, 1 + rng.Uniform(8));
          break;
        case 2:
          text.insert(at, text.substr(rng.Uniform(text.size()), rng.Uniform(24)));
          break;
        default:
          text[at] = "0123456789%[](){}=\","[rng.Uniform(20)];
      }
      if (text.empty()) text = "g";
    }
    auto graph = ParseGraph(text);
    if (!graph.ok()) continue;
    ++accepted;
    ASSERT_EQ(Print(*ParseGraph(Print(*graph))), Print(*graph)) << text;
    if (!IsSymbolic(*graph)) continue;
    op::Sizes fixed;
    for (const std::string& name : SizeVariables(*graph)) fixed[name] = 1 + rng.UniformInt(0, 5);
    (void)InferShapes(*graph);
    (void)Specialize(*graph, fixed);
  }
  EXPECT_GT(accepted, 100);  // the mutations reach behind the parser
}

TEST(GraphVerify, EachError) {
  const Graph good = Parse(kSmall);
  auto slug = [&](auto change) {
    Graph g = good;
    change(g);
    return support::Slug(Verify(g));
  };
  EXPECT_EQ(slug([](Graph&) {}), "");
  EXPECT_EQ(slug([](Graph& g) { g.values[1].name = "x"; }), "graph.verify.name");
  EXPECT_EQ(slug([](Graph& g) { g.nodes[0].inputs[0] = 99; }), "graph.verify.value_id");
  EXPECT_EQ(slug([](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }), "graph.verify.order");
  EXPECT_EQ(slug([](Graph& g) { g.inputs.push_back(4); }), "graph.verify.defined_twice");
  EXPECT_EQ(slug([](Graph& g) { g.values[5].type.shape[0] = 2; }), "graph.verify.type");
  EXPECT_EQ(slug([](Graph& g) { g.nodes[1].op = "nonesuch"; }), "graph.verify.operator");
  EXPECT_EQ(slug([](Graph& g) { g.nodes[1].op = "fused"; }), "graph.verify.body");
  EXPECT_EQ(slug([](Graph& g) { g.values[3].type.shape = {2}; }), "graph.verify.constant");
  EXPECT_EQ(slug([](Graph& g) { g.inputs.pop_back(); }), "graph.verify.order");
  EXPECT_EQ(slug([](Graph& g) { g.outputs.clear(); }), "graph.verify.outputs");
  EXPECT_EQ(slug([](Graph& g) { g.outputs.push_back(g.outputs[0]); }), "graph.verify.outputs");
  EXPECT_EQ(slug([](Graph& g) { AddValue(&g, "extra", {ir::kF32, {1}}); }),
            "graph.verify.undefined");
}

TEST(GraphEquality, UpToNamesOnly) {
  Graph a = Parse(kSmall), b = a;
  b.name = "other";
  for (Value& v : b.values) v.name += "_renamed";
  for (Node& n : b.nodes) n.name += "_renamed";
  EXPECT_TRUE(StructuralEqual(a, b));
  EXPECT_EQ(StructuralHash(a), StructuralHash(b));
  b.nodes[3].attrs["max"] = 5.0;
  EXPECT_FALSE(StructuralEqual(a, b));
  EXPECT_NE(StructuralHash(a), StructuralHash(b));
}

TEST(GraphInterp, SmallNetworkByHand) {
  const Graph g = Parse(R"(graph {
  input %0: f32[1,2]
  input %1: f32[2,2]
  constant %2: f32[2] = hex:0000803f000080bf
  %3: f32[1,2] = dense(%0, %1) {weight_layout="NK"}
  %4: f32[1,2] = add(%3, %2)
  %5: f32[1,2] = relu(%4)
  output %5
}
)");
  auto y = Interpret(g, {{{ir::kF32, {1, 2}}, {1, 2}}, {{ir::kF32, {2, 2}}, {3, 4, 0.25, 0.25}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].values, (std::vector<double>{12, 0}));
  EXPECT_EQ(support::Slug(Interpret(g, {}).status()), "graph.interp.inputs");
  EXPECT_EQ(support::Slug(Interpret(g, {RefTensor(), RefTensor()}).status()), "graph.interp.type");
}

// ------------------------------------------------------------------------------------------ passes

TEST(GraphPassClean, RemovesIdentitiesAndDeadNodes) {
  const Graph g = Checked(Clean, Parse(R"(graph {
  input %0 "x": f32[2,3]
  constant %1 "unused": f32[] = hex:0000003f
  %2 "i": f32[2,3] = identity(%0)
  %3 "a": f32[2,3] = relu(%2)
  %4 "same": f32[2,3] = reshape(%3) {shape=[2,3]}
  %5 "r1": f32[3,2] = reshape(%4) {shape=[3,2]}
  %6 "r2": f32[6] = reshape(%5) {shape=[6]}
  %7 "dead": f32[2,3] = exp(%4)
  %8 "y": f32[6] = identity(%6)
  output %8
}
)"));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"relu", "reshape"}));
  EXPECT_EQ(g.values.size(), 3u);
  EXPECT_EQ(g.values[g.outputs[0]].name, "y");
}

TEST(GraphPassClean, KeepsWhatOutputsNeed) {
  // Two outputs of one value, an output that is an input: identities with a purpose.
  const Graph g = Checked(Clean, Parse(R"(graph {
  input %0 "x": f32[2]
  %1 "a": f32[2] = relu(%0)
  %2 "y0": f32[2] = identity(%1)
  %3 "y1": f32[2] = identity(%1)
  %4 "y2": f32[2] = identity(%0)
  output %2, %3, %4
}
)"));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"relu", "identity", "identity"}));
}

TEST(GraphPassFold, ConstantsAreEvaluated) {
  const Graph g = Checked(FoldConstants, Parse(R"(graph {
  input %0 "x": f32[2]
  constant %1 "a": f32[2] = hex:0000803f00000040
  %2 "b": f32[2] = mul(%1, %1)
  %3 "c": f32[2] = add(%2, %1)
  %4 "y": f32[2] = add(%0, %3)
  output %4
}
)"));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"add"}));
  auto c = op::FromBytes(g.values[g.nodes[0].inputs[1]].type,
                         g.values[g.nodes[0].inputs[1]].constant->view());
  EXPECT_EQ(c->values, (std::vector<double>{2, 6}));
  GraphPassContext tight;
  tight.fold_max_bytes = 4;
  EXPECT_EQ(FoldConstants(Parse(kSmall), tight)->nodes.size(), 5u);
}

// x → conv (constant weights) → batch_norm → relu
Graph ConvNormGraph(bool bias, bool shared) {
  Rng rng(7);
  Graph g;
  g.name = "bn";
  auto constant = [&](const char* name, std::vector<int64_t> shape, double low) {
    RefTensor t{{ir::kF32, shape}, {}};
    for (int64_t i = 0; i < t.type.elements(); ++i) {
      t.values.push_back(op::RoundToType(low + rng.UniformDouble(), ir::kF32));
    }
    return AddConstant(&g, name, t.type, op::ToBytes(t));
  };
  auto node = [&](const char* op_name, std::vector<ValueId> inputs, TensorType type,
                  op::Attrs attrs) {
    Node n;
    n.name = op_name;
    n.op = op_name;
    n.attrs = std::move(attrs);
    n.inputs = std::move(inputs);
    n.outputs = {AddValue(&g, op_name, std::move(type))};
    g.nodes.push_back(n);
    return n.outputs[0];
  };
  const ValueId x = AddValue(&g, "x", {ir::kF32, {1, 2, 5, 5}});
  g.inputs = {x};
  std::vector<ValueId> operands = {x, constant("w", {3, 2, 3, 3}, -0.5)};
  if (bias) operands.push_back(constant("b", {3}, -0.5));
  const TensorType type{ir::kF32, {1, 3, 3, 3}};
  const ValueId c = node("conv2d", operands, type, {});
  const ValueId n = node("batch_norm",
                         {c, constant("gamma", {3}, 0.5), constant("beta", {3}, -0.5),
                          constant("mean", {3}, -0.5), constant("var", {3}, 0.5)},
                         type, {{"epsilon", 1e-5}});
  const ValueId r = node("relu", {n}, type, {});
  g.outputs = {r};
  if (shared) g.outputs.push_back(c);
  return g;
}

TEST(GraphPassBatchNorm, GoesIntoTheConvolution) {
  for (bool bias : {false, true}) {
    const Graph g = Checked(FoldBatchNorm, ConvNormGraph(bias, false));
    EXPECT_EQ(Ops(g), (std::vector<std::string>{"conv2d", "relu"}));
  }
  const Graph g = Checked(FoldBatchNorm, ConvNormGraph(true, true));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"conv2d", "mul", "add", "relu"}));
}

TEST(GraphPassBias, ConstantAndComputed) {
  EXPECT_EQ(Ops(Checked(SplitBias, ConvNormGraph(true, false))),
            (std::vector<std::string>{"conv2d", "add", "batch_norm", "relu"}));
  const Graph g = Checked(SplitBias, Parse(kSmall));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"reshape", "conv2d", "add", "relu", "mul", "clip",
                                              "reshape"}));
}

TEST(GraphPassLayout, ConstantWeightsMove) {
  Graph g = Checked(LayoutWeights, ConvNormGraph(true, false));
  const Node& conv = g.nodes[0];
  EXPECT_EQ(op::GetString(conv.attrs, "weight_layout", ""), "IHWO");
  EXPECT_EQ(g.values[conv.inputs[1]].type.sizes(), (std::vector<int64_t>{2, 3, 3, 3}));
  const Graph dense = Checked(LayoutWeights, Parse(R"(graph {
  input %0 "x": f32[2,1]
  constant %1 "w": f32[16,1] = hex:)" + std::string(128, '1') +
                                                   R"(
  %2 "y": f32[2,16] = dense(%0, %1)
  output %2
})"));
  EXPECT_EQ(op::GetString(dense.nodes[0].attrs, "weight_layout", ""), "NK16n");
  // 130 columns: zeros fill the ninth block.
  const Graph ragged = Checked(LayoutWeights, Parse(R"(graph {
  input %0 "x": f32[2,1]
  constant %1 "w": f32[130,1] = hex:)" + std::string(130 * 8, '1') +
                                                    R"(
  %2 "y": f32[2,130] = dense(%0, %1)
  output %2
})"));
  const Value& filled = ragged.values[ragged.nodes[0].inputs[1]];
  EXPECT_EQ(filled.type.sizes(), (std::vector<int64_t>{9, 1, 16}));
  EXPECT_EQ(op::GetInt(ragged.nodes[0].attrs, "units", 0), 130);
  EXPECT_EQ(filled.constant->view().substr(size_t{4} * 129),
            std::string(4, '\x11') + std::string(size_t{4} * 14, '\0'));
  // 130 units of one gate, of which only the operator knows how many there are.
  const Graph layer = Checked(LayoutWeights, Parse(R"(graph {
  input %0 "x": f32[1,1,130]
  constant %1 "r": f32[130,1,130] = hex:)" + std::string(size_t{130} * 130 * 8, '1') +
                                                   R"(
  input %2 "h": f32[1,130]
  %3 "y": f32[2,1,1,130] = recurrent(%0, %1, %2) {activations="tanh", alphas=f[0.0], betas=f[0.0], cell="rnn"}
  output %3
})"));
  EXPECT_EQ(op::GetString(layer.nodes[0].attrs, "weight_layout", ""), "GUK16u");
  EXPECT_EQ(layer.values[layer.nodes[0].inputs[1]].type.sizes(),
            (std::vector<int64_t>{1, 9, 130, 16}));
  g = Checked(LayoutWeights, Parse(kSmall));  // weights are inputs there
  EXPECT_EQ(op::GetString(g.nodes[0].attrs, "weight_layout", ""), "OIHW");
}

TEST(GraphPassOutputs, EveryOutputGetsItsOwnStorage) {
  const Graph g = Checked(MaterializeOutputs, Parse(R"(graph {
  input %0 "x": f32[2]
  constant %1 "k": f32[2] = hex:0000803f00000040
  %2 "a": f32[2] = relu(%0)
  %3 "v": f32[2,1] = reshape(%2) {shape=[2,1]}
  %4 "xv": f32[2,1] = reshape(%0) {shape=[2,1]}
  output %3, %2, %0, %1, %4
}
)"));
  const std::vector<Storage> storage = StorageOf(g);
  std::set<ValueId> seen;
  for (ValueId id : g.outputs) {
    const ValueId root = storage[id].root;
    EXPECT_TRUE(seen.insert(root).second);
    EXPECT_EQ(g.values[root].constant, nullptr);
    EXPECT_EQ(std::count(g.inputs.begin(), g.inputs.end(), root), 0);
  }
  EXPECT_EQ(std::count_if(g.nodes.begin(), g.nodes.end(),
                          [](const Node& n) { return n.op == "identity"; }),
            4);
}

// ------------------------------------------------------------------------------------------ fusion

TEST(GraphFuse, AnchorTakesItsEpilogue) {
  const Graph g = Checked(FuseOperators, *SplitBias(Parse(kSmall), {}));
  // The bias is an input here, so its reshape is a view; the flatten at the end is one as well.
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"reshape", "conv2d_add_relu_mul_clip", "reshape"}));
  const Graph& body = *g.nodes[1].body;
  EXPECT_EQ(body.inputs.size(), 3u);  // x, w, bias: the literal 0.5 stays inside
}

TEST(GraphFuse, WeightsComeAfterDataAndScalarsStayInside) {
  auto g = RunGraphPasses(ConvNormGraph(true, false));
  ASSERT_TRUE(g.ok()) << g.status();
  ExpectSameOutputs(ConvNormGraph(true, false), *g);
  ASSERT_EQ(Ops(*g), (std::vector<std::string>{"conv2d_add_relu"}));
  const Graph& body = *g->nodes[0].body;
  ASSERT_EQ(body.inputs.size(), 3u);
  EXPECT_FALSE(body.values[body.inputs[0]].weight);
  EXPECT_TRUE(body.values[body.inputs[1]].weight);
  EXPECT_TRUE(body.values[body.inputs[2]].weight);
  EXPECT_EQ(body.values[body.inputs[1]].constant, nullptr);  // a task does not know its weights
}

TEST(GraphFuse, DiamondsFuseWhereAllPathsMeet) {
  // GELU as exporters write it: the addition is read twice, both paths end in the last product.
  const Graph g = Checked(FuseOperators, Parse(R"(graph {
  input %0 "x": f32[4,8]
  input %1 "w": f32[8,8]
  input %2 "b": f32[8]
  constant %3 "half": f32[] = hex:0000003f
  constant %4 "root": f32[] = hex:f304b53f
  constant %5 "one": f32[] = hex:0000803f
  %6 "d": f32[4,8] = dense(%0, %1) {weight_layout="KN"}
  %7 "h": f32[4,8] = add(%6, %2)
  %8 "p": f32[4,8] = mul(%7, %3)
  %9 "q": f32[4,8] = div(%7, %4)
  %10 "e": f32[4,8] = erf(%9)
  %11 "s": f32[4,8] = add(%10, %5)
  %12 "y": f32[4,8] = mul(%8, %11)
  output %12
}
)"));
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.nodes[0].body->nodes.size(), 7u);
}

TEST(GraphFuse, StopsWhereAValueIsNeededElsewhere) {
  const Graph g = Checked(FuseOperators, Parse(R"(graph {
  input %0 "x": f32[4,8]
  input %1 "w": f32[8,8]
  %2 "d": f32[4,8] = dense(%0, %1) {weight_layout="KN"}
  %3 "h": f32[4,8] = relu(%2)
  %4 "p": f32[4,8] = exp(%3)
  output %3, %4
}
)"));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"dense_relu", "exp"}));
}

TEST(GraphFuse, LaterAnchorTakesTheJoin) {
  const Graph g = Checked(FuseOperators, Parse(R"(graph {
  input %0 "x": f32[4,8]
  input %1 "w": f32[8,8]
  input %2 "v": f32[8,8]
  %3 "a": f32[4,8] = dense(%0, %1) {weight_layout="KN"}
  %4 "b": f32[4,8] = dense(%0, %2) {weight_layout="KN"}
  %5 "s": f32[4,8] = add(%4, %3)
  %6 "y": f32[4,8] = relu(%5)
  output %6
}
)"));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"dense", "dense_add_relu"}));
}

TEST(GraphFuse, BroadcastThatGrowsStaysOutside) {
  const Graph g = Checked(FuseOperators, Parse(R"(graph {
  input %0 "x": f32[4,8]
  input %1 "z": f32[3,4,1]
  %2 "m": f32[4,1] = reduce(%0) {axes=[1], keepdims=1, kind="max"}
  %3 "e": f32[4,1] = exp(%2)
  %4 "y": f32[3,4,1] = add(%3, %1)
  %5 "t": f32[4,3,1] = transpose(%4) {perm=[1,0,2]}
  %6 "u": f32[4,3,1] = tanh(%5)
  output %6
}
)"));
  EXPECT_EQ(Ops(g), (std::vector<std::string>{"reduce_exp", "add_transpose_tanh"}));
}

TEST(GraphFuse, ExpressionsDoNotExplode) {
  // Each gelu reads its operand twice: 40 in a row would be 2^40 operations as one expression.
  Graph g;
  ValueId v = AddValue(&g, "x", {ir::kF32, {2}});
  g.inputs = {v};
  for (int i = 0; i < 40; ++i) {
    Node n;
    n.name = n.op = "gelu";
    n.inputs = {v};
    n.outputs = {v = AddValue(&g, "g", {ir::kF32, {2}})};
    g.nodes.push_back(n);
  }
  g.outputs = {v};
  const Graph fused = Checked(FuseOperators, g);
  EXPECT_GE(fused.nodes.size(), 6u);
  EXPECT_LE(fused.nodes.size(), 20u);
}

TEST(GraphPasses, WholeTableOnASmallNetwork) {
  auto g = RunGraphPasses(Parse(kSmall));
  ASSERT_TRUE(g.ok()) << g.status();
  ExpectSameOutputs(Parse(kSmall), *g);
  for (const Node& node : g->nodes) EXPECT_TRUE(node.body != nullptr || IsView(node));
  EXPECT_EQ(Print(*RunGraphPasses(Parse(kSmall))), Print(*g));
}

}  // namespace
}  // namespace tilewright::graph
