// Custom operators: their text, their type rule, what they compute (against plain loops written
// here), their import from ONNX models, and what fusion makes of them.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/verify.h"
#include "compiler/onnx/custom_operators.h"
#include "compiler/onnx/onnx_check.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_strip_weights.h"
#include "compiler/op/custom_text.h"
#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"
#include "tests/unit/onnx_evaluate.h"
#include "tests/unit/op_case.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
using op::custom::Definition;
using op::custom::Parse;
using support::StrCat;

constexpr char kNorm[] = R"(
# Root mean square norm with a gate.
operator com.acme::GatedNorm(x: T[.., d], gate: T[.., d], weight: T[d]) -> (y: T[.., d], scale: T[..])
  type T in f32, f64;
  attribute epsilon: float = 1e-5;
  attribute mode: string = "silu";
  require d >= 2;
{
  scale[..] = 1 / sqrt(sum(k: d, x[.., k] * x[.., k]) / T(d) + epsilon);
  y[.., j] = x[.., j] * scale[..] * weight[j] *
      select(mode == "silu", gate[.., j] * sigmoid(gate[.., j]), sigmoid(gate[.., j]));
})";

Numbers GatedNorm(const Numbers& x, const Numbers& gate, const Numbers& weight, double epsilon,
                  Numbers* scale) {
  const size_t d = weight.size();
  Numbers y(x.size());
  for (size_t row = 0; row < x.size() / d; ++row) {
    double sum = 0;
    for (size_t k = 0; k < d; ++k) sum += x[row * d + k] * x[row * d + k];
    scale->push_back(1 / std::sqrt(sum / static_cast<double>(d) + epsilon));
    for (size_t k = row * d; k < row * d + d; ++k) {
      y[k] = x[k] * scale->back() * weight[k - row * d] * gate[k] / (1 + std::exp(-gate[k]));
    }
  }
  return y;
}

// A model with one node of an operator that `text` defines, for inputs x0, x1, ...
class OneNode {
 public:
  OneNode(const std::string& text, const std::string& type, const std::vector<Shape>& inputs,
          int outputs = 1, int element = pb::TensorProto::FLOAT)
      : text_(text), b_(17) {
    node_ = b_.graph().add_node();
    node_->set_op_type(type);
    node_->set_domain("com.acme");
    node_->set_name("n");
    for (size_t i = 0; i < inputs.size(); ++i) {
      b_.Input(StrCat("x", i), inputs[i], element);
      node_->add_input(StrCat("x", i));
    }
    for (int i = 0; i < outputs; ++i) {
      node_->add_output(StrCat("y", i));
      b_.graph().add_output()->set_name(StrCat("y", i));
    }
  }
  pb::NodeProto& node() { return *node_; }
  OnnxBuilder& builder() { return b_; }
  // With the definitions in its metadata.
  OnnxBuilder Model() const {
    OnnxBuilder b = b_;
    auto* entry = b.model().add_metadata_props();
    entry->set_key("tilewright.operators.test.ops");
    entry->set_value(text_);
    return b;
  }
  absl::StatusOr<Graph> Import(const ImportOptions& options = {}) const {
    return ImportOnnx(Model().Bytes(), options);
  }

 private:
  std::string text_;
  OnnxBuilder b_;
  pb::NodeProto* node_;
};

void AddFloat(pb::NodeProto* node, const std::string& name, double value) {
  auto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(pb::AttributeProto::FLOAT);
  a->set_f(static_cast<float>(value));
}
void AddText(pb::NodeProto* node, const std::string& name, const std::string& value) {
  auto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(pb::AttributeProto::STRING);
  a->set_s(value);
}
void AddInts(pb::NodeProto* node, const std::string& name, const std::vector<int64_t>& values) {
  auto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(pb::AttributeProto::INTS);
  for (const int64_t v : values) a->add_ints(v);
}

