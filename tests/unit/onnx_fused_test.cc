// Operators that ONNX Runtime fuses, against their formulas in doubles; what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
constexpr int kU8 = pb::TensorProto::UINT8;

pb::NodeProto* Microsoft(OnnxBuilder& b, const std::string& op, const Names& inputs) {
  pb::NodeProto* node = b.Node(op, inputs, "y");
  node->set_domain("com.microsoft");
  return node;
}

TEST(OnnxFused, GelusInFourForms) {
  const Numbers x = {-3, -0.5, 0, 1, 2.5, 4}, bias = {0.5, -1, 0.25};
  struct Row {
    std::string op;
    bool bias;
    double (*formula)(double);
  };
  const auto exact = [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); };
  const auto tanh = [](double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  const auto quick = [](double v) { return v / (1 + std::exp(-1.702 * v)); };
  for (const Row& row :
       {Row{"Gelu", false, exact}, Row{"BiasGelu", true, exact}, Row{"FastGelu", false, tanh},
        Row{"FastGelu", true, tanh}, Row{"QuickGelu", false, quick}}) {
    OnnxBuilder b;
    b.Input("x", {2, 3}).Floats("bias", {0.5F, -1, 0.25F}).Output("y", {2, 3});
    Microsoft(b, row.op, row.bias ? Names{"x", "bias"} : Names{"x"});
    Numbers expected;
    for (size_t i = 0; i < x.size(); ++i) {
      expected.push_back(row.formula(x[i] + (row.bias ? bias[i % 3] : 0)));
    }
    ExpectNear(tests::EvaluateOnnx(b, {TensorOf({2, 3}, x)}, 1e-5)[0], {2, 3}, expected, 1e-5);
  }
}

TEST(OnnxFused, NormOfASumOfThree) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 4}).Input("skip", {2, 4});
  b.Floats("gamma", {1, 2, 3, 4}).Floats("beta", {1, 0, -1, 0.5F}).Floats("bias", {0, 1, 2, 4});
  pb::NodeProto* node =
      Microsoft(b, "SkipLayerNormalization", {"x", "skip", "gamma", "beta", "bias"});
  for (const char* name : {"mean", "scale", "sum"}) node->add_output(name);
  OnnxBuilder::AttrFloat(node, "epsilon", 0.5);
  b.Output("y", {1, 2, 4}).Output("mean", {1, 2, 1}).Output("scale", {1, 2, 1});
  b.Output("sum", {1, 2, 4});
  const Numbers x = {1, 2, 3, 4, -1, 0, 5, 2}, skip = {0, 1, 0, 2, 3, 3, 1, 0};
  const double gamma[] = {1, 2, 3, 4}, beta[] = {1, 0, -1, 0.5}, bias[] = {0, 1, 2, 4};
  Numbers y, means, scales, sums;
  for (size_t r = 0; r < 2; ++r) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < 4; ++i) {
      sums.push_back(x[4 * r + i] + skip[4 * r + i] + bias[i]);
      mean += sums.back() / 4;
    }
    for (size_t i = 0; i < 4; ++i) variance += std::pow(sums[4 * r + i] - mean, 2) / 4;
    means.push_back(mean);
    scales.push_back(1 / std::sqrt(variance + 0.5));
    for (size_t i = 0; i < 4; ++i) {
      y.push_back((sums[4 * r + i] - mean) * scales.back() * gamma[i] + beta[i]);
    }
  }
  const auto out = tests::EvaluateOnnx(b, {TensorOf({1, 2, 4}, x), TensorOf({2, 4}, skip)}, 1e-5);
  ExpectNear(out[0], {1, 2, 4}, y, 1e-5);
  ExpectNear(out[1], {1, 2, 1}, means, 1e-5);
  ExpectNear(out[2], {1, 2, 1}, scales, 1e-5);
  ExpectNear(out[3], {1, 2, 4}, sums, 1e-5);
}

