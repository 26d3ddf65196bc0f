// Convolutions. Padding is a stage of its own in front of the sum: a schedule keeps the padded
// copy, makes it per tile (compute_at), or guards the loads instead (inline). Integers: i32, or
// activations in bytes (u8 or i8, padded with the attribute pad_value) with weights i8 and sums
// i32.
//
// Layouts. Weights may have any: OIHW as in ONNX, OIHW16o where a kernel reads the output channels
// contiguously. Data lie as NCHW, or in blocks of channels (NCHW16c): lanes along the block need
// neither gathered loads nor transposed stores. The result then has the weights' blocks of output
// channels. Loops over input channels follow the weights' blocks, so these choose what an
// instruction sees: OIHW4i16o4i has four channels side by side, as dot products of four bytes read
// them (x86 vpdpbusd), OIHW16o16i the squares of a matrix unit, OHW16o one channel each.
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "compiler/op/conv_shape.h"
#include "compiler/op/depthwise_dots.h"
#include "compiler/op/op_rows.h"
#include "compiler/op/plain_product.h"
#include "compiler/op/winograd.h"
#include "compiler/op/winograd_form.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "conv2d";
constexpr std::string_view kData = "NCHW", kWeights = "OIHW";

// Applies the type rule. Says what it read on the way in `form`.
absl::StatusOr<TensorTypes> InferForm(std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities* equal, ConvForm* form) {
  const TensorType &x = inputs[0], &w = inputs[1];
  TW_ASSIGN(form->data, ImageLayoutOf(kOp, attrs));
  TW_ASSIGN(form->weights, LayoutAttr(kOp, attrs, "weight_layout", kWeights));
  const auto xs = form->data.SizesOf(x.shape, equal), ws = form->weights.SizesOf(w.shape, equal);
  if (!xs.has_value() || !ws.has_value()) {
    return OpError(kOp, "shape",
                   StrCat("expected an input ", form->data.ToText(), " and a weight ",
                          form->weights.ToText(), ", found ", ToText(x), " and ", ToText(w)));
  }
  TW_ASSIGN(const ir::DType sum, SumType(kOp, x, w));
  if (inputs.size() > 2 && inputs[2].dtype != sum) {
    return OpError(kOp, "type",
                   StrCat("expected a bias of ", ir::TypeName(sum), ", found ", ToText(inputs[2])));
  }
  TW_ASSIGN(form->pad_value, PadValueOf(kOp, attrs, x.dtype));
  form->groups = GetInt(attrs, "groups", 1);
  const Dim &channels = (*xs)[1], &out_channels = (*ws)[0], &group_in = (*ws)[1];
  if (!MayDivide(form->groups, out_channels) || !MayDivide(form->groups, channels) ||
      !MayEqual(channels, group_in * Dim(form->groups), equal)) {
    return OpError(kOp, "channels",
                   StrCat("expected channels that divide into ", form->groups,
                          " groups, found input ", ToText(x), " and weight ", ToText(w)));
  }
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf(kOp, attrs, (*ws)[2], (*ws)[3]));
  form->h = windows[0];
  form->w = windows[1];
  const Dim height = form->h.OutputSize((*xs)[2]), width = form->w.OutputSize((*xs)[3]);
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
  if (!form->in_blocks()) return TensorTypes{{sum, {(*xs)[0], out_channels, height, width}}};
  // Blocks of output channels lie as those of the weights.
  const Dim blocks = form->weights.Has('O') ? w.shape[form->weights.Dimension('O')] : Dim(1);
  return TensorTypes{{sum, {(*xs)[0], blocks, height, width, form->weights.Block('O')}}};
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  ConvForm form;
  return InferForm(inputs, attrs, equal, &form);
}

}  // namespace

absl::StatusOr<Layout> ImageLayoutOf(std::string_view op, const Attrs& attrs) {
  TW_ASSIGN(Layout layout, LayoutAttr(op, attrs, "data_layout", kData));
  const bool in_order = layout.ToText().starts_with(kData);
  if (in_order && layout.rank() == kData.size() + layout.Blocks('C').size() && layout.rank() < 6) {
    return layout;
  }
  return OpError(
      op, "attribute",
      StrCat("expected data_layout NCHW, or with one block of channels behind it, found ",
             layout.ToText()));
}

