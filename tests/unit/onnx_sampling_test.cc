// Import of operators that read at computed places or through tables of windows, against plain
// loops or numbers worked out by hand: modes and attributes beyond ONNX's own cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

std::vector<RefTensor> Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  return tests::EvaluateOnnx(b, inputs, 1e-4);
}

// One dimension of GridSample as ONNX defines it: place, then the padding of the place.
double PlaceOf(double g, int64_t size, bool align, const std::string& mode,
               const std::string& padding) {
  const double n = static_cast<double>(size);
  double at = align ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
  if (mode == "nearest") at = std::nearbyint(at);
  const double low = align ? 0 : -0.5, high = n - (align ? 1 : 0.5);
  if (padding == "border" && (at < low || at > high)) at = std::clamp(at, 0.0, n - 1);
  while (padding == "reflection" && (at < low || at > high)) {
    at = at < low ? 2 * low - at : 2 * high - at;
  }
  return at;
}

double ElementAt(const Numbers& row, int64_t i, bool align, const std::string& padding) {
  const int64_t n = static_cast<int64_t>(row.size());
  if (padding == "zeros" && (i < 0 || i >= n)) return 0;
  while (padding == "reflection" && (i < 0 || i >= n)) {
    i = i < 0 ? -i - (align ? 0 : 1) : 2 * n - (align ? 2 : 1) - i;
  }
  return row[static_cast<size_t>(std::clamp<int64_t>(i, 0, n - 1))];
}

double Sampled(const Numbers& row, double g, bool align, const std::string& mode,
               const std::string& padding) {
  const double at = PlaceOf(g, static_cast<int64_t>(row.size()), align, mode, padding);
  const int64_t floor = static_cast<int64_t>(std::floor(at));
  if (mode == "nearest") return ElementAt(row, floor, align, padding);
  const double t = at - static_cast<double>(floor), k = -0.75;
  double sum = 0;
  for (int64_t step = mode == "linear" ? 0 : -1; step <= (mode == "linear" ? 1 : 2); ++step) {
    const double d = std::fabs(static_cast<double>(step) - t);
    const double weight = mode == "linear" ? 1 - d
                          : d <= 1         ? ((k + 2) * d - (k + 3)) * d * d + 1
                                           : ((k * d - 5 * k) * d + 8 * k) * d - 4 * k;
    sum += weight * ElementAt(row, floor + step, align, padding);
  }
  return sum;
}

// An image of one row is a line: each mode and padding on its own.
TEST(OnnxGridSample, ModesAndPaddingsAlongALine) {
  const Numbers row = {1, -2, 4, 0.5, 3}, places = Random(24, 2.4, 7);
  for (const std::string mode : {"linear", "nearest", "cubic"}) {
    for (const std::string padding : {"zeros", "border", "reflection"}) {
      for (const bool align : {false, true}) {
        OnnxBuilder b(20);
        b.Input("x", {1, 1, 5}).Input("grid", {1, 24, 1}).Output("y", {1, 1, 24});
        pb::NodeProto* node = b.Node("GridSample", {"x", "grid"}, "y");
        OnnxBuilder::AttrText(node, "mode", mode);
        OnnxBuilder::AttrText(node, "padding_mode", padding);
        OnnxBuilder::Attr(node, "align_corners", int64_t{align});
        Numbers expected;
        for (const double g : places) expected.push_back(Sampled(row, g, align, mode, padding));
        SCOPED_TRACE(mode + " " + padding + (align ? " aligned" : ""));
        ExpectNear(Evaluate(b, {TensorOf({1, 1, 5}, row), TensorOf({1, 24, 1}, places)})[0],
                   {1, 1, 24}, expected);
      }
    }
  }
}

