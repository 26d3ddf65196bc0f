// ONNX Runtime's operators on bytes, against their formulas in doubles; what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
constexpr int kU8 = pb::TensorProto::UINT8, kI8 = pb::TensorProto::INT8;
constexpr int kI32 = pb::TensorProto::INT32;

// Scale and zero point of a tensor.
struct Steps {
  double scale, zero;
};
constexpr Steps kX{0.5, 3}, kW{0.25, 7}, kY{0.375, 10};

double FloatOf(double byte, Steps s) { return (byte - s.zero) * s.scale; }
double ByteOf(double value, Steps s) {
  return std::clamp(std::nearbyint(value / s.scale) + s.zero, 0.0, 255.0);
}

RefTensor Bytes(const Shape& shape, int64_t step = 37) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  RefTensor t = TensorOf(shape, {}, ir::kU8);
  for (int64_t i = 0; i < count; ++i) t.values.push_back(static_cast<double>(i * step % 256));
  return t;
}

// A model of one operator; scales and zero points of the tensors are constants of these names.
struct Model {
  OnnxBuilder b;
  Model() {
    for (const auto& [name, s] : {std::pair("x", kX), std::pair("w", kW), std::pair("y", kY)}) {
      b.Scalar(std::string(name) + "_s", static_cast<float>(s.scale));
      b.Small(std::string(name) + "_z", kU8, {}, {static_cast<int64_t>(s.zero)});
    }
  }
  pb::NodeProto* Node(const std::string& op, const Names& inputs, const Shape& result,
                      int type = kU8) {
    pb::NodeProto* node = b.Node(op, inputs, "y");
    node->set_domain("com.microsoft");
    b.Output("y", result, type);
    return node;
  }
};

TEST(OnnxQLinear, SumsAndProductsBroadcast) {
  for (const std::string op : {"QLinearAdd", "QLinearMul"}) {
    Model m;
    m.b.Input("x", {2, 3}, kU8).Input("w", {3}, kU8);
    m.Node(op, {"x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z"}, {2, 3});
    const RefTensor x = Bytes({2, 3}, 5), w = Bytes({3}, 4);
    Numbers expected;
    for (size_t i = 0; i < 6; ++i) {
      const double a = FloatOf(x.values[i], kX), c = FloatOf(w.values[i % 3], kW);
      expected.push_back(ByteOf(op == "QLinearAdd" ? a + c : a * c, kY));
    }
    ExpectNear(tests::EvaluateOnnx(m.b, {x, w}, 1)[0], {2, 3}, expected, 0);
  }
}

TEST(OnnxQLinear, ActivationsOfBytes) {
  for (const std::string op : {"QLinearSigmoid", "QLinearLeakyRelu"}) {
    Model m;
    m.b.Input("x", {32}, kU8).Scalar("s", 1.0F / 64);
    pb::NodeProto* node = m.Node(op, {"x", "x_s", "x_z", "s", ""}, {32});
    if (op == "QLinearLeakyRelu") OnnxBuilder::AttrFloat(node, "alpha", 0.25);
    const RefTensor x = Bytes({32}, 1);
    Numbers expected;
    for (double byte : x.values) {
      const double v = FloatOf(byte, kX);
      const double y = op == "QLinearSigmoid" ? 1 / (1 + std::exp(-v)) : v < 0 ? v / 4 : v;
      expected.push_back(ByteOf(y, {1.0 / 64, 0}));
    }
    ExpectNear(tests::EvaluateOnnx(m.b, {x}, 1)[0], {32}, expected, 0);
  }
}

TEST(OnnxQLinear, ConcatAndWhereBringOperandsToOneScale) {
  Model m;
  m.b.Input("x", {2, 2}, kU8).Input("w", {2, 3}, kU8);
  OnnxBuilder::Attr(
      m.Node("QLinearConcat", {"y_s", "y_z", "x", "x_s", "x_z", "w", "w_s", "w_z"}, {2, 5}), "axis",
      int64_t{1});
  const RefTensor x = Bytes({2, 2}, 9), w = Bytes({2, 3}, 11);
  Numbers expected;
  for (size_t r = 0; r < 2; ++r) {
    for (size_t i = 0; i < 2; ++i) expected.push_back(ByteOf(FloatOf(x.values[2 * r + i], kX), kY));
    for (size_t i = 0; i < 3; ++i) expected.push_back(ByteOf(FloatOf(w.values[3 * r + i], kW), kY));
  }
  ExpectNear(tests::EvaluateOnnx(m.b, {x, w}, 1)[0], {2, 5}, expected, 0);

  Model choice;
  choice.b.Input("c", {2, 1}, kBool).Input("x", {2, 2}, kU8).Input("w", {2}, kU8);
  choice.Node("QLinearWhere", {"c", "x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z"}, {2, 2});
  const RefTensor c = TensorOf({2, 1}, {1, 0}, ir::kBool), v = Bytes({2}, 90);
  ExpectNear(tests::EvaluateOnnx(choice.b, {c, x, v}, 1)[0], {2, 2},
             {ByteOf(FloatOf(x.values[0], kX), kY), ByteOf(FloatOf(x.values[1], kX), kY),
              ByteOf(FloatOf(v.values[0], kW), kY), ByteOf(FloatOf(v.values[1], kW), kY)},
             0);
}

