// Convolutions and dense layers between dequantised values become sums of products of bytes, and
// those of integers (ConvInteger and the like) do without i32 operands:
//   conv(s (x - z), t (w - u)) = s t (conv_bytes(x, w - u) - z sum(w - u)),  x padded with z
// with w - u in i8. What the zero point subtracts, and the bias, is one i32 per output channel.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/numeric.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

using Doubles = std::vector<double>;

constexpr double kMaxBias = 1 << 30;  // in steps of the sums

// The axis of the output channels in the weights and in the result.
struct Axes {
  int64_t weight, result;
};
std::optional<Axes> AxesOf(const Node& node, const op::TensorType& result) {
  if (node.op == "conv2d" && LiesPlain(node)) return Axes{0, 1};
  const std::optional<op::Layout> weights = UncutWeights(node);
  if (node.op != "dense" || !weights) return std::nullopt;
  return Axes{static_cast<int64_t>(weights->Dimension('N')), result.rank() - 1};
}

class IntegerLayerMaker : public ForwardRewriter {
 public:
  using ForwardRewriter::ForwardRewriter;

 private:
  struct Data {
    ValueId bytes = -1;
    double zero = 0, scale = 1;
  };
  struct Weights {
    op::RefTensor bytes;
    Doubles scale;  // per output channel
    Doubles sum;
  };

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op == "conv2d" || node.op == "dense") return Layer(node);
    return node.op == "add" ? Bias(node) : false;
  }

  static bool IsByte(const op::TensorType& type) {
    return type.dtype == ir::kU8 || type.dtype == ir::kI8;
  }

  // scale * (bytes - zero), with numbers that hold for all.
  absl::StatusOr<std::optional<Data>> DataOf(ValueId id) const {
    const Node* node = Before(id);
    if (node == nullptr) return std::nullopt;
    Data data;
    std::optional<double> zero = 0, scale = 1;
    if (node->op == "dequantize") {
      data.bytes = node->inputs[0];
      TW_ASSIGN(scale, KnownNumber(node->inputs[1]));
      TW_ASSIGN(zero, KnownNumber(node->inputs[2]));
    } else {
      if (TypeOf(id).dtype != ir::kI32) return std::nullopt;
      if (node->op == "sub") {
        TW_ASSIGN(zero, KnownNumber(node->inputs[1]));
        node = Before(node->inputs[0], "cast");
      }
      if (node == nullptr || node->op != "cast") return std::nullopt;
      data.bytes = node->inputs[0];
    }
    if (!zero || !scale || !IsByte(TypeOf(data.bytes)) || IsConstant(g_, data.bytes)) {
      return std::nullopt;
    }
    const ir::DType type = TypeOf(data.bytes).dtype;  // which holds the zero point, for padding
    if (*zero < static_cast<double>(ir::MinInt(type)) ||
        *zero > static_cast<double>(ir::MaxInt(type))) {
      return std::nullopt;
    }
    data.zero = *zero;
    data.scale = *scale;
    return std::optional(data);
  }

  // The weights without their zero points, where i8 holds them.
  absl::StatusOr<std::optional<Weights>> WeightsOf(ValueId id, int64_t axis) const {
    Weights w;
    const op::TensorType& type = TypeOf(id);
    std::optional<op::RefTensor> whole, scale = op::RefTensor{{ir::kF32, {}}, {1}};
    if (const Node* from = Before(id, "dequantize")) {
      TW_ASSIGN(whole, Known(from->inputs[0]));
      TW_ASSIGN(scale, Known(from->inputs[1]));
      TW_ASSIGN(const auto zero, Known(from->inputs[2]));
      if (!whole || !scale || !zero || !IsByte(whole->type)) return std::nullopt;
      const std::vector<op::RefTensor> operands = {*whole, {{ir::kF32, {}}, {1}}, *zero};
      TW_ASSIGN(auto centred, op::Reference(*op::FindOp("dequantize"), operands, {}));
      whole = std::move(centred[0]);
    } else if (type.dtype == ir::kI32) {
      TW_ASSIGN(whole, Known(id));
    }
    if (!whole) return std::nullopt;
    const auto scales = PerChannel(*scale, type.shape, axis);
    if (!scales) return std::nullopt;
    for (double v : whole->values) {
      if (v < -128 || v > 127) return std::nullopt;
    }
    w.bytes = {{ir::kI8, type.shape}, std::move(whole->values)};
    w.scale = *scales;
    w.sum.assign(w.scale.size(), 0);
    int64_t stride = 1;
    for (size_t d = type.shape.size(); d-- > static_cast<size_t>(axis) + 1;) {
      stride *= type.size(d);
    }
    for (size_t i = 0; i < w.bytes.values.size(); ++i) {
      w.sum[static_cast<int64_t>(i) / stride % type.size(axis)] += w.bytes.values[i];
    }
    return std::optional(std::move(w));
  }

  // One number per channel as a constant that broadcasts along the result's axis.
  ValueId Channels(const std::string& name, const op::TensorType& result, int64_t axis,
                   ir::DType type, Doubles values) {
    op::TensorType shape{type, {static_cast<int64_t>(values.size())}};
    for (size_t d = static_cast<size_t>(axis) + 1; d < result.shape.size(); ++d) {
      shape.shape.push_back(1);
    }
    return AddRounded(&g_, name, shape, std::move(values));
  }

  // Adds whole numbers to the sums, once for all there are.
  absl::StatusOr<ValueId> Shifted(const std::string& name, ValueId sums, int64_t axis,
                                  Doubles shift) {
    if (const Node* before = Before(sums, "add")) {
      TW_ASSIGN(const auto known, Known(before->inputs[1]));
      const auto first = known ? PerChannel(*known, TypeOf(sums).shape, axis) : std::nullopt;
      if (first) {
        for (size_t c = 0; c < shift.size(); ++c) shift[c] += (*first)[c];
        sums = before->inputs[0];
      }
    }
    // As additions of i32 one after the other would.
    for (double& v : shift) {
      v = static_cast<double>(ir::WrapInt(static_cast<int64_t>(v), ir::kI32));
    }
    const ValueId addend =
        Channels(name + "_shift", TypeOf(sums), axis, ir::kI32, std::move(shift));
    return Emit(name + "_shifted", "add", {sums, addend});
  }

  // A bias that was quantised to i32, in steps of the sums (quantisers take their scale, else to
  // the nearest step); nothing where it is another. What it is, not its numbers, decides.
  absl::StatusOr<std::optional<Doubles>> InSteps(ValueId bias, const op::TensorType& result,
                                                 int64_t axis, const Doubles& step) const {
    const Node* from = Before(bias, "dequantize");
    if (from == nullptr || TypeOf(from->inputs[0]).dtype != ir::kI32) return std::nullopt;
    TW_ASSIGN(const auto known, Known(bias));
    if (!known) return std::nullopt;
    const bool channels = known->values.size() == step.size();  // of a convolution: [o]
    const auto values = channels ? known->values : PerChannel(*known, result.shape, axis);
    if (!values) return std::nullopt;
    Doubles steps;
    for (size_t c = 0; c < step.size(); ++c) {
      steps.push_back(std::nearbyint((*values)[c] / step[c]));
      if (!(std::fabs(steps.back()) < kMaxBias)) return std::nullopt;
    }
    return std::optional(std::move(steps));
  }

  absl::StatusOr<bool> Layer(const Node& node) {
    const op::TensorType result = TypeOf(node.outputs[0]);
    const auto axes = AxesOf(node, result);
    if (!axes || IsByte(TypeOf(node.inputs[0]))) return false;
    TW_ASSIGN(const auto data, DataOf(node.inputs[0]));
    if (!data) return false;
    TW_ASSIGN(auto w, WeightsOf(node.inputs[1], axes->weight));
    if (!w) return false;
    const size_t channels = w->scale.size();
    Doubles scale, shift, bias;
    for (size_t c = 0; c < channels; ++c) {
      scale.push_back(op::RoundToType(data->scale * w->scale[c], ir::kF32));
      shift.push_back(-data->zero * w->sum[c]);
    }
    if (node.inputs.size() > 2) {
      TW_ASSIGN(const auto known, Known(node.inputs[2]));
      if (!known) return false;
      bias = known->values;
      if (result.dtype == ir::kI32) {
        for (size_t c = 0; c < channels; ++c) shift[c] += bias[c];
        bias.clear();
      } else {
        TW_ASSIGN(const auto steps, InSteps(node.inputs[2], result, axes->result, scale));
        for (size_t c = 0; steps && c < channels; ++c) shift[c] += (*steps)[c];
        if (steps) bias.clear();
      }
    }
    op::Attrs attrs = node.attrs;
    const auto pads = op::GetInts(attrs, "pads", {});
    if (data->zero != 0 && std::count(pads.begin(), pads.end(), 0) != std::ssize(pads)) {
      attrs["pad_value"] = static_cast<int64_t>(data->zero);
    }
    const ValueId weight = AddTensor(&g_, NameOf(node.inputs[1]) + "_bytes", w->bytes);
    TW_ASSIGN(ValueId sums, Emit(node.name + "_sums", node.op, {data->bytes, weight}, attrs));
    // Whatever the numbers are, so that models that differ in them alone have the same tasks.
    if (data->zero != 0 || node.inputs.size() > 2) {
      TW_ASSIGN(sums, Shifted(node.name, sums, axes->result, shift));
    }
    if (result.dtype == ir::kI32) {
      Same(node, sums);
      return true;
    }
    const std::vector<ValueId> operands = {
        sums, Channels(node.name + "_scale", result, axes->result, ir::kF32, scale),
        AddRounded(&g_, node.name + "_zero", {ir::kI32, {}}, {0})};
    if (bias.empty()) {
      Define(node, "dequantize", operands);
      return true;
    }
    TW_ASSIGN(const ValueId steps, Emit(node.name + "_product", "dequantize", operands));
    Define(node, "add",
           {steps, Channels(node.name + "_bias", result, axes->result, ir::kF32, bias)});
    return true;
  }

  // dequantize(sums) + bias → dequantize(sums + whole), as Gemm and MatMul with Add have it.
  absl::StatusOr<bool> Bias(const Node& node) {
    for (const int side : {0, 1}) {
      const Node* product = Before(node.inputs[side], "dequantize");
      if (product == nullptr || TypeOf(product->inputs[0]).dtype != ir::kI32) continue;
      const std::vector<ValueId> operands = product->inputs;
      ValueId sums = operands[0];
      if (const Node* shifted = Before(sums, "add")) sums = shifted->inputs[0];
      const Node* layer = Before(sums);
      const op::TensorType result = TypeOf(node.outputs[0]);
      const auto axes = layer != nullptr ? AxesOf(*layer, result) : std::nullopt;
      if (!axes || TypeOf(sums).shape != result.shape) continue;
      TW_ASSIGN(const auto scale, Known(operands[1]));
      const auto scales = scale ? PerChannel(*scale, result.shape, axes->result) : std::nullopt;
      if (!scales) continue;
      TW_ASSIGN(const auto steps, InSteps(node.inputs[1 - side], result, axes->result, *scales));
      if (!steps) continue;
      TW_ASSIGN(const ValueId shifted, Shifted(node.name, operands[0], axes->result, *steps));
      Define(node, "dequantize", {shifted, operands[1], operands[2]});
      return true;
    }
    return false;
  }
};

}  // namespace

absl::StatusOr<Graph> IntegerLayers(Graph g, const GraphPassContext& ctx) {
  return IntegerLayerMaker(std::move(g), ctx.fold_max_bytes).Run();
}

}  // namespace tilewright::graph
