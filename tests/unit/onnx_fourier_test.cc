// Import of Fourier transforms against sums worked out by their definition: real and complex, both
// ways, one side of the spectrum, lengths that are split by their factors, frames with a window.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "deploy/support/rng.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
using Complex = std::complex<double>;
using Line = std::vector<Complex>;

constexpr double kTolerance = 2e-3;

Line RandomLine(int64_t count, bool real, uint64_t seed) {
  support::Rng rng(seed);
  Line line;
  for (int64_t i = 0; i < count; ++i) {
    const double re = static_cast<float>(rng.UniformDouble() - 0.5);
    line.emplace_back(re, real ? 0 : static_cast<float>(rng.UniformDouble() - 0.5));
  }
  return line;
}

Line Resized(Line line, int64_t length) {
  line.resize(static_cast<size_t>(length));
  return line;
}

Line Spectrum(const Line& x, bool inverse) {
  const double n = static_cast<double>(x.size());
  Line out;
  for (size_t k = 0; k < x.size(); ++k) {
    Complex sum = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      const double turn = static_cast<double>(j * k % x.size()) / n;
      sum += x[j] * std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * turn);
    }
    out.push_back(inverse ? sum / n : sum);
  }
  return out;
}

Numbers Parts(const Line& line, int64_t parts) {
  Numbers values;
  for (const Complex& v : line) {
    values.push_back(v.real());
    if (parts == 2) values.push_back(v.imag());
  }
  return values;
}

void ExpectNear(const RefTensor& actual, const Shape& shape, const Numbers& expected) {
  import_tests::ExpectNear(actual, shape, expected, kTolerance);
}

// A DFT of opset 20 along the first dimension of x.
struct Dft {
  int64_t inverse = 0, onesided = 0, length = 0;
  OnnxBuilder Model(const Shape& x, const Shape& y) const {
    OnnxBuilder b(20);
    b.Input("x", x).Output("y", y).Ints("axis", {0});
    if (length > 0) b.Ints("length", {length});
    pb::NodeProto* node = b.Node("DFT", {"x", length > 0 ? "length" : "", "axis"}, "y");
    OnnxBuilder::Attr(node, "inverse", inverse);
    OnnxBuilder::Attr(node, "onesided", onesided);
    return b;
  }
};

TEST(OnnxFourier, DftBothWays) {
  for (const int64_t n : {1, 2, 7, 12, 600, 1500}) {
    for (const bool inverse : {false, true}) {
      const Line x = RandomLine(n, false, static_cast<uint64_t>(n));
      const OnnxBuilder b = Dft{inverse, 0, 0}.Model({n, 2}, {n, 2});
      const auto out = tests::EvaluateOnnx(b, {TensorOf({n, 2}, Parts(x, 2))}, 1e-3);
      ExpectNear(out[0], {n, 2}, Parts(Spectrum(x, inverse), 2));
    }
  }
}

TEST(OnnxFourier, RealSignalsAndLengths) {
  for (const auto& [n, length, onesided] :
       {std::tuple(8, 0, 1), {9, 0, 1}, {5, 8, 0}, {8, 5, 1}, {2000, 0, 1}}) {
    const int64_t points = length > 0 ? length : n, bins = onesided ? points / 2 + 1 : points;
    const Line x = RandomLine(n, true, static_cast<uint64_t>(n));
    const OnnxBuilder b = Dft{0, onesided, length}.Model({n, 1}, {bins, 2});
    const auto out = tests::EvaluateOnnx(b, {TensorOf({n, 1}, Parts(x, 1))}, 1e-3);
    ExpectNear(out[0], {bins, 2}, Parts(Resized(Spectrum(Resized(x, points), false), bins), 2));
  }
}

TEST(OnnxFourier, OneSideBackToARealSignal) {
  for (const int64_t n : {6, 7}) {
    const int64_t bins = n / 2 + 1;
    const Line x = RandomLine(n, true, 3);
    const Line spectrum = Resized(Spectrum(x, false), bins);
    const OnnxBuilder b = Dft{1, 1, n % 2 == 0 ? 0 : n}.Model({bins, 2}, {n, 1});
    const auto out = tests::EvaluateOnnx(b, {TensorOf({bins, 2}, Parts(spectrum, 2))}, 1e-4);
    ExpectNear(out[0], {n, 1}, Parts(x, 1));
  }
}

// Opset 17 has the axis as an attribute; other dimensions are rows.
TEST(OnnxFourier, AxisInTheMiddle) {
  OnnxBuilder b(17);
  b.Input("x", {2, 4, 3, 1}).Output("y", {2, 4, 3, 2});
  b.Node("DFT", {"x"}, "y");
  const Numbers x = Parts(RandomLine(24, true, 5), 1);
  const auto out = tests::EvaluateOnnx(b, {TensorOf({2, 4, 3, 1}, x)}, 1e-4);
  Numbers expected(48);
  for (size_t row = 0; row < 6; ++row) {
    const size_t first = row / 3 * 12 + row % 3;
    Line line;
    for (size_t j = 0; j < 4; ++j) line.emplace_back(x[first + j * 3], 0);
    const Line bins = Spectrum(line, false);
    for (size_t k = 0; k < 4; ++k) {
      expected[2 * (first + k * 3)] = bins[k].real();
      expected[2 * (first + k * 3) + 1] = bins[k].imag();
    }
  }
  ExpectNear(out[0], {2, 4, 3, 2}, expected);
}