// Whether the text, as an operator of one operand, is refused for this reason.
std::string Refusal(const std::string& text, const Shape& shape = {3, 4},
                    int element = pb::TensorProto::FLOAT) {
  const auto g = OneNode(text, "Op", {shape}, 1, element).Import();
  return g.ok() ? "imported" : std::string(support::Slug(g.status()));
}
std::string One(const std::string& body, const std::string& result = "T[n, d]") {
  return StrCat("operator com.acme::Op(x: T[n, d]) -> (y: ", result,
                ") type T in f32, i32, bool; { ", body, " }");
}

TEST(CustomText, PrintAndParseAreInverse) {
  const char* const texts[] = {kNorm,
                               R"(operator a.b::C(x: f32[n, 4]) -> (y: f32[n, (2 * n)])
         attribute k: int = -3; attribute v: ints = [1, -2]; attribute w: floats = [0.5, -1e-9];
         attribute t: string; require n % 2 == 0 && !(n > 64);
         { m[i: n] = max(a: 2, b: 2, x[i, a + 2 * b]);
           y[i, j] = select(x[i, 0] < -inf || m[i] != 0, -x[i, j % 4], f32(i)); })"};
  for (const std::string text : texts) {
    const auto parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const std::string printed = Print((*parsed)[0]);
    const auto again = Parse(printed);
    ASSERT_TRUE(again.ok()) << again.status() << printed;
    EXPECT_EQ(Print((*again)[0]), printed);
    EXPECT_EQ(printed.find('\n'), std::string::npos);
  }
}

TEST(CustomText, RefusalsSayWhere) {
  const auto error = [](const std::string& text) {
    return std::string(Parse(text).status().message());
  };
  EXPECT_NE(error("operator a::B(x: f32[n]) -> (y: f32[n])\n{ y[i] = x[i] +; }")
                .find("line 2, column 16"),
            std::string::npos)
      << error("operator a::B(x: f32[n]) -> (y: f32[n])\n{ y[i] = x[i] +; }");
  for (const auto& [text, slug] : std::vector<std::pair<std::string, std::string>>{
           {"", "op.custom.syntax"},
           {"operator a::B(x: f32[n]) -> (y: f32[n]) { }", "op.custom.name"},
           {"operator a::B(x: f32[n]) -> (x: f32[n]) { x[i] = 0; }", "op.custom.name"},
           {"operator a::B(x: f32[n]) -> (y: f32[n]) { y[x] = 0; }", "op.custom.name"},
           {"operator a::B(x: f32[n]) -> (y: f32[n]) { y[i] = 1f32; }", "op.custom.syntax"},
           {"operator a::B(x: f32[n]) -> (y: f32[n]) { y[i] = 1 < 2 < 3; }", "op.custom.syntax"},
           {"operator a::B(f32: f32[n]) -> (y: f32[n]) { y[i] = 1; }", "op.custom.name"},
           {StrCat("operator a::B(x: f32[n]) -> (y: f32[n]) { y[i] = ", std::string(80, '('), "1",
                   std::string(80, ')'), "; }"),
            "op.custom.limit"},
           {std::string(300 << 10, ' '), "op.custom.limit"}}) {
    EXPECT_EQ(support::Slug(Parse(text).status()), slug) << text.substr(0, 200);
  }
  std::string sum = "operator a::B(x: f32[n]) -> (y: f32[n]) { y[i] = 1";
  for (int i = 0; i < 300; ++i) sum += " + x[i]";
  EXPECT_EQ(support::Slug(Parse(sum + "; }").status()), "op.custom.limit");
}

TEST(CustomText, MutatedTextsNeverCrash) {
  const std::string whole(kNorm);
  support::Rng rng(tests::TestSeed());
  int imported = 0;
  for (int64_t round = 0; round < tests::TestRounds(3000); ++round) {
    std::string text = whole;
    for (int64_t edits = rng.UniformInt(1, 3); edits > 0; --edits) {
      const size_t at = rng.Uniform(text.size()), from = rng.Uniform(whole.size());
      const size_t length = std::min<size_t>(rng.Uniform(12), whole.size() - from);
      if (rng.Bernoulli(0.5)) text.erase(at, rng.Uniform(6));
      text.insert(std::min(at, text.size()), whole.substr(from, length));
    }
    const auto g = OneNode(text, "GatedNorm", {{3, 4}, {3, 4}, {4}}).Import();
    if (!g.ok()) continue;
    ++imported;
    EXPECT_TRUE(RunGraphPasses(*g).ok());
    for (const Node& node : g->nodes) {
      std::vector<op::TensorType> types;
      for (const ValueId id : node.inputs) types.push_back(g->values[id].type);
      const op::TensorType result = g->values[node.outputs[0]].type;
      const auto function = op::AsFunction(*op::FindOp(node.op), types, {result}, node.attrs);
      ASSERT_TRUE(function.ok() && ir::Verify(*function).ok()) << text;
    }
  }
  EXPECT_GT(imported, 0);
}