// The batch axis is the first one, and with transBatch the one before the columns.
TEST(OnnxFused, MatMulTurnsRowsAndBatches) {
  for (int form = 0; form < 16; ++form) {
    const bool rows_a = form & 1, rows_b = form & 2, batch_a = form & 4, batch_b = form & 8;
    constexpr int64_t kBatch = 2, kRows = 3, kInner = 4, kColumns = 5;
    // Where [batch, first, second] lies: the shape, and the place of an element.
    const auto shape = [](bool batch, int64_t first, int64_t second) {
      return batch ? Shape{first, kBatch, second} : Shape{kBatch, first, second};
    };
    const auto place = [](bool batch, int64_t n, int64_t i, int64_t j, int64_t first,
                          int64_t second) {
      return static_cast<size_t>(batch ? (i * kBatch + n) * second + j
                                       : (n * first + i) * second + j);
    };
    const Shape a_shape = rows_a ? shape(batch_a, kInner, kRows) : shape(batch_a, kRows, kInner);
    const Shape b_shape =
        rows_b ? shape(batch_b, kColumns, kInner) : shape(batch_b, kInner, kColumns);
    OnnxBuilder b;
    b.Input("a", a_shape).Input("b", b_shape).Output("y", {kBatch, kRows, kColumns});
    pb::NodeProto* node = Microsoft(b, "FusedMatMul", {"a", "b"});
    OnnxBuilder::Attr(node, "transA", int64_t{rows_a});
    OnnxBuilder::Attr(node, "transB", int64_t{rows_b});
    OnnxBuilder::Attr(node, "transBatchA", int64_t{batch_a});
    OnnxBuilder::Attr(node, "transBatchB", int64_t{batch_b});
    OnnxBuilder::AttrFloat(node, "alpha", 0.5);
    const Numbers a = Random(24, 1, 1), w = Random(40, 1, 2);
    Numbers expected;
    for (int64_t n = 0; n < kBatch; ++n) {
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t j = 0; j < kColumns; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < kInner; ++k) {
            sum += a[rows_a ? place(batch_a, n, k, i, kInner, kRows)
                            : place(batch_a, n, i, k, kRows, kInner)] *
                   w[rows_b ? place(batch_b, n, j, k, kColumns, kInner)
                            : place(batch_b, n, k, j, kInner, kColumns)];
          }
          expected.push_back(sum / 2);
        }
      }
    }
    ExpectNear(tests::EvaluateOnnx(b, {TensorOf(a_shape, a), TensorOf(b_shape, w)}, 1e-5)[0],
               {kBatch, kRows, kColumns}, expected, 1e-5);
  }
}

