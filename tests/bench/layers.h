// The layers that kernels are raced on: ResNet-18's and MobileNet's convolutions (Table 2 of the
// TVM paper, OSDI 2018, and MobileNet v1's depthwise ones), products of matrices from ResNet, BERT
// and classifiers. Their task texts in our layouts, their operands in plain ones for peers, and
// their results in double precision. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::bench {

struct Layer {
  enum class Kind : uint8_t { kConv, kGemm };
  std::string name;
  Kind kind = Kind::kConv;
  // y = relu(conv(x) + bias): batch 1, square images, padding kernel / 2, [out,in,k,k] weights;
  // depthwise: [out,1,k,k].
  int64_t size = 0, in = 0, out = 0, kernel = 0, stride = 0;
  bool depthwise = false;
  // u8 in and out, i8 weights: y = u8(round((conv(x) + bias) * scale)), a scale for each channel.
  bool bytes_only = false;
  // y[m,n] = x[m,k] · w[k,n] + bias[n]
  int64_t m = 0, n = 0, k = 0;

  int64_t out_size() const { return (size + 2 * (kernel / 2) - kernel) / stride + 1; }
  double flops() const;  // padding counts
  double bytes() const;  // operands and result once, f32
};

const std::vector<Layer>& Layers();
// One of Layers(), where C2i8..C12i8 and D1i8..D9i8 are the convolutions in bytes, or a name of
// workloads.txt: G<m>x<n>x<k>, K<size>x<in>x<out>k<kernel>[s<stride>] or, depthwise,
// D<size>x<channels>k<kernel>[s<stride>].
absl::StatusOr<Layer> FindLayer(const std::string& name);

// The graph as our passes leave it: channels in blocks of `block` where they divide, weights
// packed.
std::string GraphText(const Layer& layer, int64_t block);
// Without blocks of channels: NCHW.
inline constexpr int64_t kNoBlocks = 0;

// Row-major, convolutions in NCHW and OIHW.
struct Operands {
  std::vector<float> x, weights, bias, scale;  // numbers whatever their type; scale: of bytes only
};
// From the inputs of GraphText's graph, in its order and layouts.
Operands PlainOperands(const Layer& layer, int64_t block,
                       const std::vector<std::vector<float>>& inputs);
std::vector<float> PlainResult(const Layer& layer, int64_t block, const std::vector<float>& y);

// ‖result − exact‖ / ‖exact‖ over a sample of elements, exact ones in double precision.
double DistanceFromExact(const Layer& layer, const Operands& operands,
                         const std::vector<float>& result);
// ‖a − b‖ / ‖b‖.
double Distance(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tilewright::bench