// Means of windows, of images and of an axis; channels in the second place or in the last.
TEST(OnnxQLinear, MeansOfBytes) {
  const RefTensor x = Bytes({1, 2, 4, 4});
  for (const bool last : {false, true}) {
    const auto at = [&](int64_t c, int64_t h, int64_t w) {
      return FloatOf(x.values[last ? (h * 4 + w) * 2 + c : (c * 4 + h) * 4 + w], kX);
    };
    Model pool, global;
    RefTensor image = x;
    image.type.shape = last ? std::vector<op::Dim>{1, 4, 4, 2} : std::vector<op::Dim>{1, 2, 4, 4};
    const Shape shape = image.type.sizes();
    pool.b.Input("x", shape, kU8), global.b.Input("x", shape, kU8);
    const Names inputs = {"x", "x_s", "x_z", "y_s", "y_z"};
    const Shape small = last ? Shape{1, 2, 2, 2} : Shape{1, 2, 2, 2};
    pb::NodeProto* node = pool.Node("QLinearAveragePool", inputs, small);
    OnnxBuilder::Attr(node, "kernel_shape", Shape{2, 2});
    OnnxBuilder::Attr(node, "strides", Shape{2, 2});
    OnnxBuilder::Attr(node, "channels_last", int64_t{last});
    const Shape one = last ? Shape{1, 1, 1, 2} : Shape{1, 2, 1, 1};
    OnnxBuilder::Attr(global.Node("QLinearGlobalAveragePool", inputs, one), "channels_last",
                      int64_t{last});
    Numbers windows(8), means(2);
    for (int64_t c = 0; c < 2; ++c) {
      double all = 0;
      for (int64_t w = 0; w < 4; ++w) {
        const int64_t top = w / 2 * 2, left = w % 2 * 2;
        const double sum = at(c, top, left) + at(c, top, left + 1) + at(c, top + 1, left) +
                           at(c, top + 1, left + 1);
        windows[static_cast<size_t>(last ? w * 2 + c : c * 4 + w)] = ByteOf(sum / 4, kY);
        all += sum;
      }
      means[static_cast<size_t>(c)] = ByteOf(all / 16, kY);
    }
    ExpectNear(tests::EvaluateOnnx(pool.b, {image}, 1)[0], small, windows, 0);
    ExpectNear(tests::EvaluateOnnx(global.b, {image}, 1)[0], one, means, 0);
  }
  Model rows;
  rows.b.Input("x", {2, 3}, kU8);
  pb::NodeProto* node = rows.Node("QLinearReduceMean", {"x", "x_s", "x_z", "y_s", "y_z"}, {2});
  OnnxBuilder::Attr(node, "axes", Shape{-1});
  OnnxBuilder::Attr(node, "keepdims", int64_t{0});
  ExpectNear(tests::EvaluateOnnx(rows.b, {TensorOf({2, 3}, {3, 5, 10, 0, 1, 2}, ir::kU8)}, 1)[0],
             {2}, {ByteOf(1.5, kY), ByteOf(-1, kY)}, 0);
}

// Up to opset 12 a row is all that follows the axis.
TEST(OnnxQLinear, SoftmaxOfAnAxisOrOfAllThatFollows) {
  for (const int64_t opset : {12, 13}) {
    Model m;
    m.b.Input("x", {2, 2, 2}, kU8).Scalar("s", 1.0F / 256);
    pb::NodeProto* node = m.Node("QLinearSoftmax", {"x", "x_s", "x_z", "s", ""}, {2, 2, 2});
    OnnxBuilder::Attr(node, "axis", int64_t{1});
    OnnxBuilder::Attr(node, "opset", opset);
    const RefTensor x = TensorOf({2, 2, 2}, {1, 2, 3, 4, 5, 5, 9, 4}, ir::kU8);
    Numbers expected;
    for (size_t i = 0; i < 8; ++i) {
      double sum = 0;
      for (size_t j = i / 4 * 4; j < i / 4 * 4 + 4; ++j) {
        if (opset == 12 || j % 2 == i % 2) sum += std::exp(FloatOf(x.values[j], kX));
      }
      expected.push_back(ByteOf(std::exp(FloatOf(x.values[i], kX)) / sum, {1.0 / 256, 0}));
    }
    ExpectNear(tests::EvaluateOnnx(m.b, {x}, 1)[0], {2, 2, 2}, expected, 0);
  }
}

