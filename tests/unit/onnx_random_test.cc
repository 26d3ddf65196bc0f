// Import of operators that draw numbers: distributions, bounds, and the same numbers for one seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

constexpr int64_t kCount = 20000;

// The numbers of one operator without inputs.
Numbers Drawn(const char* op, const std::function<void(pb::NodeProto*)>& attributes) {
  OnnxBuilder b(13);
  b.Output("y", {kCount});
  pb::NodeProto* node = b.Node(op, {}, "y");
  OnnxBuilder::Attr(node, "shape", std::vector<int64_t>{kCount});
  attributes(node);
  return tests::EvaluateOnnx(b, {}, 0)[0].values;
}

double MeanOf(const Numbers& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double DeviationOf(const Numbers& values) {
  const double mean = MeanOf(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(OnnxRandom, NormalNumbers) {
  const auto attributes = [](pb::NodeProto* node) {
    OnnxBuilder::AttrFloat(node, "mean", 2);
    OnnxBuilder::AttrFloat(node, "scale", 3);
  };
  const Numbers values = Drawn("RandomNormal", attributes);
  EXPECT_NEAR(MeanOf(values), 2, 0.1);
  EXPECT_NEAR(DeviationOf(values), 3, 0.1);
  EXPECT_EQ(Drawn("RandomNormal", attributes), values) << "the same at each import";
}

TEST(OnnxRandom, UniformNumbersOfASeed) {
  const auto seeded = [](float seed) {
    return Drawn("RandomUniform", [seed](pb::NodeProto* node) {
      OnnxBuilder::AttrFloat(node, "low", -1);
      OnnxBuilder::AttrFloat(node, "high", 3);
      OnnxBuilder::AttrFloat(node, "seed", seed);
    });
  };
  const Numbers values = seeded(7);
  EXPECT_NEAR(MeanOf(values), 1, 0.05);
  EXPECT_GT(*std::min_element(values.begin(), values.end()), -1);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 3);
  EXPECT_GT(DeviationOf(values), 1.1);
  EXPECT_EQ(seeded(7), values);
  EXPECT_NE(seeded(8), values);
}

TEST(OnnxRandom, ShapeAndTypeOfAnInput) {
  OnnxBuilder b(13);
  b.Input("x", {2, 3}, pb::TensorProto::FLOAT16).Output("y", {2, 3}, pb::TensorProto::FLOAT16);
  b.Node("RandomNormalLike", {"x"}, "y");
  const RefTensor y =
      tests::EvaluateOnnx(b, {TensorOf({2, 3}, {0, 0, 0, 0, 0, 0}, ir::kF16)}, 0)[0];
  EXPECT_EQ(op::ToText(y.type), "f16[2,3]");
  EXPECT_GT(DeviationOf(y.values), 0);
}

// Of an open size the first ones of those of the largest.
TEST(OnnxRandom, OpenSizes) {
  OnnxBuilder b(13);
  b.Input("x", {3, 2});
  b.graph().add_output()->set_name("y");
  b.NameSize(0, 0, "n");
  b.Node("RandomNormalLike", {"x"}, "y");
  ImportOptions options;
  options.open["n"] = {1, 1000};
  const auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  Numbers all;
  for (const int64_t n : {1000, 1, 3}) {
    const auto fixed = Specialize(*g, {{"n", n}});
    ASSERT_TRUE(fixed.ok()) << fixed.status();
    const auto y = Interpret(*fixed, {TensorOf({n, 2}, Numbers(static_cast<size_t>(2 * n)))});
    ASSERT_TRUE(y.ok()) << y.status();
    if (all.empty()) all = (*y)[0].values;
    EXPECT_EQ((*y)[0].values, Numbers(all.begin(), all.begin() + 2 * n));
  }
  EXPECT_NEAR(DeviationOf(all), 1, 0.1);
  options.open["n"] = {1, int64_t{1} << 30};
  EXPECT_EQ(support::Slug(ImportOnnx(b.Bytes(), options).status()), "graph.onnx.too_large");
}

TEST(OnnxRandom, BernoulliByProbability) {
  OnnxBuilder b(15);
  b.Input("p", {kCount}).Output("y", {kCount});
  b.Node("Bernoulli", {"p"}, "y");
  for (const double p : {0.0, 0.3, 1.0}) {
    const Numbers values =
        tests::EvaluateOnnx(b, {TensorOf({kCount}, Numbers(kCount, p))}, 0)[0].values;
    EXPECT_NEAR(MeanOf(values), p, p == 0.3 ? 0.02 : 0) << p;
  }
}

TEST(OnnxRandom, MultinomialByLogarithms) {
  OnnxBuilder b(13);
  b.Input("x", {2, 3}).Output("y", {2, kCount}, pb::TensorProto::INT32);
  OnnxBuilder::Attr(b.Node("Multinomial", {"x"}, "y"), "sample_size", kCount);
  const double low = -1e30;
  const RefTensor y = tests::EvaluateOnnx(
      b, {TensorOf({2, 3}, {std::log(1.0), std::log(2.0), std::log(5.0), low, 0, low})}, 0)[0];
  EXPECT_EQ(op::ToText(y.type), "i32[2,20000]");
  const auto share = [&](double place) {
    return static_cast<double>(std::count(y.values.begin(), y.values.begin() + kCount, place)) /
           static_cast<double>(kCount);
  };
  EXPECT_NEAR(share(0), 1.0 / 8, 0.02);
  EXPECT_NEAR(share(1), 2.0 / 8, 0.02);
  EXPECT_NEAR(share(2), 5.0 / 8, 0.02);
  EXPECT_EQ(std::count(y.values.begin() + kCount, y.values.end(), 1), kCount) << "the only one";
}

TEST(OnnxRandom, RefusesTypesAndSizes) {
  OnnxBuilder whole(13);
  whole.Output("y", {2});
  pb::NodeProto* node = whole.Node("RandomNormal", {}, "y");
  OnnxBuilder::Attr(node, "shape", std::vector<int64_t>{2});
  OnnxBuilder::Attr(node, "dtype", int64_t{pb::TensorProto::INT32});
  EXPECT_EQ(Slug(whole), "graph.onnx.attribute");
  OnnxBuilder large(13);
  large.Output("y", {2});
  OnnxBuilder::Attr(large.Node("RandomUniform", {}, "y"), "shape",
                    std::vector<int64_t>{1 << 20, 1 << 20, 1 << 20});
  EXPECT_EQ(Slug(large), "graph.onnx.too_large");
}

}  // namespace
}  // namespace tilewright::graph
