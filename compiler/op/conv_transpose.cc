// Transposed convolution. With stride s, output element o meets every s-th tap only; which ones is
// its phase (o + pad) mod s. So the sum is a plain convolution for each phase, over a padded input,
// and the result interleaves the phases. (Dilated with a stride, a gather of all taps.) Weights
// have any layout of IOHW = [in, out / groups, kh, kw]: OHWI16o makes each tap of a block of output
// channels one stream (a phase reads some of the taps only). Data lie as NCHW, or in blocks of
// channels (NCHW16c): the result then has the weights' blocks of output channels, along which lanes
// run, so that interleaving moves whole vectors.
#include <algorithm>

#include "compiler/op/conv_shape.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "conv2d_transpose", kData = "NCHW", kWeights = "IOHW";

struct Shape : ConvForm {
  int64_t in_channels, out_channels;
  Dim batch, height, width, out_height, out_width;
  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t out_block() const { return in_blocks() ? weights.Block('O') : 1; }
};

// Applies the type rule. Says what it read on the way in `form`.
absl::StatusOr<TensorTypes> InferForm(std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities* equal, ConvForm* form) {
  const TensorType &x = inputs[0], &w = inputs[1];
  TW_ASSIGN(form->data, ImageLayoutOf(kOp, attrs));
  TW_ASSIGN(form->weights, LayoutAttr(kOp, attrs, "weight_layout", kWeights));
  const auto image = form->data.SizesOf(x.shape, equal),
             sizes = form->weights.SizesOf(w.shape, equal);
  if (!image.has_value() || !sizes.has_value()) {
    return OpError(kOp, "shape",
                   StrCat("expected an input ", form->data.ToText(), " and a weight ",
                          form->weights.ToText(), ", found ", ToText(x), " and ", ToText(w)));
  }
  const std::vector<Dim>&xs = *image, &ws = *sizes;
  for (const TensorType& in : inputs) {
    if (in.dtype != x.dtype) {
      return OpError(
          kOp, "type",
          StrCat("expected operands of one type, found ", ToText(x), " and ", ToText(in)));
    }
  }
  form->groups = GetInt(attrs, "groups", 1);
  if (!MayDivide(form->groups, xs[1]) || !MayEqual(ws[0], xs[1], equal)) {
    return OpError(kOp, "channels",
                   StrCat("expected channels that divide into ", form->groups,
                          " groups, found input ", ToText(x), " and weight ", ToText(w)));
  }
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf(kOp, attrs, ws[2], ws[3]));
  TW_ASSIGN(auto extra, IntsInRange(kOp, attrs, "output_padding", {0, 0}, 2, 0, kMaxWindowAttr));
  form->h = windows[0];
  form->w = windows[1];
  auto size = [](const Dim& input, const Window& v, int64_t more) {
    return (input - Dim(1)) * Dim(v.stride) +
           Dim((v.kernel - 1) * v.dilation + 1 + more - v.pad_begin - v.pad_end);
  };
  const Dim height = size(xs[2], form->h, extra[0]), width = size(xs[3], form->w, extra[1]);
  if (SurelyBelow(height, 1) || SurelyBelow(width, 1)) {
    return OpError(kOp, "pads", "expected pads smaller than the result, found larger ones");
  }
  const Dim out_channels = ws[1] * Dim(form->groups);
  if (inputs.size() > 2 && !MayEqual(inputs[2].shape, {out_channels}, equal)) {
    return OpError(
        kOp, "bias",
        StrCat("expected a bias of ", DimsText({out_channels}), ", found ", ToText(inputs[2])));
  }
  if (!form->in_blocks()) return TensorTypes{{x.dtype, {xs[0], out_channels, height, width}}};
  if (form->groups > 1)
    return OpError(kOp, "attribute", "expected one group of channels in blocks");
  // Blocks of output channels lie as those of the weights.
  const Dim blocks = w.shape[form->weights.Dimension('O')];
  return TensorTypes{{x.dtype, {xs[0], blocks, height, width, form->weights.Block('O')}}};
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  ConvForm form;
  return InferForm(inputs, attrs, equal, &form);
}

absl::StatusOr<Shape> ShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  ConvForm form;
  DimEqualities equal;
  TW_ASSIGN(const TensorTypes out, InferForm(inputs, attrs, &equal, &form));
  const std::vector<Dim>&x = inputs[0].shape, &y = out[0].shape;
  TW_ASSIGN(const int64_t in_channels, Fixed(kOp, x[1] * Dim(form.data.Block('C'))));
  TW_ASSIGN(const int64_t out_blocks, Fixed(kOp, y[1]));
  const int64_t out_channels = out_blocks * (form.in_blocks() ? form.weights.Block('O') : 1);
  return Shape{form, in_channels, out_channels, x[0], x[2], x[3], y[2], y[3]};
}

