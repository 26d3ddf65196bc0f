// Convolutions. Padding is a stage of its own in front of the sum: a schedule keeps the padded
// copy, makes it per tile (compute_at), or guards the loads instead (inline). Weight layouts: OIHW
// as in ONNX, IHWO where a kernel reads the output channels contiguously. Integers: i32, or
// activations in bytes (u8 or i8, padded with the attribute pad_value) with weights i8 and sums
// i32.
#include <optional>

#include "compiler/op/conv_shape.h"
#include "compiler/op/op_rows.h"
#include "compiler/op/plain_product.h"
#include "compiler/op/winograd.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

absl::StatusOr<WeightLayout> LayoutOf(std::string_view op, const Attrs& attrs) {
  const std::string layout = GetString(attrs, "weight_layout", "OIHW");
  if (layout == "OIHW") return WeightLayout::kOihw;
  if (layout == "IHWO") return WeightLayout::kIhwo;
  if (layout == "OIHW16o") return WeightLayout::kBlocked;
  return OpError(op, "attribute",
                 StrCat("expected weight_layout OIHW, IHWO or OIHW16o, found ", layout));
}

// The weight's sizes as [out, in, kh, kw]; nothing where the shape is not the layout's.
std::optional<std::vector<Dim>> Oihw(WeightLayout layout, const std::vector<Dim>& w,
                                     DimEqualities* equal) {
  if (layout == WeightLayout::kBlocked) {
    if (w.size() != 5 || !MayEqual(w[4], kWeightBlock, equal)) return std::nullopt;
    return std::vector<Dim>{w[0] * Dim(kWeightBlock), w[1], w[2], w[3]};
  }
  if (w.size() != 4) return std::nullopt;
  return layout == WeightLayout::kIhwo ? std::vector<Dim>{w[3], w[0], w[1], w[2]} : w;
}

// Applies the type rule. Says what it read on the way in `form`.
absl::StatusOr<TensorTypes> InferForm(std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities* equal, ConvForm* form) {
  constexpr std::string_view kOp = "conv2d";
  const TensorType &x = inputs[0], &w = inputs[1];
  TW_ASSIGN(form->layout, LayoutOf(kOp, attrs));
  const std::optional<std::vector<Dim>> ws = Oihw(form->layout, w.shape, equal);
  if (x.shape.size() != 4 || !ws.has_value()) {
    return OpError(kOp, "shape",
                   StrCat("expected an input of rank 4 and a weight of the layout, found ",
                          ToText(x), " and ", ToText(w)));
  }
  TW_ASSIGN(const ir::DType sum, SumType(kOp, x, w));
  if (inputs.size() > 2 && inputs[2].dtype != sum) {
    return OpError(kOp, "type",
                   StrCat("expected a bias of ", ir::TypeName(sum), ", found ", ToText(inputs[2])));
  }
  TW_ASSIGN(form->pad_value, PadValueOf(kOp, attrs, x.dtype));
  form->groups = GetInt(attrs, "groups", 1);
  const Dim &out_channels = (*ws)[0], &group_in = (*ws)[1];
  if (!MayDivide(form->groups, out_channels) || !MayDivide(form->groups, x.shape[1]) ||
      !MayEqual(x.shape[1], group_in * Dim(form->groups), equal)) {
    return OpError(kOp, "channels",
                   StrCat("expected channels that divide into ", form->groups,
                          " groups, found input ", ToText(x), " and weight ", ToText(w)));
  }
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf(kOp, attrs, (*ws)[2], (*ws)[3]));
  form->h = windows[0];
  form->w = windows[1];
  const Dim height = form->h.OutputSize(x.shape[2]), width = form->w.OutputSize(x.shape[3]);
  if (SurelyBelow(height, 1) || SurelyBelow(width, 1)) {
    return OpError(kOp, "kernel",
                   StrCat("expected a kernel that fits the padded input, found input ", ToText(x),
                          " and weight ", ToText(w)));
  }
  if (inputs.size() > 2 && !MayEqual(inputs[2].shape, {out_channels}, equal)) {
    return OpError(
        kOp, "bias",
        StrCat("expected a bias of ", DimsText({out_channels}), ", found ", ToText(inputs[2])));
  }
  return TensorTypes{{sum, {x.shape[0], out_channels, height, width}}};
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  ConvForm form;
  return InferForm(inputs, attrs, equal, &form);
}

}  // namespace