// The last number of a position is that of the width; batches have grids of their own.
TEST(OnnxGridSample, DimensionsAndBatches) {
  OnnxBuilder b(16);
  b.Input("x", {2, 1, 2, 3}).Input("grid", {2, 1, 2, 2}).Output("y", {2, 1, 1, 2});
  pb::NodeProto* node = b.Node("GridSample", {"x", "grid"}, "y");
  OnnxBuilder::AttrText(node, "mode", "bilinear");
  OnnxBuilder::Attr(node, "align_corners", int64_t{1});
  const auto out = Evaluate(b, {TensorOf({2, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
                                TensorOf({2, 1, 2, 2}, {1, -1, 0, 0, -1, 1, 0.5, -0.5})});
  ExpectNear(out[0], {2, 1, 1, 2}, {2, 2.5, 9, 8.25});
  OnnxBuilder bad(16);
  bad.Input("x", {1, 1, 2, 3}).Input("grid", {1, 1, 2, 3}).Output("y", {1, 1, 1, 2});
  bad.Node("GridSample", {"x", "grid"}, "y");
  EXPECT_EQ(Slug(bad), "graph.onnx.shape");
}

// A ramp: the mean of the samples of a bin is the ramp at its middle.
TEST(OnnxRoiAlign, MeansOfARamp) {
  Numbers ramp;
  for (int64_t i = 0; i < 2 * 8 * 8; ++i) {
    ramp.push_back(static_cast<double>(i % 8) + 100 * static_cast<double>(i / 64));
  }
  OnnxBuilder b(16);
  b.Input("x", {2, 1, 8, 8}).Input("rois", {2, 4}).Input("which", {2}, kInt64);
  b.Output("y", {2, 1, 1, 2});
  pb::NodeProto* node = b.Node("RoiAlign", {"x", "rois", "which"}, "y");
  OnnxBuilder::Attr(node, "output_height", int64_t{1});
  OnnxBuilder::Attr(node, "output_width", int64_t{2});
  OnnxBuilder::Attr(node, "sampling_ratio", int64_t{3});
  OnnxBuilder::AttrFloat(node, "spatial_scale", 0.5f);
  const auto out =
      Evaluate(b, {TensorOf({2, 1, 8, 8}, ramp), TensorOf({2, 4}, {2, 2, 10, 6, 4, 4, 8, 8}),
                   TensorOf({2}, {1, 0}, ir::kI64)});
  ExpectNear(out[0], {2, 1, 1, 2}, {101.5, 103.5, 2, 3});
}

// An element between elements, for places that are at most 1 outside of the image.
double Bilinear(const Numbers& x, int64_t height, int64_t width, double y, double at) {
  if (y < -1 || y > static_cast<double>(height) || at < -1 || at > static_cast<double>(width)) {
    return 0;
  }
  const auto inside = [](double place, int64_t size) {
    return std::clamp(place, 0.0, static_cast<double>(size - 1));
  };
  y = inside(y, height), at = inside(at, width);
  double sum = 0;
  for (int64_t r = 0; r < height; ++r) {
    for (int64_t c = 0; c < width; ++c) {
      const double near_y = 1 - std::abs(y - static_cast<double>(r));
      const double near_x = 1 - std::abs(at - static_cast<double>(c));
      if (near_y > 0 && near_x > 0) sum += near_y * near_x * x[static_cast<size_t>(r * width + c)];
    }
  }
  return sum;
}

// As many samples as a bin has elements, rounded up: regions of different sizes, one of them empty.
TEST(OnnxRoiAlign, SamplesByTheSizeOfTheRegion) {
  constexpr int64_t kHeight = 6, kWidth = 7, kRows = 2, kColumns = 3;
  const Numbers x = Random(kHeight * kWidth, 1, 1);
  const Numbers rois = {0, 0, 6, 5, 1.5, 2, 2.5, 2.25, -2, -1, 5, 4, 3, 3, 3, 3};
  for (const char* place : {"half_pixel", "output_half_pixel"}) {
    const double offset = std::string(place) == "half_pixel" ? 0.5 : 0;
    OnnxBuilder b(16);
    b.Input("x", {1, 1, kHeight, kWidth}).Input("rois", {4, 4}).Input("which", {4}, kInt64);
    b.Output("y", {4, 1, kRows, kColumns});
    pb::NodeProto* node = b.Node("RoiAlign", {"x", "rois", "which"}, "y");
    OnnxBuilder::Attr(node, "output_height", kRows);
    OnnxBuilder::Attr(node, "output_width", kColumns);
    OnnxBuilder::AttrText(node, "coordinate_transformation_mode", place);
    Numbers expected;
    for (size_t r = 0; r < 16; r += 4) {
      double size[2], from[2], count[2];
      for (size_t d = 0; d < 2; ++d) {  // x, y
        from[d] = rois[r + d] - offset;
        size[d] = rois[r + d + 2] - rois[r + d];
        if (offset == 0) size[d] = std::max(size[d], 1.0);
        size[d] /= static_cast<double>(d == 0 ? kColumns : kRows);
        count[d] = std::ceil(size[d]);
      }
      for (int64_t bin = 0; bin < kRows * kColumns; ++bin) {
        double sum = 0;
        for (double i = 0; i < count[1]; ++i) {
          for (double j = 0; j < count[0]; ++j) {
            const double row = static_cast<double>(bin / kColumns) + (i + 0.5) / count[1];
            const double column = static_cast<double>(bin % kColumns) + (j + 0.5) / count[0];
            sum +=
                Bilinear(x, kHeight, kWidth, from[1] + row * size[1], from[0] + column * size[0]);
          }
        }
        expected.push_back(sum / std::max(1.0, count[0] * count[1]));
      }
    }
    const std::vector<RefTensor> operands = {TensorOf({1, 1, kHeight, kWidth}, x),
                                             TensorOf({4, 4}, rois),
                                             TensorOf({4}, {0, 0, 0, 0}, ir::kI64)};
    ExpectNear(Evaluate(b, operands)[0], {4, 1, kRows, kColumns}, expected);
    // A region that is much larger than the image needs more samples than there are.
    std::vector<RefTensor> large = operands;
    large[1].values[2] = 100;
    const auto g = ImportOnnx(b.Bytes());
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_EQ(support::Slug(Interpret(*g, large).status()), "graph.interp.stated_shape");
  }
}

// The largest of the weighted taps of all samples that count.
TEST(OnnxRoiAlign, LargestOfAsManySamplesAsThereAre) {
  OnnxBuilder b(16);
  b.Input("x", {1, 1, 4, 4}).Input("rois", {2, 4}).Input("which", {2}, kInt64);
  b.Output("y", {2, 1, 1, 1});
  pb::NodeProto* node = b.Node("RoiAlign", {"x", "rois", "which"}, "y");
  OnnxBuilder::AttrText(node, "mode", "max");
  Numbers falling(16, -1);
  falling[5] = -8;
  const auto y = Evaluate(
      b, {TensorOf({1, 1, 4, 4}, falling), TensorOf({2, 4}, {1.5, 1.5, 2.5, 2.5, 2, 2, 2, 2}),
          TensorOf({2}, {0, 0}, ir::kI64)});
  // One sample between four elements: the largest product is a quarter of -1. No sample: 0.
  ExpectNear(y[0], {2, 1, 1, 1}, {-0.25, 0});
}

TEST(OnnxAffineGrid, MovesTheRegularGrid) {
  for (const bool align : {false, true}) {
    OnnxBuilder b(20);
    b.Input("theta", {1, 2, 3}).Ints("size", {1, 5, 2, 3}).Output("y", {1, 2, 3, 2});
    OnnxBuilder::Attr(b.Node("AffineGrid", {"theta", "size"}, "y"), "align_corners",
                      int64_t{align});
    const double w = align ? 1 : 2.0 / 3, h = align ? 1 : 0.5;
    Numbers expected;
    for (const double y : {-h, h}) {
      for (const double x : {-w, 0.0, w}) {
        expected.push_back(2 * x + 10);
        expected.push_back(x + 3 * y);
      }
    }
    ExpectNear(Evaluate(b, {TensorOf({1, 2, 3}, {2, 0, 10, 1, 3, 0})})[0], {1, 2, 3, 2}, expected);
  }
}

// Unpooling by the places that pooling gives puts the largest elements back, in both dimensions and
// with pads.
TEST(OnnxPool, PlacesOfTheLargestElements) {
  const Numbers x = {4, 1, 2, 8, 3, 9, 5, 7, 6, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10};
  OnnxBuilder b(12);
  b.Input("x", {1, 2, 2, 5}).Output("y", {1, 2, 1, 3}).Output("at", {1, 2, 1, 3}, kInt64);
  b.Output("column", {1, 2, 1, 3}, kInt64);
  for (const bool column : {false, true}) {
    pb::NodeProto* node = b.Node("MaxPool", {"x"}, column ? "z" : "y");
    node->add_output(column ? "column" : "at");
    OnnxBuilder::Attr(node, "kernel_shape", Shape{2, 2});
    OnnxBuilder::Attr(node, "strides", Shape{2, 2});
    OnnxBuilder::Attr(node, "pads", Shape{0, 1, 0, 0});
    OnnxBuilder::Attr(node, "storage_order", int64_t{column});
  }
  const auto out = Evaluate(b, {TensorOf({1, 2, 2, 5}, x)});
  EXPECT_EQ(out[0].values, (Numbers{9, 7, 8, -1, -2, -4}));
  EXPECT_EQ(out[1].values, (Numbers{5, 7, 3, 10, 11, 13}));
  EXPECT_EQ(out[2].values, (Numbers{1, 5, 6, 10, 12, 16}));
}

TEST(OnnxPool, UnpoolingPutsElementsBack) {
  OnnxBuilder b(11);
  b.Input("x", {1, 2, 2}).Input("at", {1, 2, 2}, kInt64).Ints("shape", {1, 2, 5});
  b.Output("y", {1, 2, 5});
  pb::NodeProto* node = b.Node("MaxUnpool", {"x", "at", "shape"}, "y");
  OnnxBuilder::Attr(node, "kernel_shape", Shape{2});
  OnnxBuilder::Attr(node, "strides", Shape{2});
  EXPECT_EQ(Evaluate(b, {TensorOf({1, 2, 2}, {5, 6, 7, 8}),
                         TensorOf({1, 2, 2}, {1, 2, 4, 7}, ir::kI64)})[0]
                .values,
            (Numbers{0, 5, 6, 0, 0, 7, 0, 0, 8, 0}));
}

TEST(OnnxPool, GlobalNorms) {
  for (const double p : {1.0, 2.0, 3.0}) {
    OnnxBuilder b(13);
    b.Input("x", {1, 1, 2, 2}).Output("y", {1, 1, 1, 1});
    OnnxBuilder::Attr(b.Node("GlobalLpPool", {"x"}, "y"), "p", static_cast<int64_t>(p));
    const double sum = 1 + std::pow(2, p) + std::pow(3, p) + std::pow(4, p);
    ExpectNear(Evaluate(b, {TensorOf({1, 1, 2, 2}, {1, -2, 3, -4})})[0], {1, 1, 1, 1},
               {std::pow(sum, 1 / p)});
  }
}

// Each window's columns, put down one after the other.
TEST(OnnxCol2Im, AddsWhatWindowsShare) {
  const int64_t height = 4, width = 5, kernel = 2, stride_h = 1, stride_w = 2, dilation_h = 2;
  const int64_t rows = height - dilation_h * (kernel - 1);
  const int64_t columns = (width + 1 - kernel) / stride_w + 1;
  const Numbers x = Random(2 * 4 * rows * columns, 1, 3);
  OnnxBuilder b(18);
  b.Input("x", {1, 2 * 4, rows * columns}).Ints("image", {height, width}).Ints("block", {2, 2});
  b.Output("y", {1, 2, height, width});
  pb::NodeProto* node = b.Node("Col2Im", {"x", "image", "block"}, "y");
  OnnxBuilder::Attr(node, "strides", Shape{stride_h, stride_w});
  OnnxBuilder::Attr(node, "dilations", Shape{dilation_h, 1});
  OnnxBuilder::Attr(node, "pads", Shape{0, 1, 0, 0});
  Numbers expected(2 * height * width, 0);
  for (int64_t e = 0; e < static_cast<int64_t>(x.size()); ++e) {
    const int64_t window = e % (rows * columns), tap = e / (rows * columns) % 4;
    const int64_t h = window / columns * stride_h + tap / 2 * dilation_h;
    const int64_t w = window % columns * stride_w + tap % 2 - 1;
    if (w < 0 || w >= width) continue;
    const int64_t channel = e / (rows * columns) / 4;
    expected[static_cast<size_t>((channel * height + h) * width + w)] += x[static_cast<size_t>(e)];
  }
  ExpectNear(Evaluate(b, {TensorOf({1, 8, rows * columns}, x)})[0], {1, 2, height, width},
             expected);
}

// Shapes that a run gives: the image's is the stated one, blocks are those that make it.
TEST(OnnxCol2Im, ShapesOfTheRun) {
  const auto model = [](bool open, const Shape& block) {
    OnnxBuilder b(18);
    b.Input("x", {2, 8, 6}).Output("y", {2, 2, 6, 4});
    if (open) {
      b.Input("image", {2}, pb::TensorProto::INT64).Input("block", {2}, pb::TensorProto::INT64);
    } else {
      b.Ints("image", {6, 4}).Ints("block", block);
    }
    OnnxBuilder::Attr(b.Node("Col2Im", {"x", "image", "block"}, "y"), "strides", Shape{2, 2});
    return b;
  };
  const RefTensor x = TensorOf({2, 8, 6}, Random(96, 1, 4));
  const auto with = [&](const Shape& image, const Shape& block) {
    return std::vector<RefTensor>{x, op::FromIntegers({ir::kI64, {2}}, image),
                                  op::FromIntegers({ir::kI64, {2}}, block)};
  };
  const OnnxBuilder open = model(true, {});
  const auto g = ImportOnnx(open.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  for (const Shape& block : {Shape{1, 4}, Shape{2, 2}, Shape{4, 1}}) {
    const bool fits = block == Shape{2, 2} || ImportOnnx(model(false, block).Bytes()).ok();
    if (!fits) {
      EXPECT_EQ(support::Slug(Interpret(*g, with({6, 4}, block)).status()),
                "graph.interp.stated_shape");
      continue;
    }
    const auto expected = Evaluate(model(false, block), {x});
    ExpectNear(Evaluate(open, with({6, 4}, block))[0], {2, 2, 6, 4}, expected[0].values);
  }
  EXPECT_EQ(support::Slug(Interpret(*g, with({4, 6}, {2, 2})).status()),
            "graph.interp.stated_shape");
}

TEST(OnnxLayout, CenterCropPad) {
  OnnxBuilder b(18);
  b.Input("x", {2, 5}).Ints("shape", {2, 5}).Output("y", {5, 2});
  OnnxBuilder::Attr(b.Node("CenterCropPad", {"x", "shape"}, "y"), "axes", Shape{-1, 0});
  EXPECT_EQ(Evaluate(b, {TensorOf({2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})})[0].values,
            (Numbers{0, 0, 2, 3, 7, 8, 0, 0, 0, 0}));
}

TEST(OnnxTensorScatter, CircularAlongAnAxis) {
  OnnxBuilder b(24);
  b.Input("cache", {2, 1, 3}).Input("new", {2, 1, 2}).Input("at", {2}, kInt64);
  b.Output("y", {2, 1, 3});
  pb::NodeProto* node = b.Node("TensorScatter", {"cache", "new", "at"}, "y");
  OnnxBuilder::Attr(node, "axis", int64_t{-1});
  OnnxBuilder::AttrText(node, "mode", "circular");
  EXPECT_EQ(Evaluate(b, {TensorOf({2, 1, 3}, {1, 2, 3, 4, 5, 6}),
                         TensorOf({2, 1, 2}, {10, 20, 30, 40}), TensorOf({2}, {2, 1}, ir::kI64)})[0]
                .values,
            (Numbers{20, 2, 10, 4, 30, 40}));
}

TEST(OnnxWindows, CosineSums) {
  OnnxBuilder b(17);
  b.Ints("size", {4}).Input("x", {4}).Output("y", {4});
  b.graph().mutable_initializer(0)->clear_dims();
  b.Node("HannWindow", {"size"}, "hann");
  OnnxBuilder::Attr(b.Node("HammingWindow", {"size"}, "hamming"), "periodic", int64_t{0});
  b.Node("Add", {"hann", "hamming"}, "sum");
  b.Node("Add", {"sum", "x"}, "y");
  const double ends = 25.0 / 46 - 21.0 / 46, inner = 25.0 / 46 + 21.0 / 92;
  ExpectNear(Evaluate(b, {TensorOf({4}, {0, 0, 0, 0})})[0], {4},
             {ends, 0.5 + inner, 1 + inner, 0.5 + ends});
}

}  // namespace
}  // namespace tilewright::graph
