// Import of windows at computed places, DeformConv and MaxRoiPool, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

Numbers Random(const Shape& shape, double scale, uint64_t seed) {
  return import_tests::Random(TensorOf(shape, {}).type.elements(), scale, seed);
}

// An element between the elements of an image, zeros around it.
double Between(const double* image, int64_t height, int64_t width, double y, double x) {
  double sum = 0;
  for (const double fy : {std::floor(y), std::floor(y) + 1}) {
    for (const double fx : {std::floor(x), std::floor(x) + 1}) {
      const int64_t iy = static_cast<int64_t>(fy), ix = static_cast<int64_t>(fx);
      if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
      sum += image[iy * width + ix] * (1 - std::abs(y - fy)) * (1 - std::abs(x - fx));
    }
  }
  return sum;
}

// 2 images of 4 channels in 2 groups, 2 offset groups, a 3x2 window, 6 results channels.
constexpr int64_t kN = 2, kC = 4, kH = 5, kW = 6, kO = 6, kKh = 3, kKw = 2, kOh = 3, kOw = 6;
constexpr int64_t kStrideH = 2, kPadTop = 1, kPadLeft = 1, kPadBottom = 1, kDilationW = 2;

Numbers PlainDeformConv(const Numbers& x, const Numbers& w, const Numbers& offset,
                        const Numbers& bias, const Numbers& mask) {
  const auto place = [](int64_t n, int64_t row, int64_t rows, int64_t p) {
    return (n * rows + row) * kOh * kOw + p;
  };
  Numbers y;
  for (int64_t n = 0; n < kN; ++n) {
    for (int64_t o = 0; o < kO; ++o) {
      for (int64_t p = 0; p < kOh * kOw; ++p) {
        double sum = bias[o];
        for (int64_t ci = 0; ci < kC / 2; ++ci) {
          const int64_t c = o / (kO / 2) * (kC / 2) + ci, list = c / (kC / 2);
          for (int64_t tap = 0; tap < kKh * kKw; ++tap) {
            const int64_t row = list * kKh * kKw + tap, rows = 2 * kKh * kKw;
            const double at_y = static_cast<double>(p / kOw * kStrideH - kPadTop + tap / kKw) +
                                offset[place(n, 2 * row, 2 * rows, p)];
            const double at_x = static_cast<double>(p % kOw - kPadLeft + tap % kKw * kDilationW) +
                                offset[place(n, 2 * row + 1, 2 * rows, p)];
            sum += Between(&x[(n * kC + c) * kH * kW], kH, kW, at_y, at_x) *
                   mask[place(n, row, rows, p)] * w[(o * (kC / 2) + ci) * kKh * kKw + tap];
          }
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

TEST(OnnxRegions, DeformConvReadsBetweenElements) {
  const Shape sx = {kN, kC, kH, kW}, sw = {kO, kC / 2, kKh, kKw}, sb = {kO};
  const Shape so = {kN, 2 * 2 * kKh * kKw, kOh, kOw}, sm = {kN, 2 * kKh * kKw, kOh, kOw};
  const Numbers x = Random(sx, 1, 1), w = Random(sw, 1, 2), offset = Random(so, 2.5, 3);
  const Numbers bias = Random(sb, 1, 4), mask = Random(sm, 1, 5);
  OnnxBuilder b(19);
  b.Input("x", sx).Input("w", sw).Input("o", so).Input("b", sb).Input("m", sm);
  b.Output("y", {kN, kO, kOh, kOw});
  pb::NodeProto* node = b.Node("DeformConv", {"x", "w", "o", "b", "m"}, "y");
  OnnxBuilder::Attr(node, "strides", Shape{kStrideH, 1});
  OnnxBuilder::Attr(node, "pads", Shape{kPadTop, kPadLeft, kPadBottom, 1});
  OnnxBuilder::Attr(node, "dilations", Shape{1, kDilationW});
  OnnxBuilder::Attr(node, "group", int64_t{2});
  OnnxBuilder::Attr(node, "offset_group", int64_t{2});
  const auto out = tests::EvaluateOnnx(b,
                                       {TensorOf(sx, x), TensorOf(sw, w), TensorOf(so, offset),
                                        TensorOf(sb, bias), TensorOf(sm, mask)},
                                       1e-4);
  ExpectNear(out[0], {kN, kO, kOh, kOw}, PlainDeformConv(x, w, offset, bias, mask));
  b.graph().mutable_node(0)->mutable_attribute(4)->set_i(1);
  EXPECT_EQ(Slug(b), "graph.onnx.shape");
}

TEST(OnnxRegions, MaxRoiPoolHasZerosInEmptyBins) {
  constexpr int64_t kRows = 7, kColumns = 9, kBins = 3;
  const Shape sx = {2, 2, kRows, kColumns};
  const Numbers x = Random(sx, 1, 6);
  // Image, x1, y1, x2, y2 at twice the size: inside; a point; partly outside; outside.
  const std::vector<Numbers> regions = {
      {1, 2, 3, 13, 9}, {0, 5, 5, 5, 5}, {0, -7, -3, 8, 30}, {1, 40, 2, 50, 8}};
  Numbers flat, expected;
  for (const Numbers& r : regions) {
    flat.insert(flat.end(), r.begin(), r.end());
    const double left = std::round(r[1] / 2), top = std::round(r[2] / 2);
    const double width = std::max(std::round(r[3] / 2) - left + 1, 1.0);
    const double height = std::max(std::round(r[4] / 2) - top + 1, 1.0);
    for (int64_t c = 0; c < 2; ++c) {
      for (int64_t bin = 0; bin < kBins * kBins; ++bin) {
        const double by = static_cast<double>(bin / kBins), bx = static_cast<double>(bin % kBins);
        double best = -HUGE_VAL;
        for (int64_t i = 0; i < kRows * kColumns; ++i) {
          const double dy = static_cast<double>(i / kColumns) - top;
          const double dx = static_cast<double>(i % kColumns) - left;
          const bool inside =
              dy >= std::floor(by * height / kBins) && dy < std::ceil((by + 1) * height / kBins) &&
              dx >= std::floor(bx * width / kBins) && dx < std::ceil((bx + 1) * width / kBins);
          const size_t image = static_cast<size_t>(r[0]) * 2 + static_cast<size_t>(c);
          if (inside) best = std::max(best, x[image * kRows * kColumns + static_cast<size_t>(i)]);
        }
        expected.push_back(best == -HUGE_VAL ? 0 : best);
      }
    }
  }
  EXPECT_GT(std::count(expected.begin(), expected.end(), 0.0), 0);
  OnnxBuilder b(13);
  b.Input("x", sx).Input("r", {4, 5}).Output("y", {4, 2, kBins, kBins});
  pb::NodeProto* node = b.Node("MaxRoiPool", {"x", "r"}, "y");
  OnnxBuilder::Attr(node, "pooled_shape", Shape{kBins, kBins});
  OnnxBuilder::AttrFloat(node, "spatial_scale", 0.5F);
  const auto out = tests::EvaluateOnnx(b, {TensorOf(sx, x), TensorOf({4, 5}, flat)}, 0);
  ExpectNear(out[0], {4, 2, kBins, kBins}, expected);
  OnnxBuilder bad(13);
  bad.Input("x", sx).Input("r", {4, 4}).Output("y", {4, 2, kBins, kBins});
  OnnxBuilder::Attr(bad.Node("MaxRoiPool", {"x", "r"}, "y"), "pooled_shape", Shape{kBins, kBins});
  EXPECT_EQ(Slug(bad), "graph.onnx.shape");
}

}  // namespace
}  // namespace tilewright::graph