absl::StatusOr<ConvShape> ConvShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  ConvForm form;
  DimEqualities equal;
  TW_ASSIGN(const TensorTypes out, InferForm(inputs, attrs, &equal, &form));
  const std::vector<Dim>&x = inputs[0].shape, &y = out[0].shape;
  TW_ASSIGN(const int64_t in, Fixed("conv2d", x[1]));
  TW_ASSIGN(const int64_t out_channels, Fixed("conv2d", y[1]));
  return ConvShape{form, in, out_channels, in / form.groups, x[0], x[2], x[3], y[2], y[3]};
}

ir::Expr ConvWeight(WeightLayout layout, const ir::Buffer& w, const ir::Expr& oc,
                    const ir::Expr& ic, const ir::Expr& kh, const ir::Expr& kw) {
  if (layout == WeightLayout::kOihw) return ir::Load(w, {oc, ic, kh, kw});
  if (layout == WeightLayout::kIhwo) return ir::Load(w, {ic, kh, kw, oc});
  const ir::Expr block = ir::Int(kWeightBlock);
  return ir::Load(w, {ir::FloorDiv(oc, block), ic, kh, kw, ir::FloorMod(oc, block)});
}

namespace {

absl::StatusOr<std::vector<ir::Buffer>> BuildConv(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(ConvShape c, ConvShapeOf(types, attrs));
  const Padded rows = TakePadding(&c.h, c.height, c.out_height),
               cols = TakePadding(&c.w, c.width, c.out_width);
  const ir::Buffer &in = inputs[0], &w = inputs[1];
  const ir::Buffer x = PadImage(b, name, in, rows, cols, c.pad_value);
  const ir::Axis ic = b.ReduceAxis("ic", ir::Int(c.group_in));
  const ir::Axis kh = b.ReduceAxis("kh", ir::Int(c.h.kernel));
  const ir::Axis kw = b.ReduceAxis("kw", ir::Int(c.w.kernel));
  const ir::DType dtype = outputs[0].dtype;
  auto value = [&](const std::vector<ir::Var>& i) {
    ir::Expr channel = ic.var;
    if (c.groups > 1) {
      ir::Expr group = c.group_out() == 1 ? i[1] : ir::FloorDiv(i[1], ir::Int(c.group_out()));
      channel = c.group_in == 1 ? group : group * ir::Int(c.group_in) + ic.var;
    }
    ir::Expr row = c.h.Position(i[2], kh.var), col = c.w.Position(i[3], kw.var);
    ir::Expr data = ir::Load(x, {i[0], channel, row, col});
    return AsSum(dtype, data) * AsSum(dtype, ConvWeight(c.layout, w, i[1], ic.var, kh.var, kw.var));
  };
  const std::vector<std::string> axes = {"n", "oc", "oh", "ow"};
  ir::Buffer sum =
      b.Reduce(inputs.size() > 2 ? name + "_sum" : name, dtype, ShapeExprs(b, outputs[0].shape),
               axes, {ic, kh, kw}, ir::Combiner::kSum, value);
  if (inputs.size() == 2) return std::vector<ir::Buffer>{sum};
  ir::Buffer out = b.Compute(name, dtype, ShapeExprs(b, outputs[0].shape), axes,
                             [&](const std::vector<ir::Var>& i) {
                               return ir::Load(sum, VarExprs(i)) + ir::Load(inputs[2], {i[1]});
                             });
  return std::vector<ir::Buffer>{out};
}

double ConvFlops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                 const Attrs&) {
  const double per_output =
      2.0 * static_cast<double>(inputs[1].elements()) / static_cast<double>(outputs[0].size(1));
  return static_cast<double>(outputs[0].elements()) * (per_output + (inputs.size() > 2 ? 1 : 0));
}

double ConvReduction(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<ConvShape> c = ConvShapeOf(inputs, attrs);
  return c.ok() ? static_cast<double>(c->group_in * c->h.kernel * c->w.kernel) : 1;
}