TEST(CustomOperator, ComputesWhatItsDefinitionSays) {
  const Numbers x = Random(15, 2, 1), gate = Random(15, 3, 2), weight = Random(5, 1, 3);
  for (const bool both : {true, false}) {
    OneNode model(kNorm, "GatedNorm", {{3, 5}, {3, 5}, {5}}, both ? 2 : 1);
    AddFloat(&model.node(), "epsilon", 0.25);
    Numbers scale;
    const Numbers expected = GatedNorm(x, gate, weight, 0.25, &scale);
    const auto out = tests::EvaluateOnnx(
        model.Model(), {TensorOf({3, 5}, x), TensorOf({3, 5}, gate), TensorOf({5}, weight)}, 1e-6);
    ExpectNear(out[0], {3, 5}, expected, 1e-5);
    if (both) ExpectNear(out[1], {3}, scale, 1e-5);
  }
}

TEST(CustomOperator, AnyRankInFront) {
  const Numbers x = Random(6, 2, 1), gate = Random(6, 3, 2), weight = Random(3, 1, 3);
  for (const Shape& shape : {Shape{3}, Shape{2, 3}, Shape{1, 2, 1, 3}}) {
    OneNode model(kNorm, "GatedNorm", {shape, shape, {3}});
    AddText(&model.node(), "mode", "sigmoid");
    const size_t count = shape.size() == 1 ? 3 : 6;
    const Numbers row(x.begin(), x.begin() + static_cast<long>(count));
    const Numbers gates(gate.begin(), gate.begin() + static_cast<long>(count));
    const auto out = tests::EvaluateOnnx(
        model.Model(), {TensorOf(shape, row), TensorOf(shape, gates), TensorOf({3}, weight)}, 1e-6);
    Numbers scale, expected = GatedNorm(row, gates, weight, 1e-5, &scale);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] /= gates[i];
    ExpectNear(out[0], shape, expected, 1e-4);
  }
}

TEST(CustomOperator, PositionsOutsideAreTheNearestElement) {
  const std::string text =
      One("y[i, j] = x[i, j - 1] + 10 * x[i + 7, 0] + 100 * x[i, i32(x[i, 1])];");
  const auto out = tests::EvaluateOnnx(OneNode(text, "Op", {{2, 3}}, 1).Model(),
                                       {TensorOf({2, 3}, {1, 2, 3, 4, -9, 6})}, 0);
  // x[1, 0] is 4; x[0, 1] = 2 points at 3, x[1, 1] = -9 at the first, which is 4.
  ExpectNear(out[0], {2, 3}, {341, 341, 342, 444, 444, 431}, 0);
}