// The input position that tap `tap` of output position `out` reads, and when it does.
ir::Expr Source(const Window& w, const ir::Expr& out, const ir::Expr& tap, const ir::Expr& input,
                std::vector<ir::Expr>* conditions) {
  ir::Expr at = out;
  if (w.pad_begin > 0) at = at + ir::Int(w.pad_begin);
  if (w.kernel > 1) at = at - (w.dilation == 1 ? tap : tap * ir::Int(w.dilation));
  if (w.stride > 1) {
    conditions->push_back(ir::Eq(ir::FloorMod(at, ir::Int(w.stride)), ir::Int(0)));
    at = ir::FloorDiv(at, ir::Int(w.stride));
  }
  conditions->push_back(at >= ir::Int(0));
  conditions->push_back(at < input);
  return at;
}

// The loops of a sum over input channels: their blocks first, then (behind the window's loops) the
// places in a block.
struct InputChannels {
  ir::Axis blocks;
  std::vector<ir::Axis> within;

  Place place() const {
    Place channel = {{blocks.var}};
    for (const ir::Axis& axis : within) channel.push_back({axis.var, *ir::AsInt(axis.extent)});
    return channel;
  }
  std::vector<ir::Axis> Around(const ir::Axis& rows, const ir::Axis& columns) const {
    std::vector<ir::Axis> axes = {blocks, rows, columns};
    axes.insert(axes.end(), within.begin(), within.end());
    return axes;
  }
};
InputChannels InputsOf(ir::FunctionBuilder& b, const Shape& c) {
  // Blocks of weights are an order in memory; loops follow them where the data lie so, too.
  const int64_t block = c.in_blocks() ? c.weights.Block('I') : 1;
  InputChannels inputs{b.ReduceAxis("ic", ir::Int(c.group_in() / block)), {}};
  if (block > 1) inputs.within.push_back(b.ReduceAxis("ib", ir::Int(block)));
  return inputs;
}

// The channels that an output channel reads, and its place among its group's.
struct Channels {
  Place in, within;
};
Channels ChannelsOf(const Shape& c, const Place& out, const InputChannels& inputs) {
  if (c.groups == 1) return {inputs.place(), out};
  const ir::Expr oc = Join(out), group = ir::FloorDiv(oc, ir::Int(c.group_out()));
  return {{{group * ir::Int(c.group_in()) + Join(inputs.place())}},
          {{ir::FloorMod(oc, ir::Int(c.group_out()))}}};
}

ir::Expr Weight(const Shape& c, const ir::Buffer& w, const Channels& at, const ir::Expr& kh,
                const ir::Expr& kw) {
  const Place places[] = {at.in, at.within, {{kh}}, {{kw}}};
  return ir::Load(w, c.weights.Index(places));
}

ir::Expr Pixel(const Shape& c, const ir::Buffer& x, const ir::Expr& n, const Channels& at,
               const ir::Expr& row, const ir::Expr& col) {
  const Place places[] = {{{n}}, at.in, {{row}}, {{col}}};
  return ir::Load(x, c.data.Index(places));
}

// The output channel of `oc` and, in blocks, of the last variable.
Place OutputChannel(const Shape& c, const std::vector<ir::Var>& i) {
  Place channel = {{i[1]}};
  if (c.in_blocks()) channel.push_back({i.back(), c.out_block()});
  return channel;
}
std::vector<std::string> InBlocks(const Shape& c, std::vector<std::string> axes) {
  if (c.in_blocks()) axes.push_back("ob");
  return axes;
}

// All taps of every output element, those that meet no input element guarded away.
ir::Buffer GatherSum(ir::FunctionBuilder& b, const std::string& name, const Shape& c,
                     const ir::Buffer& x, const ir::Buffer& w, const TensorType& out) {
  const InputChannels ic = InputsOf(b, c);
  const ir::Axis kh = b.ReduceAxis("kh", ir::Int(c.h.kernel));
  const ir::Axis kw = b.ReduceAxis("kw", ir::Int(c.w.kernel));
  auto value = [&](const std::vector<ir::Var>& i) {
    const Channels channels = ChannelsOf(c, OutputChannel(c, i), ic);
    std::vector<ir::Expr> inside;
    ir::Expr row = Source(c.h, i[2], kh.var, SizeExpr(b, c.height), &inside);
    ir::Expr col = Source(c.w, i[3], kw.var, SizeExpr(b, c.width), &inside);
    return Guarded(inside, Pixel(c, x, i[0], channels, row, col), ir::Zero(out.dtype)) *
           Weight(c, w, channels, kh.var, kw.var);
  };
  return b.Reduce(name, out.dtype, ShapeExprs(b, out.shape), InBlocks(c, {"n", "oc", "oh", "ow"}),
                  ic.Around(kh, kw), ir::Combiner::kSum, value);
}

