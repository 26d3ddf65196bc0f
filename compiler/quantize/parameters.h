// Scales, zero points and integers of tensors: number = scale * (integer - zero point). Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/quantize/ranges.h"

namespace tilewright::quantize {

// What data between layers becomes. Symmetric int8 has the zero point 0, as matrix units want it;
// of numbers that are never negative it uses half of its values.
enum class ByteForm : uint8_t { kUint8, kInt8, kSymmetricInt8 };

// Of a tensor between layers: one scale and one zero point for all its elements.
struct Affine {
  float scale = 1;
  int zero_point = 0;
  bool is_signed = false;  // int8 instead of uint8
};
Affine AffineOf(const Range& range, ByteForm form);

// Weights as symmetric int8 in [-127, 127], a scale for each output channel, and the bias as int32
// in steps of the layer's sums.
struct LayerIntegers {
  std::vector<int8_t> weights;
  std::vector<float> weight_scales;
  std::vector<int32_t> bias;       // empty if the layer has none
  std::vector<float> bias_scales;  // data scale * weight scale
};
struct LayerFloats {
  std::span<const float> weights;  // row-major
  std::vector<int64_t> shape;
  int64_t axis = 0;             // of the output channels in `shape`
  std::span<const float> bias;  // one number per output channel, or none
};
// A channel gets a larger scale than its weights need if its bias would not fit into int32.
// REQUIRES: all numbers are finite, data_scale > 0.
LayerIntegers QuantizeLayer(const LayerFloats& layer, float data_scale);
// The numbers that the integers stand for, in the order of the weights.
std::vector<float> WeightsOf(const LayerIntegers& integers, const LayerFloats& layer);

}  // namespace tilewright::quantize
