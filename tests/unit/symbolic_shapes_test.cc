// Dimensions as expressions: their arithmetic, the symbolic type rules against the operators' own
// rules at many sizes, inference with equalities, specialisation.
#include <gtest/gtest.h>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/op/op.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/random_graph.h"
#include "tests/support/test_seed.h"

namespace tilewright::graph {
namespace {

using op::Dim;
using op::DimEqualities;
using op::TensorType;
using support::Rng;

Dim ParseDim(std::string_view text) {
  auto dim = Dim::Parse(text);
  EXPECT_TRUE(dim.ok()) << text << dim.status();
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
  for (const char* bad :
       {"", "N +", "(N", "N/0", "N/M", "1234567890123", "N*N*N*N*N*N", "*N", "N,", "N 2"}) {
    EXPECT_EQ(support::Slug(Dim::Parse(bad).status()), "dim.syntax") << bad;
  }
}

TEST(Dim, EvaluateIsWhatTheTextSays) {
  EXPECT_EQ(*ParseDim("(3*N - M + 1) / 4").Evaluate({{"N", 3}, {"M", 12}}), -1);  // floor(-2 / 4)
  EXPECT_EQ(support::Slug(ParseDim("N").Evaluate({}).status()), "dim.unknown");
  EXPECT_EQ(support::Slug(ParseDim("N*N*N*N").Evaluate({{"N", 1 << 20}}).status()), "dim.overflow");
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

// One operator, applied to operands with size variables.
struct RuleCase {
  const char* op;
  std::vector<const char*> operands;
  const char* attrs;
  const char* result;  // a type, or the slug of a refusal
};

absl::StatusOr<Graph> GraphOf(const RuleCase& c) {
  std::string text = "graph {\n";
  std::vector<std::string> operands;
  for (const char* type : c.operands) {
    operands.push_back(support::StrCat("%", operands.size()));
    text += support::StrCat("  input ", operands.back(), ": ", type, "\n");
  }
  const std::string result = support::StrCat("%", operands.size());
  const bool refused = std::string_view(c.result).starts_with("op.");
  const std::string attrs = *c.attrs == '\0' ? "" : support::StrCat(" {", c.attrs, "}");
  text += support::StrCat("  ", result, ": ", refused ? "f32[]" : c.result, " = ", c.op, "(",
                          support::Join(operands, ", "), ")", attrs, "\n");
  return ParseGraph(support::StrCat(text, "  output ", result, "\n}\n"));
}

// What each rule says, written by hand. ParseGraph compares the declared type with the rule's.
const RuleCase kResults[] = {
    {"add", {"f32[N,1,M]", "f32[K,1]"}, "", "f32[N,K,M]"},
    {"less", {"i32[N]", "i32[]"}, "", "bool[N]"},
    {"where", {"bool[N,1]", "f32[4]", "f32[N,4]"}, "", "f32[N,4]"},
    {"cast", {"f32[N,M]"}, R"(dtype="i64")", "i64[N,M]"},
    {"quantize", {"f32[N,4]", "f32[4]", "u8[4]"}, "", "u8[N,4]"},
    {"dequantize", {"i8[N,M]", "f32[]", "i8[]"}, "", "f32[N,M]"},
    {"requantize", {"i32[N,4]", "i32[4]"}, "shift=7", "i32[N,4]"},
    {"packed_dense",
     {"f32[N,32*K]", "i32[B,4*K,16]", "f32[B,K,16]"},
     "bits=4, group=32",
     "f32[N,16*B]"},
    {"conv2d",
     {"f32[N,3,H,W]", "f32[8,3,3,3]"},
     "pads=[1,1,1,1], strides=[2,2]",
     "f32[N,8,(H + 1) / 2,(W + 1) / 2]"},
    {"conv2d",
     {"f32[N,4,H,W]", "f32[6,2,3,3]", "f32[6]"},
     "dilations=[2,2], groups=2",
     "f32[N,6,H - 4,W - 4]"},
    {"conv2d",
     {"f32[N,C,H,8]", "f32[K,C,1,3,16]"},
     R"(weight_layout="OIHW16o")",
     "f32[N,16*K,H,6]"},
    {"conv2d",
     {"u8[N,2,H,W]", "i8[2,3,3,K]"},
     R"(pads=[1,1,1,1], weight_layout="IHWO")",
     "i32[N,K,H,W]"},
    {"conv2d",
     {"f32[N,2,H,W,8]", "f32[3,2,3,3,8,16]"},
     R"(data_layout="NCHW8c", weight_layout="OIHW8i16o")",
     "f32[N,3,H - 2,W - 2,16]"},
    {"conv2d",
     {"f32[N,2,H,W,8]", "f32[2,3,3,8]"},
     R"(data_layout="NCHW8c", groups=16, pads=[1,1,1,1], weight_layout="OHW8o")",
     "f32[N,2,H,W,8]"},
    {"conv2d",
     {"u8[N,C,H,W,8]", "i8[3,C,1,1,2,16,4]"},
     R"(data_layout="NCHW8c", weight_layout="OIHW2i16o4i")",
     "i32[N,3,H,W,16]"},
    {"conv2d_transpose",
     {"f32[N,4,H,W]", "f32[4,3,4,4]"},
     "pads=[1,1,1,1], strides=[2,2]",
     "f32[N,3,2*H,2*W]"},
    {"conv2d_transpose",
     {"f32[N,4,H,W]", "f32[1,3,3,4,16]", "f32[32]"},
     R"(groups=2, output_padding=[1,0], strides=[2,1], weight_layout="OHWI16o")",
     "f32[N,32,2*H + 2,W + 2]"},
    {"conv2d_transpose",
     {"f32[N,2,H,W,8]", "f32[3,2,2,2,8,16]"},
     R"(data_layout="NCHW8c", strides=[2,2], weight_layout="OIHW8i16o")",
     "f32[N,3,2*H,2*W,16]"},
    {"dense", {"f32[N,M,8]", "f32[5,8]"}, "", "f32[N,M,5]"},
    {"dense", {"f32[N,K]", "f32[K,M]"}, R"(weight_layout="KN")", "f32[N,M]"},
    {"dense", {"f32[N,K]", "f32[2,K,16]"}, R"(units=20, weight_layout="NK16n")", "f32[N,20]"},
    {"dense", {"u8[N,8]", "i8[M,2,16,4]"}, R"(weight_layout="NK16n4k")", "i32[N,16*M]"},
    {"matmul", {"f32[B,1,M,K]", "f32[H,K,N]"}, "", "f32[B,H,M,N]"},
    {"reduce", {"f32[N,M,K]"}, R"(axes=[1], kind="max")", "f32[N,1,K]"},
    {"reduce", {"f32[N,M,K]"}, "axes=[0,-1], keepdims=0", "f32[M]"},
    {"softmax", {"f32[N,M]"}, "", "f32[N,M]"},
    {"normalize", {"f32[N,M]"}, "", "f32[N,M]"},
    {"arg_reduce", {"f32[N,M]"}, "keepdims=0", "i64[N]"},
    {"arg_reduce", {"f32[N,M]"}, "axis=0", "i64[1,M]"},
    {"top_k", {"f32[N,M]"}, "k=2", "i64[N,2]"},
    {"pool2d",
     {"f32[N,C,H,W]"},
     "kernel=[3,2], pads=[1,0,1,0], strides=[2,3]",
     "f32[N,C,(H + 1) / 2,(W + 1) / 3]"},
    {"pool2d", {"f32[N,C,H,W,8]"}, R"(kernel=[2,2], kind="avg")", "f32[N,C,H - 1,W - 1,8]"},
    {"reshape", {"f32[N,2,M,3]"}, "shape=[2,-1,3]", "f32[2,M*N,3]"},
    {"reshape", {"f32[N,2]"}, "shape=[3,4]", "f32[3,4]"},
    {"reshape", {"f32[M,N - 1,20]"}, "shape=[N - 1,-1,5]", "f32[N - 1,4*M,5]"},
    {"reshape", {"f32[(N) / 2,M,4]"}, "shape=[-1,N]", "f32[2*M,N]"},
    {"transpose", {"f32[N,M,K]"}, "perm=[2,0,1]", "f32[K,N,M]"},
    {"batch_norm", {"f32[N,C,H]", "f32[C]", "f32[C]", "f32[C]", "f32[C]"}, "", "f32[N,C,H]"},
    {"append", {"f32[N,4]", "f32[M,4]"}, "", "f32[M + N,4]"},
    {"concat", {"f32[N,4]", "f32[M,4]", "f32[2,4]"}, "axis=0", "f32[M + N + 2,4]"},
    {"slice", {"f32[N,M]"}, "sizes=[-1,2], starts=[1,0], steps=[3,1]", "f32[(N + 1) / 3,2]"},
    {"gather", {"f32[K,M,8]", "i64[N,S]"}, "axis=1", "f32[K,N,S,8]"},
    {"gather_elements", {"f32[N,M]", "i64[N,K]"}, "axis=1", "f32[N,K]"},
    {"pad", {"f32[N,M]"}, "pads=[1,-1,2,0]", "f32[N + 3,M - 1]"},
    {"pad", {"f32[N,M]"}, "pads=[N,0,2,M]", "f32[2*N + 2,2*M]"},
    {"expand", {"f32[N,1]"}, "shape=[2,3,5]", "f32[2,3,5]"},
    {"attention",
     {"f32[N,S,6,8]", "f32[T,N,2,8]", "f32[T,N,2,5]", "f32[S,T]"},
     R"(k_layout="SBHD", q_layout="BSHD", v_layout="SBHD", y_layout="BSHD")",
     "f32[N,S,6,5]"},
    {"search_sorted", {"i64[T]", "i64[N]"}, "steps=8", "i64[N]"},
    {"pick_boxes", {"f32[N,5,M]", "f32[N,C,M]", "f32[]", "f32[]"}, "picks=7", "i64[N,C,7]"},
    {"cumulate", {"f32[T,N]"}, R"(kind="sum")", "f32[T + 1,N]"},
    {"recurrent",
     {"f32[T,N,12]", "f32[3,4,3]", "f32[N,3]", "f32[N,3]", "bool[T,N]"},
     R"(activations="sigmoid tanh tanh", alphas=f[0.0,0.0,0.0], betas=f[0.0,0.0,0.0], cell="lstm", masked=1)",
     "f32[T + 1,2,N,3]"},
    {"linear_attention",
     {"f32[N,T,6,4]", "f32[N,T,3,4]", "f32[N,T,3,5]", "f32[N,3,4,5]", "f32[N,T,3,1]"},
     "beta=1",
     "f32[N,3,2*T + 4,5]"},
    {"custom_elementwise",
     {"f32[N,4]", "f32[4]"},
     R"text(dtype="bool", expression="(x0 < x1)")text",
     "bool[N,4]"},
    {"custom",
     {"f32[N,M]", "i64[K]"},
     R"text(definition="operator a::B(x: f32[n, m], z: i64[k]) -> (y: f32[n, ((m + 1) / 2)]) { y[i, j] = x[i, z[j]]; }")text",
     "f32[N,(M + 1) / 2]"},
    {"external",
     {"f32[N,M]"},
     R"text(definition="operator a::B(x: f32[n, m]) -> (y: i64[(2 * n)]) library \x22liba.so\x22 function f;")text",
     "i64[2*N]"},
    {"bitcast", {"f32[N,M]"}, "dtype=\"i32\"", "i32[N,M]"},
    {"counting", {}, "shape=[2*N], start=[N]", "i64[2*N]"},
};

TEST(SymbolicRules, EveryRowSaysWhatItsResultIs) {
  Rng rng(tests::TestSeed());
  std::set<std::string_view> named;
  for (const RuleCase& c : kResults) {
    named.insert(c.op);
    auto g = GraphOf(c);
    ASSERT_TRUE(g.ok()) << c.op << " " << g.status();
    int accepted = 0;
    for (int round = 0; round < 200; ++round) {
      op::Sizes sizes;
      for (const std::string& name : SizeVariables(*g)) sizes[name] = rng.UniformInt(2, 9);
      auto fixed = Specialize(*g, sizes);  // verifies: the rule at these sizes says the same
      accepted += fixed.ok();
      if (fixed.ok()) continue;
      const std::string slug(support::Slug(fixed.status()));
      EXPECT_NE(slug, "graph.verify.type") << c.op << " " << fixed.status();
    }
    EXPECT_GT(accepted, 0) << c.op;
  }
  for (const op::OpSpec& spec : op::Operators()) {
    const bool here = named.contains(spec.name);
    EXPECT_TRUE(spec.infer == nullptr || spec.control || here) << spec.name;  // loops: loops_test
  }
}

TEST(SymbolicRules, Refusals) {
  const RuleCase cases[] = {
      {"add", {"f32[N,4]", "f32[N,5]"}, "", "op.add.shape"},
      {"add", {"f32[N]", "f32[N + 1]"}, "", "op.add.shape"},
      {"add", {"f32[N]", "i32[N]"}, "", "op.add.type"},
      {"neg", {"f32[N]", "f32[N]"}, "", "op.neg.inputs"},
      {"pad", {"f32[N,2]"}, "pads=[0,-2,0,0]", "op.type.dimension"},
      {"conv2d", {"f32[N,3,H,W]", "f32[8,3,K,3]"}, "", "op.conv2d.symbolic"},
      {"conv2d", {"f32[N,3,2,W]", "f32[8,3,3,3]"}, "", "op.conv2d.kernel"},
      {"conv2d", {"f32[N,3,H,W]", "f32[8,4,3,3]"}, "", "op.conv2d.channels"},
      {"conv2d",
       {"f32[N,2,H,W,8]", "f32[2,K,3,8]"},
       R"(data_layout="NCHW8c", groups=16, weight_layout="OHW8o")",
       "op.conv2d.symbolic"},
      {"conv2d_transpose", {"f32[N,3,H,W]", "f32[3,4,3,K]"}, "", "op.conv2d_transpose.symbolic"},
      {"reshape", {"f32[N,3]"}, "shape=[-1,2]", "op.reshape.symbolic"},
      {"reshape", {"f32[N,3]"}, "shape=[-1,-1]", "op.reshape.shape"},
      {"reshape",  // the product would have 4^10 terms
       {"f32[a + b + c + d,e + f + g + h,i + j + k + l,m + n + o + p,q + r + s + t,A + B + C + D,"
        "E + F + G + H,I + J + K + L,M + N + O + P,Q + R + S + T]"},
       "shape=[-1]",
       "op.reshape.symbolic"},
      {"slice", {"f32[N,4]"}, "sizes=[-1,5], starts=[0,0], steps=[1,1]", "op.slice.range"},
      {"slice", {"f32[N]"}, "sizes=[-1], starts=[0], steps=[-1]", "op.slice.range"},
      {"top_k", {"f32[N,3]"}, "k=4", "op.top_k.attribute"},
      {"gather_elements", {"f32[N,3]", "i64[N + 1,3]"}, "axis=1", "op.gather_elements.shape"},
  };
  for (const RuleCase& c : cases) {
    EXPECT_EQ(support::Slug(GraphOf(c).status()), c.result) << c.op << GraphOf(c).status();
  }
}

// Each dimension of each operand in turn becomes a variable: the rule says at every size of it
// what it says of fixed types. What it leaves open at some size is an order or a divisor: every
// other demand is an equality that it collected.
TEST(SymbolicRules, VariablesStandForAllSizes) {
  const std::set<std::string> undecided = {
      "op.conv2d.channels", "op.conv2d.kernel",         "op.conv2d_transpose.channels",
      "op.pool2d.kernel",   "op.slice.range",           "op.top_k.attribute",
      "op.type.dimension",  "op.gather_elements.shape", "op.conv2d_transpose.pads"};
  const uint64_t seed = tests::TestSeed();
  std::map<std::string, int> compared;
  auto compare = [&](const Graph& g, const Node& node, size_t operand, size_t d) {
    const op::OpSpec& spec = *op::FindOp(node.op);
    std::vector<TensorType> types;
    for (ValueId id : node.inputs) types.push_back(g.values[id].type);
    std::vector<TensorType> symbolic = types;
    symbolic[operand].shape[d] = Dim::Variable("N");
    DimEqualities equal;
    auto results = op::InferTypes(spec, symbolic, node.attrs, &equal);
    if (!results.ok()) {
      EXPECT_EQ(support::Slug(results.status()), "op." + node.op + ".symbolic");
      return;
    }
    const int64_t own = types[operand].size(static_cast<int64_t>(d));
    for (int64_t size : {own, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{12}}) {
      const op::Sizes sizes = {{"N", size}};
      bool holds = true;
      for (const auto& [a, b] : equal) holds = holds && *a.Evaluate(sizes) == *b.Evaluate(sizes);
      types[operand].shape[d] = size;
      auto wanted = op::InferTypes(spec, types, node.attrs);
      ASSERT_TRUE(size != own || (holds && wanted.ok())) << node.op << wanted.status();
      ASSERT_TRUE(holds || !wanted.ok()) << node.op << " N=" << size << " fits";
      if (!wanted.ok()) {
        const std::string slug(support::Slug(wanted.status()));
        ASSERT_TRUE(!holds || undecided.contains(slug)) << wanted.status();
        continue;
      }
      TensorType found = (*results)[0];
      for (Dim& dim : found.shape) dim = dim.Substitute({{"N", Dim(size)}});
      ASSERT_EQ(op::ToText(found), op::ToText((*wanted)[0])) << node.op << " N=" << size;
      ++compared[node.op];
    }
  };
  for (int64_t i = 0; i < tests::TestRounds(400); ++i) {
    Rng rng = Rng(seed).Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    for (const Node& node : g.nodes) {
      for (size_t operand = 0; operand < node.inputs.size(); ++operand) {
        const std::vector<int64_t> shape = g.values[node.inputs[operand]].type.sizes();
        for (size_t d = 0; d < shape.size(); ++d) {
          if (shape[d] != 1) compare(g, node, operand, d);  // 1 broadcasts
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  std::set<std::string> left_out;
  for (const auto& [name, reason] : tests::OperatorsLeftOut()) left_out.insert(name);
  for (const op::OpSpec& spec : op::Operators()) {
    const std::string name(spec.name);
    const bool has_operands = spec.max_inputs > 0;
    EXPECT_TRUE(!has_operands || compared[name] > 0 || left_out.contains(name)) << name;
  }
}

TEST(TypeRules, ReduceKeepsDimensionsWhereTheAttributeIsAbsent) {
  const op::OpSpec& reduce = *op::FindOp("reduce");
  const op::Attrs attrs = {{"axes", std::vector<int64_t>{1}}};
  const std::vector<TensorType> types = {{ir::kF32, {Dim::Variable("N"), Dim(4)}}};
  DimEqualities equal;
  auto results = op::InferTypes(reduce, types, attrs, &equal);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(op::ToText((*results)[0]), "f32[N,1]");
}

// P counts from 0 on: P - 1 entries. Whatever the names are, it stays, and takes over what is known
// of the other.
TEST(InferShapes, ASizeFromZeroOnStaysAndNarrows) {
  for (const std::string other : {"A", "Z"}) {
    auto graph = graph::ParseGraph(
        "graph \"g\" {\n  input %0 \"x\": f32[P]\n  input %1 \"t\": f32[" + other +
        "]\n  input %2 \"o\": f32[1]\n  %3 \"l\": f32[P + 1] = concat(%0, %2) " +
        "{axis=0} \"l\"\n  %4 \"y\": f32[P + 1] = add(%3, %1) \"y\"\n  output %4\n}\n");
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph->size_ranges = {{"P", {1, 9, "past"}}, {other, {4, 8}}};
    const auto inferred = graph::InferShapes(*graph);
    ASSERT_TRUE(inferred.ok()) << inferred.status();
    EXPECT_EQ(op::ToText(inferred->values[inferred->inputs[1]].type), "f32[P + 1]");
    EXPECT_EQ(inferred->size_ranges,
              (std::map<std::string, graph::SizeRange>{{"P", {3, 7, "past"}}}));
    graph->size_ranges[other] = {1, 1};
    EXPECT_EQ(support::Slug(graph::InferShapes(*graph).status()), "graph.shape.range");
  }
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
  EXPECT_TRUE(RunGraphPasses(*g).ok()) << RunGraphPasses(*g).status();
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

// No variable can take the place of another there: only even sizes are sizes of the graph.
TEST(SymbolicGraph, WhatOnlySomeSizesGiveIsKept) {
  const auto g = ParseGraph(R"(graph "pairs" {
  input %0 "x": f32[H]
  %1: f32[2*(H) / 2] = slice(%0) {sizes=[2*(H) / 2], starts=[0], steps=[1]} "even"
  %2: f32[H] = add(%0, %1) "sum"
  output %2
})");
  ASSERT_TRUE(g.ok()) << g.status();
  const auto inferred = InferShapes(*g);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  const auto passed = RunGraphPasses(*inferred);
  ASSERT_TRUE(passed.ok()) << passed.status();
  for (const Graph* graph : {&*inferred, &*passed}) {
    ASSERT_EQ(graph->equal_sizes.size(), 1U);
    EXPECT_EQ(graph->equal_sizes[0].left.ToText(), "H");
    EXPECT_EQ(graph->equal_sizes[0].right.ToText(), "2*(H) / 2");
    EXPECT_EQ(graph->equal_sizes[0].what, "sum");
  }
  EXPECT_EQ(support::Slug(Specialize(*inferred, {{"H", 5}}).status()), "graph.shape.unequal");
  const auto fixed = Specialize(*inferred, {{"H", 6}});
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_TRUE(fixed->equal_sizes.empty());
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
    EXPECT_EQ(op::DimsText(inferred->values[id].type.shape), "[M,16]") << Print(*inferred);
  }
  // Without inference the sizes are checked one by one.
  EXPECT_TRUE(Specialize(*g, {{"N", 3}, {"M", 3}, {"K", 16}}).ok());
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 3}, {"M", 2}, {"K", 16}}).status()),
            "graph.shape.unequal");
  EXPECT_EQ(support::Slug(Specialize(*g, {{"N", 3}, {"M", 3}, {"K", 15}}).status()),
            "graph.shape.unequal");
}

TEST(SymbolicGraph, SettledSizesMoveToTheAttributes) {
  auto g = ParseGraph(R"(graph {
  input %0: f32[N,4]
  input %1: f32[3,4]
  %2: f32[3,4] = add(%0, %1)
  %3: f32[12] = reshape(%2) {shape=[-1]}
  %4: f32[N,2] = slice(%0) {sizes=[-1,2], starts=[0,1], steps=[1,1]}
  output %3, %4
}
)");
  ASSERT_TRUE(g.ok()) << g.status();
  auto inferred = InferShapes(*g);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  EXPECT_FALSE(IsSymbolic(*inferred));
  const auto sizes = [&](size_t node, const char* name) {
    return op::GetInts(inferred->nodes[node].attrs, name, {});
  };
  EXPECT_EQ(sizes(1, "shape"), (std::vector<int64_t>{12}));
  EXPECT_EQ(sizes(2, "sizes"), (std::vector<int64_t>{3, 2}));
  auto fixed = ParseGraph(
      "graph {\n input %0: f32[3,4]\n %1: f32[12] = reshape(%0) {shape=[-1]}\n"
      " output %1\n}\n");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  fixed = InferTypes(*fixed, {});
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(op::GetInts(fixed->nodes[0].attrs, "shape", {}), (std::vector<int64_t>{12}));
}

}  // namespace
}  // namespace tilewright::graph