TEST(CustomOperator, WindowsWithPadding) {
  const std::string text = R"(
    operator com.acme::Op(x: f32[c, h, w], f: f32[c, kh, kw]) -> (y: f32[c, (h + 2 * p[0] - kh) / s + 1, (w + 2 * p[1] - kw) / s + 1])
      attribute p: ints = [0, 0]; attribute s: int = 1;
    { y[c1, i, j] = sum(a: kh, b: kw,
        select(i * s + a - p[0] >= 0 && i * s + a - p[0] < h && j * s + b - p[1] >= 0 && j * s + b - p[1] < w,
               x[c1, i * s + a - p[0], j * s + b - p[1]], 0) * f[c1, a, b]); })";
  OneNode model(text, "Op", {{2, 5, 4}, {2, 3, 3}});
  AddInts(&model.node(), "p", {1, 1});
  auto* s = model.node().add_attribute();
  s->set_name("s");
  s->set_type(pb::AttributeProto::INT);
  s->set_i(2);
  const Numbers x = Random(40, 2, 1), f = Random(18, 1, 2);
  Numbers expected;
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 2; ++j) {
        double sum = 0;
        for (int a = 0; a < 3; ++a) {
          for (int b = 0; b < 3; ++b) {
            const int h = i * 2 + a - 1, w = j * 2 + b - 1;
            const bool inside = h >= 0 && h < 5 && w >= 0 && w < 4;
            if (inside) sum += x[c * 20 + h * 4 + w] * f[c * 9 + a * 3 + b];
          }
        }
        expected.push_back(sum);
      }
    }
  }
  const auto out =
      tests::EvaluateOnnx(model.Model(), {TensorOf({2, 5, 4}, x), TensorOf({2, 3, 3}, f)}, 1e-6);
  ExpectNear(out[0], {2, 3, 2}, expected, 1e-5);
  // The guard bounds the positions: no position of the window is computed twice.
  const auto g = model.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->nodes.size(), 1u);
}

TEST(CustomOperator, IntegersAndBools) {
  const std::string text =
      R"(operator com.acme::Op(x: i32[n, d]) -> (y: i32[n, d], odd: bool[n])
         { y[i, j] = x[i, j] / (j - 1 - 0 * j == 0 - 1 - j) ; odd[i] = sum(k: d, x[i, k] % 2) > 0; })";
  // A bool is no number.
  EXPECT_EQ(Refusal(text, {2, 3}, pb::TensorProto::INT32), "op.custom.type");
  const std::string good =
      R"(operator com.acme::Op(x: i32[n, d]) -> (y: i32[n, d], odd: bool[n])
         { y[i, j] = x[i, j] / i32(j - 1) + bit_and(x[i, j], 1); odd[i] = sum(k: d, x[i, k] % 2) > 2; })";
  OneNode model(good, "Op", {{2, 3}}, 2, pb::TensorProto::INT32);
  const auto out =
      tests::EvaluateOnnx(model.Model(), {TensorOf({2, 3}, {-3, 5, 7, 8, -6, -5}, ir::kI32)}, 0);
  // Quotients round down, by 0 they are 0.
  ExpectNear(out[0], {2, 3}, {3 + 1, 0 + 1, 7 + 1, -8, 0, -5 + 1}, 0);
  ExpectNear(out[1], {2}, {1, 0}, 0);
}

// The first of equals; NaN is the largest and the smallest.
TEST(CustomOperator, PositionsOfTheLargestAndTheSmallest) {
  const std::string text =
      R"(operator com.acme::Op(x: T[n, d]) -> (most: i64[n], least: i64[n], gap: T[n]) type T in f32, i32;
         { most[i] = argmax(k: d, x[i, k]); least[i] = argmin(k: d, 2 * x[i, k]);
           gap[i] = x[i, most[i]] - x[i, argmin(k: d, x[i, k])]; })";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const Numbers x = {1, 7, -3, 7, -3, 2, nan, 9, nan, -8, -inf, -inf, -inf, -inf, -inf};
  const auto out =
      tests::EvaluateOnnx(OneNode(text, "Op", {{3, 5}}, 3).Model(), {TensorOf({3, 5}, x)}, 0);
  ExpectNear(out[0], {3}, {1, 1, 0}, 0);
  ExpectNear(out[1], {3}, {2, 1, 0}, 0);
  EXPECT_EQ(out[2].values[0], 10);
  const auto ints =
      tests::EvaluateOnnx(OneNode(text, "Op", {{1, 4}}, 3, pb::TensorProto::INT32).Model(),
                          {TensorOf({1, 4}, {-5, 3, 3, -5}, ir::kI32)}, 0);
  ExpectNear(ints[0], {1}, {1}, 0);
  ExpectNear(ints[1], {1}, {0}, 0);
  ExpectNear(ints[2], {1}, {8}, 0);

  EXPECT_EQ(Refusal(One("y[i] = argmax(k: d, x[i, k]);", "i64[n]")), "imported");
  EXPECT_EQ(Refusal(One("y[i] = argmax(k: d, x[i, k]);", "f32[n]")), "op.custom.type");
  EXPECT_EQ(Refusal(One("y[i] = f32(argmax(k: d, x[i, k]));", "f32[n]")), "imported");
  EXPECT_EQ(Refusal(One("y[i] = argmax(k: d, x[i, k] > 0);", "i64[n]")), "op.custom.type");
  EXPECT_EQ(Refusal(One("y[i] = argmin(k: d, l: d, x[i, k] * x[i, l]);", "i64[n]")),
            "op.custom.syntax");
}