// One dimension cut into phases: output element o = block * stride + remainder. With skip = pad %
// stride, (remainder + skip) is shift * stride + phase: the phase says which taps meet it, number t
// being tap phase + stride * t, and that one meets input element first + block + shift -
// t * dilation (dilation is 1 where the stride is not).
struct Phases {
  Phases(const Window& window, const Dim& output)
      : w(window),
        first(w.pad_begin / w.stride),
        skip(w.pad_begin % w.stride),
        blocks((output + Dim(w.stride - 1)).FloorDiv(w.stride)),
        taps((w.kernel + w.stride - 1) / w.stride),
        reach((taps - 1) * w.dilation) {}

  ir::Expr Block(const ir::Expr& o) const {
    return w.stride == 1 ? o : ir::FloorDiv(o, ir::Int(w.stride));
  }
  ir::Expr Remainder(const ir::Expr& o) const {
    return w.stride == 1 ? ir::Int(0) : ir::FloorMod(o, ir::Int(w.stride));
  }
  ir::Expr Tap(const ir::Expr& remainder, const ir::Expr& t) const {
    if (w.stride == 1) return t;
    const ir::Expr tap = t * ir::Int(w.stride);
    if (skip == 0) return remainder + tap;
    return ir::FloorMod(remainder + ir::Int(skip), ir::Int(w.stride)) + tap;
  }
  // Where phases have unequal numbers of taps.
  void Guards(const ir::Expr& tap, std::vector<ir::Expr>* conditions) const {
    if (w.kernel % w.stride != 0) conditions->push_back(tap < ir::Int(w.kernel));
  }
  // Row of the padded input, which begins at input element first - reach.
  ir::Expr Row(const ir::Expr& block, const ir::Expr& remainder, const ir::Expr& t) const {
    ir::Expr row = block + ir::Int(reach) - (w.dilation == 1 ? t : t * ir::Int(w.dilation));
    if (skip == 0) return row;
    return row + ir::FloorDiv(remainder + ir::Int(skip), ir::Int(w.stride));
  }
  Padded Input(const Dim& input) const {
    return PadTo(reach - first, blocks + Dim(reach + (skip > 0 ? 1 : 0)), input);
  }

  Window w;
  int64_t first, skip;
  Dim blocks;
  int64_t taps, reach;
};

ir::Buffer PhaseSum(ir::FunctionBuilder& b, const std::string& name, const Shape& c,
                    const ir::Buffer& x, const ir::Buffer& w, const TensorType& out) {
  const Phases ph(c.h, c.out_height), pw(c.w, c.out_width);
  const ir::Buffer padded = PadImage(b, name, x, ph.Input(c.height), pw.Input(c.width));
  const InputChannels ic = InputsOf(b, c);
  const ir::Axis th = b.ReduceAxis("th", ir::Int(ph.taps));
  const ir::Axis tw = b.ReduceAxis("tw", ir::Int(pw.taps));
  std::vector<Dim> shape = {c.batch, out.shape[1], ph.blocks, c.h.stride, pw.blocks, c.w.stride};
  if (c.in_blocks()) shape.push_back(c.out_block());
  const ir::Buffer phases =
      b.Reduce(name + "_phases", out.dtype, ShapeExprs(b, shape),
               InBlocks(c, {"n", "oc", "bh", "rh", "bw", "rw"}), ic.Around(th, tw),
               ir::Combiner::kSum, [&](const std::vector<ir::Var>& i) {
                 const Channels channels = ChannelsOf(c, OutputChannel(c, i), ic);
                 const ir::Expr kh = ph.Tap(i[3], th.var), kw = pw.Tap(i[5], tw.var);
                 std::vector<ir::Expr> exists;
                 ph.Guards(kh, &exists);
                 pw.Guards(kw, &exists);
                 return Pixel(c, padded, i[0], channels, ph.Row(i[2], i[3], th.var),
                              pw.Row(i[4], i[5], tw.var)) *
                        Guarded(exists, Weight(c, w, channels, kh, kw), ir::Zero(out.dtype));
               });
  return b.Compute(name, out.dtype, ShapeExprs(b, out.shape), InBlocks(c, {"n", "oc", "oh", "ow"}),
                   [&](const std::vector<ir::Var>& i) {
                     std::vector<ir::Expr> at = {i[0],           i[1],
                                                 ph.Block(i[2]), ph.Remainder(i[2]),
                                                 pw.Block(i[3]), pw.Remainder(i[3])};
                     if (c.in_blocks()) at.push_back(i[4]);
                     return ir::Load(phases, std::move(at));
                   });
}

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(Shape c, ShapeOf(types, attrs));
  const bool gather = (c.h.stride > 1 && c.h.dilation > 1) || (c.w.stride > 1 && c.w.dilation > 1);
  const std::string sum_name = inputs.size() > 2 ? name + "_sum" : name;
  const ir::Buffer sum =
      (gather ? GatherSum : PhaseSum)(b, sum_name, c, inputs[0], inputs[1], outputs[0]);
  if (inputs.size() == 2) return std::vector<ir::Buffer>{sum};
  return std::vector<ir::Buffer>{b.Compute(
      name, outputs[0].dtype, ShapeExprs(b, outputs[0].shape), InBlocks(c, {"n", "oc", "oh", "ow"}),
      [&](const std::vector<ir::Var>& i) {
        return ir::Load(sum, VarExprs(i)) + ir::Load(inputs[2], {Join(OutputChannel(c, i))});
      })};
}