TEST(OnnxFourier, FramesOfASignal) {
  constexpr int64_t kLength = 23, kFrame = 8, kStep = 5, kFrames = 4;
  for (const auto& [parts, onesided, windowed] : {std::tuple(1, 1, 1), {1, 0, 0}, {2, 0, 1}}) {
    const int64_t bins = onesided ? kFrame / 2 + 1 : kFrame;
    const Line x = RandomLine(2 * kLength, parts == 1, 7);
    const Numbers window = Parts(RandomLine(kFrame, true, 8), 1);
    OnnxBuilder b(17);
    b.Input("x", {2, kLength, parts}).Input("w", {kFrame}).Output("y", {2, kFrames, bins, 2});
    b.Ints("step", {kStep}).Ints("length", {kFrame});
    pb::NodeProto* node = b.Node("STFT", {"x", "step", windowed ? "w" : "", "length"}, "y");
    OnnxBuilder::Attr(node, "onesided", int64_t{onesided});
    const auto out = tests::EvaluateOnnx(
        b, {TensorOf({2, kLength, parts}, Parts(x, parts)), TensorOf({kFrame}, window)}, 1e-4);
    Numbers expected;
    for (int64_t f = 0; f < 2 * kFrames; ++f) {
      Line frame;
      for (int64_t j = 0; j < kFrame; ++j) {
        frame.push_back(x[f / kFrames * kLength + f % kFrames * kStep + j] *
                        (windowed ? window[j] : 1.0));
      }
      const Numbers values = Parts(Resized(Spectrum(frame, false), bins), 2);
      expected.insert(expected.end(), values.begin(), values.end());
    }
    ExpectNear(out[0], {2, kFrames, bins, 2}, expected);
  }
}

// An axis that a run gives: each of those that make the stated shape; others are refused.
TEST(OnnxFourier, AxisOfTheRun) {
  const Numbers x = Parts(RandomLine(36, true, 6), 1);
  const RefTensor signal = TensorOf({3, 3, 4, 1}, x);
  const auto model = [](bool open) {
    OnnxBuilder b(20);
    b.Input("x", {3, 3, 4, 1}).Output("y", {3, 3, 4, 2});
    if (open) b.Input("axis", {}, pb::TensorProto::INT64);
    return b;
  };
  OnnxBuilder b = model(true);
  b.Node("DFT", {"x", "", "axis"}, "y");
  const auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  const auto with = [&](int64_t axis) {
    return std::vector<RefTensor>{signal, op::FromIntegers({ir::kI64, {}}, {axis})};
  };
  for (const int64_t axis : {0, 1, 2, -2, -4}) {
    OnnxBuilder fixed = model(false);
    fixed.Ints("axis", {axis}).Node("DFT", {"x", "", "axis"}, "y");
    const auto expected = tests::EvaluateOnnx(fixed, {signal}, 1e-4);
    const auto found = tests::EvaluateOnnx(b, with(axis), 1e-4);
    ExpectNear(found[0], {3, 3, 4, 2}, expected[0].values);
  }
  for (const int64_t axis : {3, -1, -5, 7}) {
    EXPECT_EQ(support::Slug(Interpret(*g, with(axis)).status()), "graph.interp.stated_shape");
  }
  // Only one axis makes five bins of it; without a stated shape nobody knows.
  OnnxBuilder one(20);
  one.Input("x", {2, 8, 1}).Input("axis", {}, pb::TensorProto::INT64).Output("y", {2, 5, 2});
  OnnxBuilder::Attr(one.Node("DFT", {"x", "", "axis"}, "y"), "onesided", int64_t{1});
  const auto half = ImportOnnx(one.Bytes());
  ASSERT_TRUE(half.ok()) << half.status();
  OnnxBuilder none(20);
  none.Input("x", {2, 8, 1}).Input("axis", {}, pb::TensorProto::INT64).Output("y", {2, 9, 2});
  none.Node("DFT", {"x", "", "axis"}, "y");
  EXPECT_EQ(Slug(none), "graph.onnx.dynamic");
}