absl::StatusOr<ConvShape> ConvShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  ConvForm form;
  DimEqualities equal;
  TW_ASSIGN(const TensorTypes out, InferForm(inputs, attrs, &equal, &form));
  const std::vector<Dim>&x = inputs[0].shape, &y = out[0].shape;
  const std::vector<Dim> weight = *form.weights.SizesOf(inputs[1].shape, &equal);
  TW_ASSIGN(const int64_t in, Fixed(kOp, x[1] * Dim(form.data.Block('C'))));
  TW_ASSIGN(const int64_t out_channels, Fixed(kOp, weight[0]));
  return ConvShape{form, in, out_channels, in / form.groups, x[0], x[2], x[3], y[2], y[3]};
}

bool ConvShape::has_winograd_window() const {
  const auto fits = [](const Window& window) {
    return window.kernel == kWinogradTaps && window.stride == 1 && window.dilation == 1;
  };
  return fits(h) && fits(w);
}

namespace {

// The loops of a sum: over blocks of input channels, the window, and the places in a block.
struct Terms {
  std::vector<ir::Axis> axes;
  Place channel;  // within the group
  ir::Expr kh, kw;
};

Terms TermsOf(ir::FunctionBuilder& b, const ConvShape& c) {
  Terms terms;
  if (c.weights.Has('I')) {
    const ir::Axis ic = b.ReduceAxis("ic", ir::Int(c.group_in / c.weights.Block('I')));
    terms.axes.push_back(ic);
    terms.channel.push_back({ic.var});
  }
  for (const auto& [name, window, expr] :
       {std::tuple{"kh", &c.h, &terms.kh}, std::tuple{"kw", &c.w, &terms.kw}}) {
    terms.axes.push_back(b.ReduceAxis(name, ir::Int(window->kernel)));
    *expr = terms.axes.back().var;
  }
  if (c.weights.Block('I') == 1) return terms;
  for (const int64_t block : c.weights.Blocks('I')) {
    const std::string name = terms.channel.size() == 1 ? "ib" : StrCat("ib", terms.channel.size());
    terms.axes.push_back(b.ReduceAxis(name, ir::Int(block)));
    terms.channel.push_back({terms.axes.back().var, block});
  }
  return terms;
}

// The channel of the data that a term of an output channel reads.
Place ChannelOf(const ConvShape& c, const Place& output, const Place& term) {
  if (c.groups == 1 && !c.depthwise()) return term;
  if (c.depthwise()) return output;
  const int64_t block = c.out_block();
  if (c.in_blocks() && c.in_block() == block && c.group_in == block && c.group_out() == block)
    return {output[0], term.back()};  // each group is a block
  const ir::Expr oc = Join(output);
  const ir::Expr group = c.group_out() == 1 ? oc : ir::FloorDiv(oc, ir::Int(c.group_out()));
  return {{c.group_in == 1 ? group : group * ir::Int(c.group_in) + Join(term)}};
}

// Whether the windows leave out rows of an image that a matrix unit multiplies.
bool SkipsRows(const ConvShape& c, const ir::Buffer& x, const Padded& rows, const Padded& cols) {
  const bool squares =
      c.weights.ToText() == StrCat("OIHW", c.out_block(), "o", c.weights.Block('I'), "i");
  return squares && x->dtype == ir::kI8 && c.in_blocks() && c.h.kernel == 1 && c.h.stride > 1 &&
         rows.covers() && cols.covers();
}

// A stage that has the rows that windows of one row read. A unit with memories of its own loads
// these alone.
ir::Buffer TakeRows(ir::FunctionBuilder& b, const std::string& name, const ir::Buffer& x,
                    Window* window, const Dim& rows) {
  const int64_t stride = std::exchange(window->stride, 1);
  std::vector<ir::Expr> shape = x->shape;
  shape[2] = SizeExpr(b, rows);
  return b.Compute(name + "_rows", x->dtype, shape, {"n", "ic", "ih", "iw", "ib"},
                   [&](const std::vector<ir::Var>& i) {
                     std::vector<ir::Expr> index = VarExprs(i);
                     index[2] = index[2] * ir::Int(stride);
                     return ir::Load(x, std::move(index));
                   });
}

absl::StatusOr<std::vector<ir::Buffer>> BuildConv(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(ConvShape c, ConvShapeOf(types, attrs));
  const Padded rows = TakePadding(&c.h, c.height, c.out_height),
               cols = TakePadding(&c.w, c.width, c.out_width);
  const ir::Buffer &in = inputs[0], &w = inputs[1];
  const ir::Buffer x = SkipsRows(c, in, rows, cols)
                           ? TakeRows(b, name, in, &c.h, c.out_height)
                           : PadImage(b, name, in, rows, cols, c.pad_value);
  const Terms terms = TermsOf(b, c);
  const ir::DType dtype = outputs[0].dtype;
  const auto output_channel = [&](const std::vector<ir::Var>& i) {
    Place channel = {{i[1]}};
    if (c.in_blocks()) channel.push_back({i[4], c.out_block()});
    return channel;
  };
  const auto value = [&](const std::vector<ir::Var>& i) {
    const Place oc = output_channel(i), ic = ChannelOf(c, oc, terms.channel);
    const Place row = {{c.h.Position(i[2], terms.kh)}}, col = {{c.w.Position(i[3], terms.kw)}};
    const Place data[] = {{{i[0]}}, ic, row, col};
    const Place weight[] = {oc, terms.channel, {{terms.kh}}, {{terms.kw}}};
    return AsSum(dtype, ir::Load(x, c.data.Index(data))) *
           AsSum(dtype, ir::Load(w, c.weights.Index(weight)));
  };
  std::vector<std::string> axes = {"n", "oc", "oh", "ow"};
  if (c.in_blocks()) axes.push_back("ob");
  ir::Buffer sum =
      b.Reduce(inputs.size() > 2 ? name + "_sum" : name, dtype, ShapeExprs(b, outputs[0].shape),
               axes, terms.axes, ir::Combiner::kSum, value);
  if (inputs.size() == 2) return std::vector<ir::Buffer>{sum};
  ir::Buffer out = b.Compute(
      name, dtype, ShapeExprs(b, outputs[0].shape), axes, [&](const std::vector<ir::Var>& i) {
        return ir::Load(sum, VarExprs(i)) + ir::Load(inputs[2], {Join(output_channel(i))});
      });
  return std::vector<ir::Buffer>{out};
}

double ConvReduction(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<ConvShape> c = ConvShapeOf(inputs, attrs);
  return c.ok() ? static_cast<double>(c->group_in * c->h.kernel * c->w.kernel) : 1;
}

double ConvFlops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                 const Attrs& attrs) {
  const double per_output = 2.0 * ConvReduction(inputs, attrs);
  return static_cast<double>(outputs[0].elements()) * (per_output + (inputs.size() > 2 ? 1 : 0));
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

// Plain loops on channels in their order: weights OIHW, in which the taps of an output follow each
// other.
std::vector<double> PlainSums(const ConvShape& c, const ImageSizes& s,
                              const std::vector<double>& data, const std::vector<double>& weights) {
  const int64_t pixels = s.out_height * s.out_width;
  const std::vector<Tap> taps = TapsOf(c);
  std::vector<double> out(s.batch * c.out_channels * pixels, 0);
  for (int64_t group = 0; group < c.groups; ++group) {
    const double* rows = weights.data() + group * c.group_out() * std::ssize(taps);
    for (int64_t n = 0; n < s.batch; ++n) {
      const int64_t first = n * c.in_channels + group * c.group_in;
      const auto value = [&](int64_t tap, int64_t pixel) {
        const auto& [channel, row_offset, col_offset] = taps[tap];
        const int64_t row = pixel / s.out_width * c.h.stride + row_offset;
        const int64_t col = pixel % s.out_width * c.w.stride + col_offset;
        const bool inside = row >= 0 && row < s.height && col >= 0 && col < s.width;
        const int64_t at = ((first + channel) * s.height + row) * s.width + col;
        return inside ? data[at] : static_cast<double>(c.pad_value);
      };
      double* to = out.data() + (n * c.out_channels + group * c.group_out()) * pixels;
      AddProduct(rows, value, c.group_out(), pixels, std::ssize(taps), to);
    }
  }
  return out;
}

absl::StatusOr<std::vector<RefTensor>> PlainConv(std::span<const RefTensor> inputs,
                                                 std::span<const TensorType> outputs,
                                                 const Attrs& attrs) {
  const TensorTypes types = TypesOf(inputs);
  TW_ASSIGN(ConvShape c, ConvShapeOf(types, attrs));
  const ImageSizes s(types[0], outputs[0]);
  const Layout data(kData), weights(kWeights);
  RefTensor out{
      outputs[0],
      PlainSums(c, s,
                Repack(inputs[0].values, c.data, data, {s.batch, c.in_channels, s.height, s.width}),
                Repack(inputs[1].values, c.weights, weights,
                       {c.out_channels, c.group_in, c.h.kernel, c.w.kernel}))};
  const int64_t pixels = s.out_height * s.out_width;
  for (int64_t i = 0; inputs.size() > 2 && i < std::ssize(out.values); ++i) {
    out.values[i] += inputs[2].values[i / pixels % c.out_channels];
  }
  if (c.in_blocks()) {
    TW_ASSIGN(const Layout result, Layout::Parse(StrCat(kData, c.out_block(), "c"), kData));
    out.values =
        Repack(out.values, data, result, {s.batch, c.out_channels, s.out_height, s.out_width});
  }
  return std::vector<RefTensor>{std::move(out)};
}

bool DotsApply(std::span<const TensorType> inputs, const Attrs& attrs) {
  const absl::StatusOr<ConvShape> c = ConvShapeOf(inputs, attrs);
  return c.ok() && inputs.size() == 2 && inputs[0].fixed() && c->in_blocks() && c->depthwise() &&
         c->weights == Layout::Parse(StrCat("OHW", c->in_block(), "o"), kWeights).value() &&
         inputs[1].dtype == ir::kI8 && DepthwiseDotsApply(inputs[0].dtype, c->w);
}

absl::StatusOr<std::vector<ir::Buffer>> BuildDots(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  if (!DotsApply(types, attrs)) {
    return OpError(kOp, "dots",
                   "expected a depthwise kernel of 2..4 columns without dilation on blocks of u8, "
                   "found " +
                       ToText(types[0]) + " and " + ToText(types[1]));
  }
  TW_ASSIGN(const ConvShape c, ConvShapeOf(types, attrs));
  return ComputeDepthwiseDots(b, name, inputs[0], inputs[1], c.h, c.w, c.pad_value, outputs[0]);
}

}  // namespace

std::vector<OpSpec> ConvRows() {
  OpSpec conv;
  conv.name = kOp;
  conv.takes_empty = true;
  conv.onnx = {"Conv"};
  conv.fusion = FusionClass::kComplexOutFusable;
  conv.min_inputs = 2;
  conv.max_inputs = 3;
  conv.data_layout = kData;
  conv.weight_layout = kWeights;
  conv.infer = Infer;
  conv.compute = BuildConv;
  conv.flops = ConvFlops;
  conv.reduction_length = ConvReduction;
  conv.reference = PlainConv;
  conv.variants = {{"winograd", WinogradApplies, ComputeWinograd, /*tolerance_factor=*/16},
                   {"winograd_2", WinogradF2Applies, ComputeWinogradF2, /*tolerance_factor=*/4},
                   {"winograd_5", WinogradF5Applies, ComputeWinogradF5, /*tolerance_factor=*/32},
                   {"dots", DotsApply, BuildDots}};
  return {conv};
}

}  // namespace tilewright::op