struct Activation {
  std::string name;
  std::vector<float> numbers;
  double (*formula)(double);
};
const std::vector<Activation>& Activations() {
  static const auto& rows = *new std::vector<Activation>{
      {"", {}, [](double v) { return v; }},
      {"Relu", {}, [](double v) { return std::max(v, 0.0); }},
      {"Tanh", {}, [](double v) { return std::tanh(v); }},
      {"Sigmoid", {}, [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"Silu", {}, [](double v) { return v / (1 + std::exp(-v)); }},
      {"LeakyRelu", {0.25}, [](double v) { return v < 0 ? v / 4 : v; }},
      {"Elu", {0.5}, [](double v) { return v < 0 ? std::expm1(v) / 2 : v; }},
      {"HardSigmoid", {0.25, 0.5}, [](double v) { return std::clamp(v / 4 + 0.5, 0.0, 1.0); }},
      {"Clip", {-0.5, 0.75}, [](double v) { return std::clamp(v, -0.5, 0.75); }},
  };
  return rows;
}

// A convolution of one pixel windows is a product; Z is added before the activation.
TEST(OnnxFused, ConvolutionWithSumAndActivation) {
  const Numbers x = Random(8, 2, 3), z = Random(8, 2, 4);
  const double w[2][2] = {{1, -2}, {0.5, 3}}, bias[] = {0.25, -1};
  for (const Activation& a : Activations()) {
    OnnxBuilder b;
    b.Input("x", {1, 2, 2, 2}).Input("z", {1, 2, 2, 2}).Output("y", {1, 2, 2, 2});
    b.Floats("flat", {1, -2, 0.5, 3}).Floats("bias", {0.25, -1}).Ints("shape", {2, 2, 1, 1});
    b.Node("Reshape", {"flat", "shape"}, "w");
    pb::NodeProto* node = Microsoft(b, "FusedConv", {"x", "w", "bias", "z"});
    if (!a.name.empty()) OnnxBuilder::AttrText(node, "activation", a.name);
    pb::AttributeProto* params = node->add_attribute();
    params->set_name("activation_params");
    params->set_type(pb::AttributeProto::FLOATS);
    for (float number : a.numbers) params->add_floats(number);
    Numbers expected;
    for (size_t c = 0; c < 2; ++c) {
      for (size_t i = 0; i < 4; ++i) {
        expected.push_back(a.formula(w[c][0] * x[i] + w[c][1] * x[4 + i] + bias[c] + z[4 * c + i]));
      }
    }
    const Shape shape = {1, 2, 2, 2};
    ExpectNear(tests::EvaluateOnnx(b, {TensorOf(shape, x), TensorOf(shape, z)}, 1e-5)[0], shape,
               expected, 1e-5);
  }
}

TEST(OnnxFused, GemmWithActivation) {
  const Numbers x = Random(6, 2, 5);
  const double w[3][2] = {{1, -2}, {0.5, 3}, {2, 1}}, bias[] = {0.25, -1};
  for (const Activation& a : Activations()) {
    if (a.name == "Clip") continue;  // its numbers have no attributes here
    OnnxBuilder b;
    b.Input("x", {2, 3}).Floats("flat", {1, -2, 0.5, 3, 2, 1}).Floats("c", {0.25, -1});
    b.Ints("shape", {3, 2}).Node("Reshape", {"flat", "shape"}, "w");
    pb::NodeProto* node = Microsoft(b, "FusedGemm", {"x", "w", "c"});
    OnnxBuilder::AttrFloat(node, "alpha", 0.5);
    OnnxBuilder::AttrFloat(node, "beta", 2);
    if (!a.name.empty()) OnnxBuilder::AttrText(node, "activation", a.name);
    const char* names[] = {"activation_alpha", "activation_beta"};
    for (size_t i = 0; i < a.numbers.size(); ++i) {
      OnnxBuilder::AttrFloat(node, names[i], a.numbers[i]);
    }
    b.Output("y", {2, 2});
    Numbers expected;
    for (size_t r = 0; r < 2; ++r) {
      for (size_t c = 0; c < 2; ++c) {
        double sum = 2 * bias[c];
        for (size_t k = 0; k < 3; ++k) sum += 0.5 * x[3 * r + k] * w[k][c];
        expected.push_back(a.formula(sum));
      }
    }
    ExpectNear(tests::EvaluateOnnx(b, {TensorOf({2, 3}, x)}, 1e-5)[0], {2, 2}, expected, 1e-5);
  }
}

// Bytes times bytes in floats, with a scale and a zero point for each column.
TEST(OnnxFused, ProductsOfBytesGiveFloats) {
  const double a_scale = 0.5, a_zero = 4, scales[] = {0.25, 2}, zeros[] = {1, 9}, bias[] = {3, -5};
  const int64_t w[3][2] = {{7, 20}, {0, 9}, {255, 1}};
  const auto model = [&](OnnxBuilder& b) {
    b.Small("w", kU8, {3, 2}, {7, 20, 0, 9, 255, 1}).Floats("w_s", {0.25, 2});
    b.Small("w_z", kU8, {2}, {1, 9}).Floats("bias", {3, -5}).Output("y", {2, 2});
  };
  const auto product = [&](const Numbers& a, double step, double zero) {
    Numbers y;
    for (size_t r = 0; r < 2; ++r) {
      for (size_t c = 0; c < 2; ++c) {
        double sum = 0;
        for (size_t k = 0; k < 3; ++k) {
          sum += (a[3 * r + k] - zero) * (static_cast<double>(w[k][c]) - zeros[c]);
        }
        y.push_back(sum * step * scales[c] + bias[c]);
      }
    }
    return y;
  };
  OnnxBuilder b;
  model(b);
  b.Input("a", {2, 3}, kU8).Scalar("a_s", 0.5F).Small("a_z", kU8, {}, {4});
  Microsoft(b, "MatMulIntegerToFloat", {"a", "w", "a_s", "w_s", "a_z", "w_z", "bias"});
  const Numbers bytes = {0, 4, 9, 255, 30, 2};
  ExpectNear(tests::EvaluateOnnx(b, {TensorOf({2, 3}, bytes, ir::kU8)}, 1e-2)[0], {2, 2},
             product(bytes, a_scale, a_zero), 1e-2);

  OnnxBuilder dynamic;
  model(dynamic);
  dynamic.Input("a", {2, 3});
  Microsoft(dynamic, "DynamicQuantizeMatMul", {"a", "w", "w_s", "w_z", "bias"});
  // From -51 to 204: steps of 1, 0 is 51.
  const Numbers x = {-51, 0.25, 204, 3, 100, -7}, rounded = {0, 51, 255, 54, 151, 44};
  ExpectNear(tests::EvaluateOnnx(dynamic, {TensorOf({2, 3}, x)}, 1e-2)[0], {2, 2},
             product(rounded, 1, 51), 1e-2);
}

TEST(OnnxFused, OtherActivationsAreRefusedByName) {
  for (const std::string activation : {"Mish", "LeakyRelu"}) {  // unknown, and without its number
    OnnxBuilder b;
    b.Input("x", {2, 2}).Weight("w", {2, 2}).Output("y", {2, 2});
    OnnxBuilder::AttrText(Microsoft(b, "FusedGemm", {"x", "w"}), "activation", activation);
    const absl::Status status = ImportOnnx(b.Bytes()).status();
    EXPECT_EQ(support::Slug(status), "graph.onnx.attribute");
    EXPECT_NE(status.message().find(activation), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace tilewright::graph