double Flops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
             const Attrs& attrs) {
  // Every input element meets every tap of its weights once.
  const absl::StatusOr<Shape> c = ShapeOf(inputs, attrs);
  if (!c.ok()) return 0;
  const double taps =
      static_cast<double>(inputs[1].elements()) / static_cast<double>(c->in_channels);
  return 2.0 * static_cast<double>(inputs[0].elements()) * taps +
         (inputs.size() > 2 ? static_cast<double>(outputs[0].elements()) : 0);
}

double Length(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<Shape> c = ShapeOf(inputs, attrs);
  return c.ok() ? static_cast<double>(c->group_in() * c->h.kernel * c->w.kernel) : 1;
}

// Scatters, unlike the kernel: each input element is added to every output it reaches.
absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType> outputs,
                                             const Attrs& attrs) {
  const TensorTypes types = TypesOf(inputs);
  TW_ASSIGN(Shape c, ShapeOf(types, attrs));
  const ImageSizes s(types[0], outputs[0]);
  const std::vector<double> data =
      Repack(inputs[0].values, c.data, Layout(kData), {s.batch, c.in_channels, s.height, s.width});
  const std::vector<double> weights =
      Repack(inputs[1].values, c.weights, Layout(kWeights),
             {c.in_channels, c.group_out(), c.h.kernel, c.w.kernel});
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  const int64_t plane = s.out_height * s.out_width;
  for (int64_t oc = 0; inputs.size() > 2 && oc < s.batch * c.out_channels; ++oc) {
    std::fill_n(out.values.begin() + oc * plane, plane, inputs[2].values[oc % c.out_channels]);
  }
  int64_t at = 0;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t ic = 0; ic < c.in_channels; ++ic) {
      for (int64_t ih = 0; ih < s.height; ++ih) {
        for (int64_t iw = 0; iw < s.width; ++iw, ++at) {
          for (int64_t g = 0; g < c.group_out(); ++g) {
            const int64_t oc = ic / c.group_in() * c.group_out() + g;
            for (int64_t kh = 0; kh < c.h.kernel; ++kh) {
              const int64_t oh = ih * c.h.stride + kh * c.h.dilation - c.h.pad_begin;
              if (oh < 0 || oh >= s.out_height) continue;
              for (int64_t kw = 0; kw < c.w.kernel; ++kw) {
                const int64_t ow = iw * c.w.stride + kw * c.w.dilation - c.w.pad_begin;
                if (ow < 0 || ow >= s.out_width) continue;
                const int64_t tap = ((ic * c.group_out() + g) * c.h.kernel + kh) * c.w.kernel + kw;
                out.values[(n * c.out_channels + oc) * plane + oh * s.out_width + ow] +=
                    data[at] * weights[tap];
              }
            }
          }
        }
      }
    }
  }
  if (c.in_blocks()) {
    TW_ASSIGN(const Layout result, Layout::Parse(StrCat(kData, c.out_block(), "c"), kData));
    out.values = Repack(out.values, Layout(kData), result,
                        {s.batch, c.out_channels, s.out_height, s.out_width});
  }
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

std::vector<OpSpec> ConvTransposeRows() {
  OpSpec row;
  row.name = kOp;
  row.onnx = {"ConvTranspose"};
  row.fusion = FusionClass::kComplexOutFusable;
  row.min_inputs = 2;
  row.max_inputs = 3;
  row.types = kFloats;
  row.data_layout = kData;
  row.weight_layout = kWeights;
  row.infer = Infer;
  row.compute = Build;
  row.flops = Flops;
  row.reduction_length = Length;
  row.reference = Plain;
  return {row};
}

}  // namespace tilewright::op