// Transposes, alpha, C in steps of the sums; floats where no scale of y is given.
TEST(OnnxQLinear, GemmOfBytes) {
  for (const bool floats : {false, true}) {
    for (const bool turned : {false, true}) {
      Model m;
      m.b.Input("x", turned ? Shape{4, 2} : Shape{2, 4}, kU8);
      std::vector<int64_t> weights;
      for (int64_t i = 0; i < 12; ++i) weights.push_back(i * 5 % 16);
      m.b.Small("w", kU8, turned ? Shape{3, 4} : Shape{4, 3}, weights);
      m.b.Small("c", kI32, {3}, {100, -50, 7});
      Names inputs = {"x", "x_s", "x_z", "w", "w_s", "w_z", "c"};
      if (!floats) inputs.insert(inputs.end(), {"y_s", "y_z"});
      pb::NodeProto* node = m.Node("QGemm", inputs, {2, 3}, floats ? pb::TensorProto::FLOAT : kU8);
      OnnxBuilder::Attr(node, "transA", int64_t{turned});
      OnnxBuilder::Attr(node, "transB", int64_t{turned});
      OnnxBuilder::AttrFloat(node, "alpha", 0.5);
      RefTensor x = Bytes({2, 4}, 3);
      if (turned) x.type.shape = {4, 2};
      Numbers expected;
      const double bias[] = {100, -50, 7};
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t col = 0; col < 3; ++col) {
          double sum = bias[col];
          for (int64_t k = 0; k < 4; ++k) {
            const double a = x.values[static_cast<size_t>(turned ? k * 2 + r : r * 4 + k)];
            const int64_t w = weights[static_cast<size_t>(turned ? col * 4 + k : k * 3 + col)];
            sum += (a - kX.zero) * (static_cast<double>(w) - kW.zero);
          }
          const double y = sum * 0.5 * kX.scale * kW.scale;
          expected.push_back(floats ? y : ByteOf(y, kY));
        }
      }
      ExpectNear(tests::EvaluateOnnx(m.b, {x}, floats ? 1e-5 : 1)[0], {2, 3}, expected,
                 floats ? 1e-5 : 0);
    }
  }
}

TEST(OnnxQLinear, SignedBytesKeepTheirType) {
  OnnxBuilder b;
  b.Input("x", {3}, kI8).Scalar("s", 0.5F);
  b.Node("QLinearMul", {"x", "s", "", "x", "s", "", "s", ""}, "y")->set_domain("com.microsoft");
  b.Output("y", {3}, kI8);
  ExpectNear(tests::EvaluateOnnx(b, {TensorOf({3}, {-4, 3, 100}, ir::kI8)}, 1)[0], {3}, {8, 4, 127},
             0);
}

TEST(OnnxQLinear, OtherFormsAreRefusedByName) {
  Model scales;
  scales.b.Input("x", {2}, kU8).Floats("two", {1, 2});
  scales.Node("QLinearSigmoid", {"x", "two", "x_z", "y_s", "y_z"}, {2});
  const absl::Status status = ImportOnnx(scales.b.Bytes()).status();
  EXPECT_EQ(support::Slug(status), "graph.onnx.shape");
  EXPECT_NE(status.message().find("QLinearSigmoid"), std::string::npos) << status;
  Model parts;
  parts.b.Input("x", {2}, kU8);
  parts.Node("QLinearConcat", {"y_s", "y_z", "x", "x_s"}, {2});
  EXPECT_EQ(Slug(parts.b), "graph.onnx.inputs");
  Model flat;
  flat.b.Input("x", {2, 2}, kU8);
  flat.Node("QLinearGlobalAveragePool", {"x", "x_s", "x_z", "y_s", "y_z"}, {2, 2});
  EXPECT_EQ(Slug(flat.b), "graph.onnx.rank");
}

}  // namespace
}  // namespace tilewright::graph
