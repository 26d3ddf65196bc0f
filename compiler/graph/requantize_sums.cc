// For a matrix unit, which has no floats, where all zero points are 0 and the result is i8:
//   quantize(relu?(dequantize(sums))) → cast(requantize(relu?(sums))), where the sums are those of
//     a dense layer or a convolution of signed bytes in whole blocks of the unit. The scale of each
//     channel becomes a whole number over a power of two.
//   quantize(relu?(dequantize(a) + dequantize(b))) of two images of bytes
//     → cast(requantize(relu?(i32(a) * m + i32(b) * n))), each scale a whole number over one power
//     of two.
//   quantize(relu?(mean(dequantize(a)))) over windows, or over the image
//     → the same of a convolution of each channel alone, with weights of 1.
// A relu may be a clip from 0 to what the bytes can hold.
#include <algorithm>
#include <cmath>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

// The largest multiplier has so many bits but for a few: shifts are multiples of kShiftStep, so
// that layers of one shape are few tasks.
constexpr int kMultiplierBits = 30, kShiftStep = 4;
// Products of 63 bits that are shifted by 55 or more fit into 8 bits: the passes would drop the cut
// to 8 bits that a unit's instruction has. Scales so small leave zeros anyway.
constexpr int kMaxShift = 52;
// Of the factors of bytes, whose products are added up in 32 bits.
constexpr int kFactorBits = 22;
// Of a mean, whose weights lie on the chip: so many squares fit small units, too.
constexpr int64_t kMostTaps = 128;

class SumRequantizer : public ForwardRewriter {
 public:
  SumRequantizer(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), block_(ctx.matrix_block) {}

 private:
  absl::StatusOr<bool> IsZero(ValueId id) const {
    TW_ASSIGN(const auto known, Known(id));
    return known &&
           std::all_of(known->values.begin(), known->values.end(), [](double v) { return v == 0; });
  }

  bool InBlocks(const op::Dim& channels) const {
    return channels.is_constant() && channels.value() % block_ == 0;
  }

  // Whether no window lies in the padding alone.
  static bool SeesTheImage(const Node& layer, const std::vector<int64_t>& weights) {
    const auto pads = op::GetInts(layer.attrs, "pads", {0, 0, 0, 0});
    const auto dilations = op::GetInts(layer.attrs, "dilations", {1, 1});
    for (size_t side = 0; side < pads.size(); ++side) {
      if (pads[side] > (weights[2 + side % 2] - 1) * dilations[side % 2]) return false;
    }
    return true;
  }

  // Channels that are convolved alone are groups of a block, with zeros.
  static bool FillsBlocks(const Node& layer, const std::vector<int64_t>& weights) {
    const int64_t groups = op::GetInt(layer.attrs, "groups", 1);
    return groups == 1 || (groups == weights[0] && weights[1] == 1);
  }

  // The axis of the channels in sums that the unit computes; nothing where it does not.
  std::optional<size_t> AxisOnUnit(ValueId sums) const {
    const Node* layer = Before(sums);
    if (layer != nullptr && layer->op == "add" && IsConstant(g_, layer->inputs[1]))
      layer = Before(layer->inputs[0]);
    if (layer == nullptr || (layer->op != "dense" && layer->op != "conv2d")) return std::nullopt;
    const op::TensorType &x = TypeOf(layer->inputs[0]), &result = TypeOf(layer->outputs[0]);
    const op::TensorType& weights = TypeOf(layer->inputs[1]);
    if (x.dtype != ir::kI8 || weights.dtype != ir::kI8 || !IsConstant(g_, layer->inputs[1]))
      return std::nullopt;
    const bool image = layer->op == "conv2d";
    if (image &&
        (!FillsBlocks(*layer, weights.sizes()) || op::GetInt(layer->attrs, "pad_value", 0) != 0 ||
         !LiesPlain(*layer) || !SeesTheImage(*layer, weights.sizes()))) {
      return std::nullopt;
    }
    const size_t axis = image ? 1 : x.shape.size() - 1;
    if (x.shape.size() < 2 || !InBlocks(x.shape[axis]) || !InBlocks(result.shape[axis]))
      return std::nullopt;
    return axis;
  }

  // The power of two that brings the largest of the scales to so many bits or a few less.
  static std::optional<int64_t> ShiftOf(const std::vector<double>& scales, int bits) {
    const double largest = *std::max_element(scales.begin(), scales.end());
    const double least = *std::min_element(scales.begin(), scales.end());
    if (!(least > 0) || !std::isfinite(largest)) return std::nullopt;
    int exponent = 0;  // of the next power of two
    std::frexp(largest, &exponent);
    const int shift = std::min(kMaxShift, (bits - exponent) / kShiftStep * kShiftStep);
    if (shift < 0 || exponent > bits) return std::nullopt;
    return shift;
  }