// A step and a length that a run gives, where they make the stated shape.
TEST(OnnxFourier, FramesOfTheRun) {
  const RefTensor signal = TensorOf({2, 23, 1}, Parts(RandomLine(46, true, 9), 1));
  const auto model = [](bool open) {
    OnnxBuilder b(17);
    b.Input("x", {2, 23, 1}).Output("y", {2, 4, 5, 2});
    for (const char* name : {"step", "length"})
      if (open) b.Input(name, {}, pb::TensorProto::INT64);
    return b;
  };
  OnnxBuilder b = model(true);
  b.Node("STFT", {"x", "step", "", "length"}, "y");
  const auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  const auto with = [&](int64_t step, int64_t length) {
    return std::vector<RefTensor>{signal, op::FromIntegers({ir::kI64, {}}, {step}),
                                  op::FromIntegers({ir::kI64, {}}, {length})};
  };
  for (const auto& [step, length] : {std::pair(5, 8), {4, 8}, {4, 9}}) {
    OnnxBuilder fixed = model(false);
    fixed.Ints("step", {step}).Ints("length", {length});
    fixed.Node("STFT", {"x", "step", "", "length"}, "y");
    const auto expected = tests::EvaluateOnnx(fixed, {signal}, 1e-4);
    const auto found = tests::EvaluateOnnx(b, with(step, length), 1e-4);
    ExpectNear(found[0], {2, 4, 5, 2}, expected[0].values);
  }
  for (const auto& [step, length] : {std::pair(3, 8), {6, 8}, {5, 9}, {4, 7}, {0, 8}, {-1, 9}})
    EXPECT_EQ(support::Slug(Interpret(*g, with(step, length)).status()),
              "graph.interp.stated_shape");
}

TEST(OnnxFourier, Refusals) {
  EXPECT_EQ(Slug(Dft{0, 1, 0}.Model({8, 2}, {5, 2})), "graph.onnx.attribute");
  EXPECT_EQ(Slug(Dft{1, 1, 0}.Model({8, 1}, {5, 1})), "graph.onnx.attribute");
  EXPECT_EQ(Slug(Dft{}.Model({8, 3}, {8, 2})), "graph.onnx.shape");
  EXPECT_EQ(Slug(Dft{}.Model({8191, 2}, {8191, 2})), "graph.onnx.too_large");  // a prime
  OnnxBuilder b(17);
  b.Input("x", {1, 8, 1}).Output("y", {1, 1, 5, 2}).Ints("step", {1}).Ints("length", {9});
  b.Node("STFT", {"x", "step", "", "length"}, "y");
  EXPECT_EQ(Slug(b), "graph.onnx.shape");
}

// Eight bands over nine bins, as ONNX Runtime gives them.
TEST(OnnxMelWeightMatrix, BandsOverBins) {
  OnnxBuilder b(17);
  b.Ints("bands", {8}).Ints("length", {16}).Ints("rate", {8192});
  b.Scalar("lowest", 0).Scalar("highest", 4096);
  b.Output("y", {9, 8});
  b.Node("MelWeightMatrix", {"bands", "length", "rate", "lowest", "highest"}, "y");
  Numbers expected(72, 0);
  for (const int64_t place : {0, 1, 10, 11, 20, 29, 38, 47}) expected[place] = 1;
  EXPECT_EQ(tests::EvaluateOnnx(b, {}, 0)[0].values, expected);
}

// Operands of the run give what constants give; those that make another shape are refused.
TEST(OnnxMelWeightMatrix, BandsOfTheRun) {
  OnnxBuilder b(17);
  for (const char* name : {"bands", "length", "rate"}) b.Input(name, {}, pb::TensorProto::INT64);
  b.Input("lowest", {}).Input("highest", {}).Output("y", {33, 20});
  b.Node("MelWeightMatrix", {"bands", "length", "rate", "lowest", "highest"}, "y");
  const auto with = [](int64_t bands, int64_t length, double lowest) {
    const auto whole = [](int64_t v) { return op::FromIntegers({ir::kI64, {}}, {v}); };
    return std::vector<RefTensor>{whole(bands), whole(length), whole(8192), TensorOf({}, {lowest}),
                                  TensorOf({}, {4000})};
  };
  for (const double lowest : {0.0, 250.0}) {
    OnnxBuilder fixed(17);
    fixed.Ints("bands", {20}).Ints("length", {64}).Ints("rate", {8192});
    fixed.Scalar("lowest", lowest).Scalar("highest", 4000).Output("y", {33, 20});
    fixed.Node("MelWeightMatrix", {"bands", "length", "rate", "lowest", "highest"}, "y");
    const Numbers expected = tests::EvaluateOnnx(fixed, {}, 0)[0].values;
    EXPECT_GT(std::count(expected.begin(), expected.end(), 0.5), 0);
    EXPECT_EQ(tests::EvaluateOnnx(b, with(20, 64, lowest), 1e-7)[0].values, expected);
  }
  const auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(support::Slug(Interpret(*g, with(19, 64, 0)).status()), "graph.interp.stated_shape");
  EXPECT_EQ(support::Slug(Interpret(*g, with(20, 62, 0)).status()), "graph.interp.stated_shape");
}

}  // namespace
}  // namespace tilewright::graph
