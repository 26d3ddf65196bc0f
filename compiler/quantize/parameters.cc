#include "compiler/quantize/parameters.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tilewright::quantize {
namespace {

constexpr double kMaxWeight = 127;  // and of symmetric data
// Sums of products have 2^15 for each term: with a bias of this size, 2^15 terms fit into int32.
constexpr double kMaxBias = 1 << 29;
// Steps of a bias whose channel has no weights.
constexpr double kLoneBias = 1 << 22;

// How many neighbours in row-major order have one channel.
int64_t ChannelRun(const LayerFloats& layer) {
  int64_t run = 1;
  for (size_t d = static_cast<size_t>(layer.axis) + 1; d < layer.shape.size(); ++d) {
    run *= layer.shape[d];
  }
  return run;
}

float ScaleOf(double largest_weight, double bias, double data_scale) {
  double scale = largest_weight / kMaxWeight;
  if (largest_weight == 0) scale = bias == 0 ? 1 : bias / (data_scale * kLoneBias);
  scale = std::max(scale, bias / (data_scale * kMaxBias));
  return static_cast<float>(std::max(scale, double{std::numeric_limits<float>::min()}));
}

}  // namespace

Affine AffineOf(const Range& range, ByteForm form) {
  Affine affine;
  affine.is_signed = form != ByteForm::kUint8;
  const int least = affine.is_signed ? -128 : 0;
  affine.zero_point = least;
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  if (form == ByteForm::kSymmetricInt8) {
    affine.zero_point = 0;
    const double largest = std::max(-low, high);
    if (largest < std::numeric_limits<float>::min()) return affine;
    affine.scale = static_cast<float>(
        std::max(largest / kMaxWeight, double{std::numeric_limits<float>::min()}));
    return affine;
  }
  if (high - low < std::numeric_limits<float>::min()) return affine;
  affine.scale = static_cast<float>(
      std::max((high - low) / kIntegerSteps, double{std::numeric_limits<float>::min()}));
  const double zero = std::nearbyint(-low / affine.scale);
  affine.zero_point = least + static_cast<int>(std::clamp(zero, 0.0, double{kIntegerSteps}));
  return affine;
}

LayerIntegers QuantizeLayer(const LayerFloats& layer, float data_scale) {
  const int64_t run = ChannelRun(layer), channels = layer.shape[static_cast<size_t>(layer.axis)];
  const auto channel_of = [&](size_t i) {
    return static_cast<size_t>(static_cast<int64_t>(i) / run % channels);
  };
  std::vector<double> largest(static_cast<size_t>(channels), 0);
  for (size_t i = 0; i < layer.weights.size(); ++i) {
    double& of_channel = largest[channel_of(i)];
    of_channel = std::max<double>(of_channel, std::fabs(layer.weights[i]));
  }
  LayerIntegers result;
  for (size_t c = 0; c < largest.size(); ++c) {
    const double bias = layer.bias.empty() ? 0 : std::fabs(layer.bias[c]);
    result.weight_scales.push_back(ScaleOf(largest[c], bias, data_scale));
    if (layer.bias.empty()) continue;
    const float step = data_scale * result.weight_scales[c];
    result.bias_scales.push_back(step);
    const double steps = std::nearbyint(layer.bias[c] / step);
    result.bias.push_back(static_cast<int32_t>(std::clamp(steps, -2 * kMaxBias, 2 * kMaxBias)));
  }
  result.weights.reserve(layer.weights.size());
  for (size_t i = 0; i < layer.weights.size(); ++i) {
    const double steps = std::nearbyint(layer.weights[i] / result.weight_scales[channel_of(i)]);
    result.weights.push_back(static_cast<int8_t>(std::clamp(steps, -kMaxWeight, kMaxWeight)));
  }
  return result;
}

std::vector<float> WeightsOf(const LayerIntegers& integers, const LayerFloats& layer) {
  const int64_t run = ChannelRun(layer), channels = layer.shape[static_cast<size_t>(layer.axis)];
  std::vector<float> weights;
  weights.reserve(integers.weights.size());
  for (size_t i = 0; i < integers.weights.size(); ++i) {
    const auto c = static_cast<size_t>(static_cast<int64_t>(i) / run % channels);
    weights.push_back(static_cast<float>(integers.weights[i]) * integers.weight_scales[c]);
  }
  return weights;
}

}  // namespace tilewright::quantize
