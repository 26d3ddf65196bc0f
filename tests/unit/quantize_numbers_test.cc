// Ranges, scales, zero points, biases and noise: the numbers of quantisation, without models.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compiler/quantize/parameters.h"
#include "compiler/quantize/ranges.h"
#include "compiler/quantize/signal_noise.h"
#include "deploy/support/status.h"

namespace tilewright::quantize {
namespace {

Range RangeOf(const std::vector<float>& values, const std::string& rule) {
  Histogram histogram;
  histogram.Add(values);
  return ChooseRange(histogram, ParseRangeChoice(rule).value());
}

// A thousand numbers in [0, 1) and one far away.
std::vector<float> WithOutlier(float outlier) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(static_cast<float>(i) / 1000);
  values.push_back(outlier);
  return values;
}

double MeanSquaredError(const std::vector<float>& values, const Range& range) {
  const Affine affine = AffineOf(range, ByteForm::kUint8);
  double sum = 0;
  for (const float v : values) {
    const double q =
        std::clamp(std::nearbyint(double{v} / affine.scale) + affine.zero_point, 0.0, 255.0);
    sum += std::pow((q - affine.zero_point) * affine.scale - v, 2);
  }
  return sum / static_cast<double>(values.size());
}

TEST(Ranges, MinMaxHasAllNumbersAndZero) {
  Range range = RangeOf({-3, 5, 1}, "minmax");
  EXPECT_EQ(range.low, -3);
  EXPECT_EQ(range.high, 5);
  range = RangeOf({2, 5}, "minmax");
  EXPECT_EQ(range.low, 0);
  EXPECT_EQ(range.high, 5);
  range = RangeOf({-7, -2}, "minmax");
  EXPECT_EQ(range.low, -7);
  EXPECT_EQ(range.high, 0);
}

TEST(Ranges, PercentileLeavesTheOutermostOut) {
  const std::vector<float> values = WithOutlier(50);
  EXPECT_NEAR(RangeOf(values, "percentile=99.8").high, 0.998, 0.01);
  EXPECT_EQ(RangeOf(values, "percentile=100").high, 50);
  // Of numbers of both signs, half of what is left out is at each end.
  std::vector<float> both;
  for (int i = -500; i <= 500; ++i) both.push_back(static_cast<float>(i));
  const Range range = RangeOf(both, "percentile=90");
  EXPECT_NEAR(range.low, -450, 3);
  EXPECT_NEAR(range.high, 450, 3);
}

TEST(Ranges, MseLosesLessThanMinMaxAndPercentile) {
  const std::vector<float> values = WithOutlier(4);
  const double best = MeanSquaredError(values, RangeOf(values, "mse"));
  EXPECT_LE(best, MeanSquaredError(values, RangeOf(values, "minmax")) * 1.001);
  EXPECT_LT(best, MeanSquaredError(values, RangeOf(values, "percentile=99")));
  // To saturate one number of a million costs less than a step of twice the width.
  std::vector<float> many;
  for (int i = 0; i < 1'000'000; ++i) many.push_back(static_cast<float>(i) * 1e-6F);
  many.push_back(2);
  EXPECT_LT(MeanSquaredError(many, RangeOf(many, "mse")),
            0.5 * MeanSquaredError(many, RangeOf(many, "minmax")));
}

TEST(Ranges, DoNotDependOnTheOrderOfTheData) {
  Histogram small_first, large_first;
  const std::vector<float> small = {0.001F, -0.002F, 0.003F}, large = {1000, -20, 0};
  small_first.Add(small);
  small_first.Add(large);
  large_first.Add(large);
  large_first.Add(small);
  const auto a = small_first.bins(), b = large_first.bins();
  ASSERT_EQ(a.size(), b.size());
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].centre, b[i].centre);
    EXPECT_EQ(a[i].count, b[i].count);
    count += a[i].count;
  }
  EXPECT_EQ(count, 6);
  EXPECT_EQ(small_first.count(), 6);
}

TEST(Ranges, SayThatANumberIsNotFinite) {
  Histogram histogram;
  histogram.Add(std::vector<float>{1, 2});
  EXPECT_TRUE(histogram.finite());
  histogram.Add(std::vector<float>{std::numeric_limits<float>::quiet_NaN()});
  EXPECT_FALSE(histogram.finite());
  EXPECT_EQ(histogram.count(), 2);
}

TEST(Ranges, RuleIsParsed) {
  EXPECT_EQ(RangeChoiceText(ParseRangeChoice("percentile").value()), "percentile=99.99");
  EXPECT_EQ(RangeChoiceText(ParseRangeChoice("percentile=99.5").value()), "percentile=99.5");
  for (const char* text :
       {"", "entropy", "percentile=", "percentile=50", "percentile=101", "mse=1"}) {
    EXPECT_EQ(support::Slug(ParseRangeChoice(text).status()), "quantize.ranges.unknown") << text;
  }
}