TEST(CustomOperator, FloatsOf16BitsComputeInF32) {
  OneNode model(kNorm, "GatedNorm", {{2, 4}, {2, 4}, {4}}, 2, pb::TensorProto::FLOAT16);
  const auto g = model.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  for (const ValueId id : g->outputs) EXPECT_EQ(g->values[id].type.dtype, ir::kF16);
}

TEST(CustomOperator, TypeRulesRefuse) {
  const std::pair<std::string, std::string> cases[] = {
      {One("y[i, j] = x[i, j] + 0.5;"), "imported"},
      {One("y[i, j] = x[i, j] + i;"), "op.custom.type"},
      {One("y[i, j] = x[i];"), "op.custom.shape"},
      {One("y[i] = x[i, 0];"), "op.custom.shape"},
      {One("y[i, j] = x[i, 0.5];"), "op.custom.type"},
      {One("y[i, j] = x[i, j] < 0;"), "op.custom.type"},
      {One("y[i, j] = z[i, j];"), "op.custom.name"},
      {One("y[i, j] = foo(x[i, j]);"), "op.custom.name"},
      {One("y[i, j] = epsilon;"), "op.custom.name"},
      {One("y[i, j] = exp(x[i, j], 1);"), "op.custom.type"},
      {One("y[i, j] = bit_and(x[i, j], 1);"), "op.custom.type"},
      {One("y[i, j] = x[i, j] % 2;"), "op.custom.type"},
      {One("y[i, j] = select(x[i, j], 1, 0);"), "op.custom.type"},
      {One("y[i, j] = \"text\";"), "op.custom.type"},
      {One("m[i: n - 3] = x[i, 0]; y[i, j] = m[i];"), "op.custom.shape"},
      {One("y[i, j] = sum(k: 0, x[i, k]);"), "op.custom.shape"},
      {One("y[i, j] = sum(n: d, x[i, n]);"), "op.custom.name"},
      {One("y[i, j] = x[i, j];", "T[n, d - 4]"), "op.type.dimension"},
      {One("y[i, j] = x[i, j];", "T[n, e]"), "op.custom.shape"},
      {One("y[i, j] = x[i, j];", "S[n, d]"), "op.custom.type"},
      {One("y[i, j] = x[i, j];", "T[n, 1099511627776 * 1099511627776]"), "op.custom.shape"},
      {One("y[i, j] = sum(k: 1099511627776, sum(l: 1099511627776, x[i, k]));"), "op.type.size"},
      {One("y[i, j] = sum(k: 1099511627776, l: 1099511627776, x[i, k]);"), "op.custom.limit"},
      {"operator com.acme::Op(x: f32[n, n]) -> (y: f32[n]) { y[i] = x[i, i]; }", "op.custom.shape"},
      {"operator com.acme::Op(x: f64[n, d]) -> (y: f64[n]) { y[i] = x[i, 0]; }", "op.custom.type"},
      {"operator com.acme::Op(x: f32[n]) -> (y: f32[n]) { y[i] = x[i]; }", "op.custom.shape"},
      {"operator com.acme::Op(x: f32[n, d]) -> (y: f32[n]) require d == 5; { y[i] = x[i, 0]; }",
       "op.custom.require"},
      {"operator com.acme::Op(x: f32[n, d], z: f32[n]) -> (y: f32[n]) { y[i] = x[i, 0]; }",
       "graph.onnx.inputs"},
      {"operator com.acme::Op(x: f32[n, d]) -> (y: f32[n]) attribute a: int; { y[i] = x[i, 0]; }",
       "op.custom.attribute"},
      {"operator com.acme::Other(x: f32[n]) -> (y: f32[n]) { y[i] = x[i]; }",
       "graph.onnx.unsupported_operator"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(Refusal(text), expected) << text;
}

TEST(CustomOperator, RefusedAttributes) {
  const auto slug = [](const std::function<void(pb::NodeProto*)>& add) {
    OneNode model(kNorm, "GatedNorm", {{2, 4}, {2, 4}, {4}});
    add(&model.node());
    return std::string(support::Slug(model.Import().status()));
  };
  EXPECT_EQ(slug([](pb::NodeProto* n) { AddFloat(n, "eps", 1); }), "op.custom.attribute");
  EXPECT_EQ(slug([](pb::NodeProto* n) { AddText(n, "epsilon", "1"); }), "op.custom.attribute");
  EXPECT_EQ(slug([](pb::NodeProto* n) { AddInts(n, "mode", {1}); }), "op.custom.attribute");
  EXPECT_EQ(slug([](pb::NodeProto* n) { AddFloat(n, "epsilon", 1); }), "");
}

TEST(CustomOperator, ErrorsNameTheFileAndTheNode) {
  OneNode model(kNorm, "GatedNorm", {{2, 4}, {2, 5}, {4}});
  const std::string message(model.Import().status().message());
  for (const char* part : {"test.ops", "\"n\"", "GatedNorm", "gate", "f32[2,5]"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(CustomOperator, OneDefinitionForEachNumberOfOperands) {
  const std::string one = "operator com.acme::Op(x: f32[n]) -> (y: f32[n]) { y[i] = 2 * x[i]; } ";
  const std::string two =
      "operator com.acme::Op(x: f32[n], z: f32[n]) -> (y: f32[n]) { y[i] = x[i] * z[i]; }";
  EXPECT_TRUE(OneNode(one + two, "Op", {{3}}).Import().ok());
  EXPECT_TRUE(OneNode(one + two, "Op", {{3}, {3}}).Import().ok());
  EXPECT_EQ(support::Slug(OneNode(one + one, "Op", {{3}}).Import().status()), "op.custom.name");
}

TEST(CustomOperator, ADefinitionTakesThePlaceOfAnOperatorOfTheImport) {
  OneNode model("operator ai.onnx::Relu(x: f32[..]) -> (y: f32[..]) { y[..] = min(x[..], 6.0); }",
                "Relu", {{3}});
  model.node().set_domain("");
  const auto out = tests::EvaluateOnnx(model.Model(), {TensorOf({3}, {-1, 2, 9})}, 0);
  ExpectNear(out[0], {3}, {-1, 2, 6}, 0);
}

// What fusion knows of an elementwise definition is what it knows of its own operators.
TEST(CustomOperator, ElementwiseOnesAreFused) {
  OneNode model(R"(operator com.acme::Op(x: T[.., d], b: T[d]) -> (y: T[.., d]) type T in f32;
                   { y[.., j] = max(x[.., j] + b[j], 0.1 * x[.., j]); })",
                "Op", {{1, 4, 6, 8}, {8}});
  OnnxBuilder& b = model.builder();
  b.Weight("w", {4, 4, 1, 1});
  auto* conv = b.graph().add_node();
  conv->set_op_type("Conv");
  for (const char* name : {"x0", "w"}) conv->add_input(name);
  conv->add_output("c");
  model.node().set_input(0, "c");
  const auto g = model.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  const auto fused = RunGraphPasses(*g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  int kernels = 0;
  for (const Node& node : fused->nodes) kernels += IsView(node) ? 0 : 1;
  EXPECT_EQ(kernels, 1) << Print(*fused);
}

TEST(CustomOperator, StagesThatResultsShareAreComputedOnce) {
  const auto g = OneNode(kNorm, "GatedNorm", {{2, 4}, {2, 4}, {4}}, 2).Import();
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->nodes.size(), 2u) << Print(*g);
  EXPECT_EQ(g->nodes[1].inputs.back(), g->nodes[0].outputs[0]);
  // One result is one kernel.
  const auto single = OneNode(kNorm, "GatedNorm", {{2, 4}, {2, 4}, {4}}, 1).Import();
  ASSERT_TRUE(single.ok());
  EXPECT_EQ(single->nodes.size(), 1u) << Print(*single);
}

TEST(CustomOperator, OpenSizes) {
  OneNode model(kNorm, "GatedNorm", {{1, 4}, {1, 4}, {4}}, 2);
  for (int i = 0; i < 2; ++i) {
    auto* dim = model.builder()
                    .graph()
                    .mutable_input(i)
                    ->mutable_type()
                    ->mutable_tensor_type()
                    ->mutable_shape()
                    ->mutable_dim(0);
    dim->clear_dim_value();
    dim->set_dim_param(i == 0 ? "N" : "M");
  }
  ImportOptions options;
  options.open["N"] = options.open["M"] = {1, 64};
  const auto g = model.Import(options);
  ASSERT_TRUE(g.ok()) << g.status();
  // The definition demands that they are equal.
  EXPECT_EQ(SizeVariables(*g).size(), 1u) << Print(*g);
  // What it requires of an open size cannot be decided.
  OneNode halves(
      "operator com.acme::Op(x: f32[n]) -> (y: f32[n / 2]) require n % 2 == 0; "
      "{ y[i] = x[2 * i]; }",
      "Op", {{1}});
  auto* dim = halves.builder()
                  .graph()
                  .mutable_input(0)
                  ->mutable_type()
                  ->mutable_tensor_type()
                  ->mutable_shape()
                  ->mutable_dim(0);
  dim->set_dim_param("N");
  options.open.erase("M");
  const auto refused = halves.Import(options);
  EXPECT_EQ(support::Slug(refused.status()), "op.custom.symbolic") << refused.status();
}

TEST(CustomOperator, AddOperatorsJoinsDefinitionsToTheModel) {
  OneNode model("operator x::Y(x: f32[n]) -> (y: f32[n]) { y[i] = x[i]; }", "GatedNorm",
                {{2, 4}, {2, 4}, {4}});
  std::string bytes = model.builder().Bytes();
  EXPECT_EQ(support::Slug(ImportOnnx(bytes).status()), "graph.onnx.unsupported_operator");
  ASSERT_TRUE(AddOperators({"acme.ops", kNorm}, &bytes).ok());
  EXPECT_TRUE(ImportOnnx(bytes).ok()) << ImportOnnx(bytes).status();
  const absl::Status bad = AddOperators({"bad.ops", "operator"}, &bytes);
  EXPECT_NE(bad.message().find("bad.ops"), std::string::npos) << bad;
  // They stay with a model without its weights, and other metadata does not.
  pb::ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  parsed.add_metadata_props()->set_key("author");
  const auto stripped = StripWeights(parsed.SerializeAsString(), 1);
  ASSERT_TRUE(stripped.ok()) << stripped.status();
  EXPECT_TRUE(ImportOnnx(stripped->onnx).ok());
  EXPECT_EQ(stripped->onnx.find("author"), std::string::npos);
}

// A function of a library: its types alone are known.
TEST(CustomOperator, ExternalKernels) {
  const std::string text =
      R"(operator com.acme::Op(x: T[n, d]) -> (y: T[n, d / s]) type T in f32;
         attribute s: int = 2; attribute w: floats = [0.5, 1.0]; attribute mode: string = "a";
         library "libacme.so" function acme_op;)";
  OneNode model(text, "Op", {{3, 8}});
  AddText(&model.node(), "mode", "b\"c");
  const auto g = model.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->nodes.size(), 1u);
  EXPECT_EQ(g->nodes[0].op, "external");
  EXPECT_EQ(op::ToText(g->values[g->outputs[0]].type), "f32[3,4]");
  EXPECT_EQ(op::GetString(g->nodes[0].attrs, "attributes", ""),
            "s = 2\nw = [0.5, 1.0]\nmode = \"b\\\"c\"\n");
  const auto again = ParseGraph(Print(*g));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(StructuralEqual(*g, *again));
  EXPECT_EQ(support::Slug(Interpret(*g, {TensorOf({3, 8}, Numbers(24, 1.0))}).status()),
            "op.external.reference");

  const auto slug = [&](const std::string& library) {
    return Refusal("operator com.acme::Op(x: f32[n, d]) -> (y: f32[n]) " + library);
  };
  EXPECT_EQ(slug("library \"liba.so\" function f { y[i] = x[i, 0]; }"), "imported");
  EXPECT_EQ(slug("library \"liba.so\" function f { y[i] = x[i]; }"), "op.custom.shape");
  EXPECT_EQ(slug("library \"liba.so\" function f { }"), "op.custom.name");
  EXPECT_EQ(slug("library \"liba.so\" function f;"), "imported");
  for (const char* bad : {"library liba.so function f;", "library \"\" function f;",
                          "library \"/lib/liba.so\" function f;", "library \"..\" function f;",
                          "library \"lib a.so\" function f;", "library \"liba.so\";",
                          "library \"liba.so\" function f.g;"}) {
    EXPECT_EQ(slug(bad), "op.custom.syntax") << bad;
  }
}

// Its stages are the reference of a library's function, and are not compiled.
TEST(CustomOperator, ExternalKernelsHaveTheirStagesAsReference) {
  OneNode model(R"(operator com.acme::Op(x: T[n, d]) -> (y: T[n, d / s]) type T in f32;
                   attribute s: int = 2; library "libacme.so" function acme_op
                   { y[i, j] = sum(k: s, x[i, s * j + k]); })",
                "Op", {{2, 4}});
  const auto g = model.Import();
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->nodes.size(), 1u);
  EXPECT_EQ(g->nodes[0].op, "external");
  const auto again = ParseGraph(Print(*g));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(StructuralEqual(*g, *again));
  const auto out = Interpret(*again, {TensorOf({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})});
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectNear((*out)[0], {2, 2}, {3, 7, 11, 15}, 0);
}