int64_t WeightOffset(const ConvShape& c, int64_t oc, int64_t ic, int64_t kh, int64_t kw) {
  auto tap = [&](int64_t first) {
    return ((first * c.group_in + ic) * c.h.kernel + kh) * c.w.kernel + kw;
  };
  switch (c.layout) {
    case WeightLayout::kOihw:
      return tap(oc);
    case WeightLayout::kIhwo:
      return tap(0) * c.out_channels + oc;
    case WeightLayout::kBlocked:
      return tap(oc / kWeightBlock) * kWeightBlock + oc % kWeightBlock;
  }
  return 0;
}

// One term of each sum: its channel within the group, and its offset from the window's first place.
struct Tap {
  int64_t channel, row, col;
};

std::vector<Tap> TapsOf(const ConvShape& c) {
  std::vector<Tap> taps;
  for (int64_t ic = 0; ic < c.group_in; ++ic) {
    for (int64_t kh = 0; kh < c.h.kernel; ++kh) {
      for (int64_t kw = 0; kw < c.w.kernel; ++kw) {
        taps.push_back({ic, kh * c.h.dilation - c.h.pad_begin, kw * c.w.dilation - c.w.pad_begin});
      }
    }
  }
  return taps;
}

// The weights of a group's outputs, a row for each, in the order of the taps.
std::vector<double> GroupWeights(const ConvShape& c, const RefTensor& w, int64_t group) {
  std::vector<double> rows;
  for (int64_t oc = group * c.group_out(); oc < (group + 1) * c.group_out(); ++oc) {
    for (int64_t ic = 0; ic < c.group_in; ++ic) {
      for (int64_t kh = 0; kh < c.h.kernel; ++kh) {
        for (int64_t kw = 0; kw < c.w.kernel; ++kw) {
          rows.push_back(w.values[WeightOffset(c, oc, ic, kh, kw)]);
        }
      }
    }
  }
  return rows;
}

absl::StatusOr<std::vector<RefTensor>> PlainConv(std::span<const RefTensor> inputs,
                                                 std::span<const TensorType> outputs,
                                                 const Attrs& attrs) {
  std::vector<TensorType> types;
  for (const RefTensor& input : inputs) types.push_back(input.type);
  TW_ASSIGN(ConvShape c, ConvShapeOf(types, attrs));
  const ImageSizes s(types[0], outputs[0]);
  const int64_t pixels = s.out_height * s.out_width;
  const std::vector<Tap> taps = TapsOf(c);
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  for (int64_t group = 0; group < c.groups; ++group) {
    const std::vector<double> weights = GroupWeights(c, inputs[1], group);
    for (int64_t n = 0; n < s.batch; ++n) {
      const int64_t first = n * c.in_channels + group * c.group_in;
      const auto value = [&](int64_t tap, int64_t pixel) {
        const auto& [channel, row_offset, col_offset] = taps[tap];
        const int64_t row = pixel / s.out_width * c.h.stride + row_offset;
        const int64_t col = pixel % s.out_width * c.w.stride + col_offset;
        const bool inside = row >= 0 && row < s.height && col >= 0 && col < s.width;
        const int64_t at = ((first + channel) * s.height + row) * s.width + col;
        return inside ? inputs[0].values[at] : static_cast<double>(c.pad_value);
      };
      double* to = out.values.data() + (n * c.out_channels + group * c.group_out()) * pixels;
      AddProduct(weights.data(), value, c.group_out(), pixels, std::ssize(taps), to);
    }
  }
  if (inputs.size() == 2) return std::vector<RefTensor>{std::move(out)};
  for (int64_t i = 0; i < std::ssize(out.values); ++i) {
    out.values[i] += inputs[2].values[i / pixels % c.out_channels];
  }
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

std::vector<OpSpec> ConvRows() {
  OpSpec conv;
  conv.name = "conv2d";
  conv.takes_empty = true;
  conv.onnx = {"Conv"};
  conv.fusion = FusionClass::kComplexOutFusable;
  conv.min_inputs = 2;
  conv.max_inputs = 3;
  conv.infer = Infer;
  conv.compute = BuildConv;
  conv.flops = ConvFlops;
  conv.reduction_length = ConvReduction;
  conv.reference = PlainConv;
  conv.variants = {{"winograd", WinogradApplies, ComputeWinograd, /*tolerance_factor=*/16}};
  return {conv};
}

}  // namespace tilewright::op