  // Whole numbers for the channels along `axis`.
  ValueId Whole(const std::string& name, std::vector<double> values, size_t axis, size_t rank) {
    op::TensorType type{ir::kI32, {static_cast<int64_t>(values.size())}};
    type.shape.resize(rank - axis, 1);
    return AddRounded(&g_, name, type, std::move(values));
  }
  static std::vector<double> Scaled(std::vector<double> scales, int64_t shift) {
    for (double& scale : scales) scale = std::nearbyint(std::ldexp(scale, static_cast<int>(shift)));
    return scales;
  }

  // The numbers of `from`'s scale along `axis` where its zero point is 0.
  absl::StatusOr<std::optional<std::vector<double>>> ScalesOf(const Node& from, size_t axis) const {
    TW_ASSIGN(const bool plain, IsZero(from.inputs[2]));
    TW_ASSIGN(const auto scale, Known(from.inputs[1]));
    if (!plain || !scale) return std::nullopt;
    return PerChannel(*scale, TypeOf(from.inputs[0]).shape, static_cast<int64_t>(axis));
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "quantize" || TypeOf(node.outputs[0]).dtype != ir::kI8) return false;
    TW_ASSIGN(const auto steps, Known(node.inputs[1]));
    TW_ASSIGN(const bool centred, IsZero(node.inputs[2]));
    if (!steps || !centred) return false;
    const Node* from = Before(node.inputs[0]);
    const bool rectified = from != nullptr && Rectifies(*from);
    if (rectified) from = Before(from->inputs[0]);
    if (from == nullptr) return false;
    if (const std::optional<op::Attrs> windows = WindowsOfMean(*from))
      return Mean(node, *from, *windows, rectified, *steps);
    if (steps->values != std::vector<double>{1})
      return false;  // fold_scales has moved it into the operands, if it can
    if (from->op == "add") return Sum(node, *from, rectified);
    return from->op == "dequantize" ? Layer(node, *from, rectified) : false;
  }

  // In steps of the result: a bound that saturation implies is none.
  static bool Rectifies(const Node& node) {
    constexpr double kMost = 127, kNone = 1e30;
    return node.op == "relu" ||
           (node.op == "clip" && op::GetDouble(node.attrs, "min", -kNone) == 0 &&
            op::GetDouble(node.attrs, "max", kNone) >= kMost);
  }

  absl::StatusOr<bool> Layer(const Node& node, const Node& from, bool rectified) {
    ValueId sums = from.inputs[0];
    if (TypeOf(sums).dtype != ir::kI32) return false;
    const std::optional<size_t> axis = AxisOnUnit(sums);
    if (!axis) return false;
    TW_ASSIGN(const auto scales, ScalesOf(from, *axis));
    const auto shift = scales ? ShiftOf(*scales, kMultiplierBits) : std::nullopt;
    if (!shift) return false;
    const size_t rank = TypeOf(sums).shape.size();
    if (rectified) {
      TW_ASSIGN(sums, Emit(node.name + "_relu", "relu", {sums}));
    }
    const ValueId multiplier =
        Whole(node.name + "_multiplier", Scaled(*scales, *shift), *axis, rank);
    return Requantized(node, sums, multiplier, *shift);
  }

  absl::StatusOr<bool> Requantized(const Node& node, ValueId sums, ValueId multiplier,
                                   int64_t shift) {
    TW_ASSIGN(const ValueId steps,
              Emit(node.name + "_steps", "requantize", {sums, multiplier}, {{"shift", shift}}));
    Define(node, "cast", {steps}, {{"dtype", std::string("i8")}});
    return true;
  }

  // The windows of a mean over an image, as the attributes of a convolution and its kernel; nothing
  // where a window counts what is outside of the image, or is too large.
  std::optional<op::Attrs> WindowsOfMean(const Node& mean) const {
    const op::TensorType& x = TypeOf(mean.inputs[0]);
    if (x.rank() != 4 || !x.fixed()) return std::nullopt;
    op::Attrs windows;
    std::vector<int64_t> kernel;
    if (mean.op == "reduce" && op::GetString(mean.attrs, "kind", "") == "mean") {
      std::vector<int64_t> axes = op::GetInts(mean.attrs, "axes", {});
      for (int64_t& axis : axes) axis = axis < 0 ? axis + 4 : axis;
      std::sort(axes.begin(), axes.end());
      if (axes != std::vector<int64_t>{2, 3} || op::GetInt(mean.attrs, "keepdims", 1) == 0)
        return std::nullopt;
      kernel = {x.size(2), x.size(3)};
    } else if (mean.op == "pool2d" && op::GetString(mean.attrs, "kind", "") == "avg") {
      const auto pads = op::GetInts(mean.attrs, "pads", {0, 0, 0, 0});
      const bool padded = std::any_of(pads.begin(), pads.end(), [](int64_t n) { return n != 0; });
      if (padded && op::GetInt(mean.attrs, "count_include_pad", 0) == 0) return std::nullopt;
      kernel = op::GetInts(mean.attrs, "kernel", {});
      for (const char* name : {"strides", "pads", "dilations"}) {
        const auto known = mean.attrs.find(name);
        if (known != mean.attrs.end()) windows[name] = known->second;
      }
    }
    if (kernel.size() != 2 || kernel[0] * kernel[1] > kMostTaps) return std::nullopt;
    windows["kernel"] = kernel;
    return windows;
  }

  // The mean of windows of an image of bytes: a sum with weights of 1, each channel alone.
  absl::StatusOr<bool> Mean(const Node& node, const Node& mean, op::Attrs windows, bool rectified,
                            const op::RefTensor& steps) {
    constexpr size_t kAxis = 1;
    const Node* from = Before(mean.inputs[0], "dequantize");
    const op::TensorType x = TypeOf(mean.inputs[0]);
    if (from == nullptr || TypeOf(from->inputs[0]).dtype != ir::kI8 || !InBlocks(x.shape[kAxis]) ||
        IsConstant(g_, from->inputs[0])) {
      return false;
    }
    TW_ASSIGN(auto scales, ScalesOf(*from, kAxis));
    const auto divisors = PerChannel(steps, x.shape, kAxis);
    if (!scales || !divisors) return false;
    const std::vector<int64_t> kernel = op::GetInts(windows, "kernel", {});
    const int64_t taps = kernel[0] * kernel[1], channels = x.size(kAxis);
    for (size_t c = 0; c < scales->size(); ++c)
      (*scales)[c] /= static_cast<double>(taps) * (*divisors)[c];
    const auto shift = ShiftOf(*scales, kMultiplierBits);
    if (!shift) return false;
    windows.erase("kernel");
    windows["groups"] = channels;
    const ValueId image = from->inputs[0];
    const ValueId ones =
        AddConstant(&g_, node.name + "_ones", {ir::kI8, {channels, 1, kernel[0], kernel[1]}},
                    std::string(static_cast<size_t>(channels * taps), '\1'));
    TW_ASSIGN(ValueId sums, Emit(node.name + "_sums", "conv2d", {image, ones}, windows));
    if (rectified) {
      TW_ASSIGN(sums, Emit(node.name + "_relu", "relu", {sums}));
    }
    const ValueId multiplier =
        Whole(node.name + "_multiplier", Scaled(*scales, *shift), kAxis, x.rank());
    return Requantized(node, sums, multiplier, *shift);
  }

  // Of two images of bytes.
  absl::StatusOr<bool> Sum(const Node& node, const Node& sum, bool rectified) {
    constexpr size_t kAxis = 1;
    const std::vector<op::Dim> shape = TypeOf(node.outputs[0]).shape;
    if (shape.size() != 4 || !InBlocks(shape[kAxis])) return false;
    std::vector<ValueId> images;
    std::vector<std::vector<double>> scales;
    double largest = 0;
    for (const ValueId id : sum.inputs) {
      const Node* from = Before(id, "dequantize");
      if (from == nullptr || TypeOf(from->inputs[0]) != op::TensorType(ir::kI8, shape) ||
          IsConstant(g_, from->inputs[0])) {
        return false;
      }
      TW_ASSIGN(const auto known, ScalesOf(*from, kAxis));
      if (!known) return false;
      images.push_back(from->inputs[0]);
      scales.push_back(*known);
      largest = std::max(largest, *std::max_element(known->begin(), known->end()));
    }
    if (images[0] == images[1]) return false;
    const auto shift = ShiftOf({largest}, kFactorBits);
    if (!shift) return false;
    std::vector<ValueId> parts;
    for (size_t i = 0; i < images.size(); ++i) {
      const std::string name = node.name + (i == 0 ? "_first" : "_second");
      TW_ASSIGN(const ValueId wide,
                Emit(name + "_wide", "cast", {images[i]}, {{"dtype", std::string("i32")}}));
      const ValueId factor =
          Whole(name + "_factor", Scaled(scales[i], *shift), kAxis, shape.size());
      TW_ASSIGN(const ValueId part, Emit(name, "mul", {wide, factor}));
      parts.push_back(part);
    }
    TW_ASSIGN(ValueId total, Emit(node.name + "_sum", "add", parts));
    if (rectified) {
      TW_ASSIGN(total, Emit(node.name + "_relu", "relu", {total}));
    }
    const std::vector<double> ones(static_cast<size_t>(shape[kAxis].value()), 1);
    return Requantized(node, total, Whole(node.name + "_one", ones, kAxis, shape.size()), *shift);
  }

  const int64_t block_;
};

}  // namespace

absl::StatusOr<Graph> RequantizeSums(Graph g, const GraphPassContext& ctx) {
  if (ctx.matrix_block == 0) return g;
  return SumRequantizer(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