TEST(CustomOperator, CheckNamesTheFile) {
  OneNode model(kNorm, "GatedNorm", {{2, 4}, {2, 4}, {4}});
  const auto check = CheckOnnx(model.Model().Bytes());
  ASSERT_TRUE(check.ok());
  EXPECT_TRUE(check->problems.empty());
  ASSERT_EQ(check->custom.size(), 1u);
  EXPECT_EQ(check->custom.begin()->first, "GatedNorm of com.acme");
  EXPECT_EQ(check->custom.begin()->second, "test.ops");
}

// The row itself: its compute by the interpreter, which checks regions, against its reference.
TEST(CustomOperator, RowsComputeTheirReference) {
  support::Rng rng(op::Seed());
  const std::string softmax =
      "operator t::Softmax(x: T[.., d]) -> (y: T[.., d]) type T in f32; "
      "{ m[..] = max(k: d, x[.., k]); "
      "y[.., j] = exp(x[.., j] - m[..]) / sum(k: d, exp(x[.., k] - m[..])); }";
  op::ExpectComputeMatchesReference({"custom", {{3, 2, 7}}, {{"definition", softmax}}}, &rng);
  const std::string product =
      "operator t::Product(a: f32[m, k], b: f32[k, n]) -> (y: f32[m, n]) "
      "{ y[i, j] = sum(l: k, a[i, l] * b[l, j]); }";
  op::ExpectComputeMatchesReference({"custom", {{3, 5}, {5, 4}}, {{"definition", product}}}, &rng);
  op::ExpectComputeMatchesReference(
      {"custom_elementwise",
       {{3, 1, 5}, {2, 1}},
       {{"expression", std::string("(tanh(x0) + (0.5 * x1))")}, {"dtype", std::string("f32")}}},
      &rng);
}

}  // namespace
}  // namespace tilewright::graph