TEST(Affine, HasZeroAndBothEnds) {
  const Affine positive = AffineOf({0, 51}, ByteForm::kUint8);
  EXPECT_FLOAT_EQ(positive.scale, 0.2F);
  EXPECT_EQ(positive.zero_point, 0);
  const Affine both = AffineOf({-51, 204}, ByteForm::kUint8);
  EXPECT_FLOAT_EQ(both.scale, 1);
  EXPECT_EQ(both.zero_point, 51);
  const Affine negative = AffineOf({-51, 0}, ByteForm::kUint8);
  EXPECT_EQ(negative.zero_point, 255);
  const Affine with_sign = AffineOf({-51, 204}, ByteForm::kInt8);
  EXPECT_EQ(with_sign.zero_point, 51 - 128);
  EXPECT_TRUE(with_sign.is_signed);
  // A tensor that is 0 has a scale all the same.
  EXPECT_EQ(AffineOf({0, 0}, ByteForm::kUint8).scale, 1);
  EXPECT_EQ(AffineOf({0, 0}, ByteForm::kInt8).zero_point, -128);
  const Affine symmetric = AffineOf({-50.8, 25}, ByteForm::kSymmetricInt8);
  EXPECT_TRUE(symmetric.is_signed);
  EXPECT_EQ(symmetric.zero_point, 0);
  EXPECT_FLOAT_EQ(symmetric.scale, 0.4F);
  EXPECT_FLOAT_EQ(AffineOf({0, 25.4}, ByteForm::kSymmetricInt8).scale, 0.2F);
  EXPECT_EQ(AffineOf({0, 0}, ByteForm::kSymmetricInt8).scale, 1);
}

TEST(Layer, HasAScaleForEachChannelAlongItsAxis) {
  const std::vector<float> weights = {1, 100, 254, -2, 50, 127};  // [2,3]
  const LayerIntegers rows = QuantizeLayer({weights, {2, 3}, 0, {}}, 1);
  EXPECT_EQ(rows.weight_scales, (std::vector<float>{2, 1}));
  EXPECT_EQ(rows.weights, (std::vector<int8_t>{0, 50, 127, -2, 50, 127}));
  const LayerIntegers columns = QuantizeLayer({weights, {2, 3}, 1, {}}, 1);
  ASSERT_EQ(columns.weight_scales.size(), 3U);
  EXPECT_FLOAT_EQ(columns.weight_scales[0], 2.0F / 127);
  EXPECT_FLOAT_EQ(columns.weight_scales[1], 100.0F / 127);
  EXPECT_EQ(columns.weights, (std::vector<int8_t>{64, 127, 127, -127, 64, 64}));
  const LayerFloats layer{weights, {2, 3}, 1, {}};
  EXPECT_FLOAT_EQ(WeightsOf(columns, layer)[4], 64 * 100.0F / 127);
}

TEST(Layer, BiasIsInStepsOfTheSums) {
  const std::vector<float> weights = {127, -12.7F}, bias = {10, -3};
  const LayerIntegers integers = QuantizeLayer({weights, {2, 1}, 0, bias}, 0.5F);
  EXPECT_FLOAT_EQ(integers.bias_scales[0], 0.5F);
  EXPECT_FLOAT_EQ(integers.bias_scales[1], 0.05F);
  EXPECT_EQ(integers.bias, (std::vector<int32_t>{20, -60}));
}

TEST(Layer, BiasOfAWeakChannelFits) {
  // 1e6 / (1e-3 * 1e-6 / 127) steps are more than int32 holds: the channel's scale grows.
  const std::vector<float> weights = {1e-6F, 0}, bias = {1e6F, 3};
  const LayerIntegers integers = QuantizeLayer({weights, {2, 1}, 0, bias}, 1e-3F);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(static_cast<double>(integers.bias[c]) * integers.bias_scales[c], bias[c],
                1e-6 * bias[c]);
    EXPECT_LE(std::abs(integers.bias[c]), 1 << 29);
  }
  EXPECT_EQ(integers.weights[1], 0);
}

TEST(SignalNoise, IsInDecibelsOverAllRuns) {
  SignalNoise noise;
  EXPECT_EQ(noise.decibels(), kExactDb);
  noise.Add(std::vector<float>{10, 0}, std::vector<float>{10, 1});
  EXPECT_NEAR(noise.decibels(), 20, 1e-9);
  EXPECT_NEAR(noise.relative_norm(), 0.1, 1e-9);
  noise.Add(std::vector<float>{30}, std::vector<float>{33});
  EXPECT_NEAR(noise.decibels(), 20, 1e-9);
  EXPECT_EQ(noise.max_abs_diff(), 3);
  SignalNoise silent;
  silent.Add(std::vector<float>{0}, std::vector<float>{1});
  EXPECT_EQ(silent.decibels(), -kExactDb);
}

TEST(SignalNoise, CountsRowsWithTheSameLargest) {
  const std::vector<float> exact = {1, 2, 3, 9, 8, 7}, rounded = {1, 3, 2, 9, 8.9F, 7};
  EXPECT_EQ(SameLargest(exact, rounded, 3), 1);
  EXPECT_EQ(SameLargest(exact, exact, 3), 2);
}

}  // namespace
}  // namespace tilewright::quantize
