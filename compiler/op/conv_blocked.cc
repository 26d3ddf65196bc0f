// Convolutions on activations in channel blocks, [n, c/b, h, w, b]: lanes along the block need
// neither gathered loads nor transposed stores. Weights are packed to match: [o/b, i/a, kh, kw, a
// in, b out], or [c/b, kh, kw, b] where every channel is convolved alone (depthwise). Images of a
// few channels stay as they are, a = 1: [n, c, h, w] is [n, c/1, h, w, 1]. The graph pass
// block_layouts makes them from conv2d.
//
// Quantised: activations u8 or i8, weights i8, sums i32. Dense weights keep four input channels
// side by side, [o/b, i/a, kh, kw, a/4, b out, 4 in], which is what dot products of four bytes read
// (x86 vpdpbusd; the tensor intrinsics generic.dot4). They are padded with the attribute pad_value.
// A matrix unit reads weights in squares instead, [o/b, i/a, kh, kw, b out, a in].
#include <utility>

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

constexpr std::string_view kOp = "conv2d_blocked";

// What the attributes, the element types and the weight's rank say.
struct Form {
  int64_t pad_value;
  bool depthwise, quantised, dots, squares;  // dots, squares: of dense weights in bytes
  Window h, w;
};
struct Shape : Form {
  int64_t in_blocks, in_block, out_block;
  Dim batch, height, width, out_height, out_width;
};

bool IsQuantised(ir::DType x, ir::DType w) {
  return (x == ir::kU8 || x == ir::kI8) && w == ir::kI8;
}

// Applies the type rule. Says what it read on the way in `form`.
absl::StatusOr<TensorTypes> InferForm(std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities* equal, Form* form) {
  const TensorType &x = inputs[0], &w = inputs[1];
  auto refuse = [&] {
    return OpError(
        kOp, "shape",
        StrCat("expected float input [n,i,h,w,b] and weight [o,i,kh,kw,b,c] or [i,kh,kw,b], or "
               "bytes and weight [o,i,kh,kw,b/4,c,4], [o,i,kh,kw,c,b] or [i,kh,kw,b], found ",
               ToText(x), " and ", ToText(w)));
  };
  form->quantised = IsQuantised(x.dtype, w.dtype);
  form->depthwise = w.shape.size() == 4;
  form->squares = form->quantised && w.shape.size() == 6;
  form->dots = form->quantised && !form->depthwise && !form->squares;
  const bool floats = x.dtype == w.dtype && x.dtype.is_float(), dots = form->dots;
  const size_t rank = form->depthwise ? 4 : dots ? 7 : 6;
  if (x.shape.size() != 5 || (!form->quantised && !floats) || w.shape.size() != rank)
    return refuse();
  // Input blocks, rows, columns, channels of an input block.
  const std::span<const Dim> taps = std::span(w.shape).subspan(form->depthwise ? 0 : 1);
  if (!MayEqual(taps[0], x.shape[1], equal) ||
      !MayEqual(form->squares ? w.shape[5] : taps[3] * Dim(dots ? kDot : 1), x.shape[4], equal) ||
      (dots && !MayEqual(w.shape[6], kDot, equal))) {
    return refuse();
  }
  TW_ASSIGN(form->pad_value, PadValueOf(kOp, attrs, x.dtype));
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf(kOp, attrs, taps[1], taps[2]));
  form->h = windows[0];
  form->w = windows[1];
  const Dim height = form->h.OutputSize(x.shape[2]), width = form->w.OutputSize(x.shape[3]);
  if (SurelyBelow(height, 1) || SurelyBelow(width, 1)) {
    return OpError(kOp, "kernel",
                   StrCat("expected a kernel that fits the padded input, found input ", ToText(x),
                          " and weight ", ToText(w)));
  }
  const Dim& out_block = w.shape[dots ? 5 : form->squares ? 4 : w.shape.size() - 1];
  return TensorTypes{
      {form->quantised ? ir::kI32 : x.dtype, {x.shape[0], w.shape[0], height, width, out_block}}};
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  Form form;
  return InferForm(inputs, attrs, equal, &form);
}

absl::StatusOr<Shape> ShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  Form form;
  DimEqualities equal;
  TW_ASSIGN(const TensorTypes out, InferForm(inputs, attrs, &equal, &form));
  const std::vector<Dim>&x = inputs[0].shape, &y = out[0].shape;
  TW_ASSIGN(const int64_t in_blocks, Fixed(kOp, x[1]));
  TW_ASSIGN(const int64_t in_block, Fixed(kOp, x[4]));
  TW_ASSIGN(const int64_t out_block, Fixed(kOp, y[4]));
  return Shape{form, in_blocks, in_block, out_block, x[0], x[2], x[3], y[2], y[3]};
}

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(Shape c, ShapeOf(types, attrs));
  std::vector<ir::Axis> taps;
  if (!c.depthwise) taps.push_back(b.ReduceAxis("ic", ir::Int(c.in_blocks)));
  const ir::Axis kh = b.ReduceAxis("kh", ir::Int(c.h.kernel));
  const ir::Axis kw = b.ReduceAxis("kw", ir::Int(c.w.kernel));
  taps.push_back(kh);
  taps.push_back(kw);
  const bool inner = !c.depthwise && c.in_block > 1, dots = c.dots;
  if (inner) taps.push_back(b.ReduceAxis("ib", ir::Int(dots ? c.in_block / kDot : c.in_block)));
  if (dots) taps.push_back(b.ReduceAxis("il", ir::Int(kDot)));
  const Padded rows = TakePadding(&c.h, c.height, c.out_height),
               cols = TakePadding(&c.w, c.width, c.out_width);
  const ir::Buffer x = PadImage(b, name, inputs[0], rows, cols, c.pad_value);
  // i: batch, block, row, column, channel within the block
  auto value = [&](const std::vector<ir::Var>& i) {
    const ir::Expr row = c.h.Position(i[2], kh.var), col = c.w.Position(i[3], kw.var);
    const ir::Expr in_block = c.depthwise ? i[1] : taps.front().var;
    std::vector<ir::Expr> from = {i[0], in_block, row, col, ir::Int(0)};
    std::vector<ir::Expr> with = {i[1], in_block, kh.var, kw.var};
    if (c.depthwise) {
      from[4] = i[4];
      with = {i[1], kh.var, kw.var, i[4]};
    } else if (dots) {
      const ir::Var &group = taps[taps.size() - 2].var, &lane = taps.back().var;
      from[4] = group * ir::Int(kDot) + lane;
      with.insert(with.end(), {group, i[4], lane});
    } else {
      if (inner) from[4] = taps.back().var;
      with.insert(with.end(), {from[4], i[4]});
      if (c.squares) std::swap(with[4], with[5]);
    }
    const ir::DType sum = outputs[0].dtype;
    return AsSum(sum, ir::Load(x, from)) * AsSum(sum, ir::Load(inputs[1], with));
  };
  return std::vector<ir::Buffer>{b.Reduce(name, outputs[0].dtype, ShapeExprs(b, outputs[0].shape),
                                          {"n", "oc", "oh", "ow", "ob"}, taps, ir::Combiner::kSum,
                                          value)};
}

bool WinogradAppliesBlocked(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<Shape> c = ShapeOf(inputs, attrs);
  auto fits = [](const Window& w) {
    return w.kernel == kWinogradTaps && w.stride == 1 && w.dilation == 1;
  };
  return c.ok() && inputs[0].fixed() && !c->depthwise && c->in_block == c->out_block &&
         inputs[0].dtype == ir::kF32 && fits(c->h) && fits(c->w);
}

// Five outputs a tile where three tiles do what four of F(4×4) would (14 = 5+5+4). Less accurate,
// by the root of the channels that are added up, so not where it saves little, nor for many
// channels: ‖a−e‖/‖e‖ is 4.6e-6 for 256 of them (F(4×4) 2.6e-6, direct 6e-7).
bool WinogradF5AppliesBlocked(std::span<const TensorType> inputs, const Attrs& attrs) {
  if (!WinogradAppliesBlocked(inputs, attrs)) return false;
  constexpr double kWorthwhile = 0.85;
  constexpr int64_t kMostChannels = 256;
  const absl::StatusOr<Shape> c = ShapeOf(inputs, attrs);
  if (c->in_blocks * c->in_block > kMostChannels) return false;
  const auto products = [&](const WinogradForm& form) {
    return static_cast<double>(form.Products(c->out_height.value(), c->out_width.value()));
  };
  return products(WinogradF5()) < kWorthwhile * products(WinogradF4());
}

template <const WinogradForm& (*kForm)()>
absl::StatusOr<std::vector<ir::Buffer>> BuildWinograd(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  if (!WinogradAppliesBlocked(types, attrs)) {
    return OpError(kOp, "winograd",
                   "expected f32, a 3x3 kernel, stride and dilation 1, not depthwise, found " +
                       ToText(types[0]) + " and " + ToText(types[1]));
  }
  TW_ASSIGN(const Shape c, ShapeOf(types, attrs));
  return ComputeWinogradBlocked(b, name, kForm(), inputs[0], inputs[1],
                                {c.h.pad_begin, c.w.pad_begin}, outputs[0]);
}

bool DotsApplyBlocked(std::span<const TensorType> inputs, const Attrs& attrs) {
  const absl::StatusOr<Shape> c = ShapeOf(inputs, attrs);
  return c.ok() && inputs[0].fixed() && c->quantised && c->depthwise &&
         DepthwiseDotsApply(inputs[0].dtype, c->w);
}

absl::StatusOr<std::vector<ir::Buffer>> BuildDots(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  if (!DotsApplyBlocked(types, attrs)) {
    return OpError(kOp, "dots",
                   "expected a depthwise kernel of 2..4 columns without dilation on u8, found " +
                       ToText(types[0]) + " and " + ToText(types[1]));
  }
  TW_ASSIGN(const Shape c, ShapeOf(types, attrs));
  return ComputeDepthwiseDots(b, name, inputs[0], inputs[1], c.h, c.w, c.pad_value, outputs[0]);
}

double TapsPerOutput(std::span<const TensorType> inputs) {
  const TensorType& w = inputs[1];
  const bool bytes = IsQuantised(inputs[0].dtype, w.dtype), squares = w.shape.size() == 6;
  const bool dots = w.shape.size() == 7;
  const double lanes = static_cast<double>(w.size(dots ? 5 : bytes && squares ? 4 : -1));
  const double per_channel = static_cast<double>(w.elements()) / static_cast<double>(w.size(0));
  return per_channel / lanes;
}

double Flops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
             const Attrs&) {
  return 2.0 * static_cast<double>(outputs[0].elements()) * TapsPerOutput(inputs);
}

// The reference on blocks of channels.
class PlainConv {
 public:
  PlainConv(const Shape& c, std::span<const RefTensor> inputs, const TensorType& output)
      : c_(c),
        s_(inputs[0].type, output),
        x_(inputs[0]),
        w_(inputs[1]),
        from_(RowMajorStrides(inputs[0].type.sizes())),
        to_(RowMajorStrides(output.sizes())),
        out_{output, std::vector<double>(output.elements(), 0)} {}

  RefTensor Run() && {
    if (c_.depthwise) {
      EachChannelAlone();
    } else {
      Dense();
    }
    return std::move(out_);
  }

 private:
  // The input that tap (kh, kw) of an output's window reads.
  double Input(int64_t n, int64_t block, int64_t within, int64_t kh, int64_t kw,
               int64_t pixel) const {
    const int64_t row = pixel / s_.out_width * c_.h.stride + kh * c_.h.dilation - c_.h.pad_begin;
    const int64_t col = pixel % s_.out_width * c_.w.stride + kw * c_.w.dilation - c_.w.pad_begin;
    const bool inside = row >= 0 && row < s_.height && col >= 0 && col < s_.width;
    const int64_t at = n * from_[0] + block * from_[1] + row * from_[2] + col * from_[3] + within;
    return inside ? x_.values[at] : static_cast<double>(c_.pad_value);
  }
  int64_t pixels() const { return s_.out_height * s_.out_width; }

  // Weights [i, kh, kw, lane].
  void EachChannelAlone() {
    const std::vector<int64_t> taps = w_.type.sizes();
    std::vector<int64_t> k(taps.size(), 0);
    size_t at = 0;
    do {
      const double weight = w_.values[at++];
      for (int64_t n = 0; n < s_.batch; ++n) {
        double* to = out_.values.data() + n * to_[0] + k[0] * to_[1] + k[3];
        for (int64_t p = 0; p < pixels(); ++p) {
          to[p * to_[3]] += weight * Input(n, k[0], k[3], k[1], k[2], p);
        }
      }
    } while (NextIndex(taps, &k));
  }

  // A row for each output channel, of input blocks, kh, kw and channels within the block.
  std::vector<double> WeightRows(int64_t depth) const {
    // o, i, kh, kw, then [in, out], [out, in] or [in / 4, out, in % 4]
    const std::vector<int64_t> taps = w_.type.sizes();
    std::vector<double> rows(w_.values.size());
    std::vector<int64_t> k(taps.size(), 0);
    size_t at = 0;
    do {
      const int64_t within = c_.dots ? k[4] * kDot + k[6] : k[c_.squares ? 5 : 4];
      const int64_t lane = k[c_.squares ? 4 : 5];
      const int64_t x = ((k[1] * c_.h.kernel + k[2]) * c_.w.kernel + k[3]) * c_.in_block + within;
      rows[(k[0] * c_.out_block + lane) * depth + x] = w_.values[at++];
    } while (NextIndex(taps, &k));
    return rows;
  }

  void Dense() {
    const int64_t depth = c_.in_blocks * c_.h.kernel * c_.w.kernel * c_.in_block;
    const int64_t channels = out_.type.size(1) * c_.out_block;
    const std::vector<double> weights = WeightRows(depth);
    for (int64_t n = 0; n < s_.batch; ++n) {
      const auto input = [&](int64_t x, int64_t pixel) {
        const int64_t tap = x / c_.in_block;
        return Input(n, tap / (c_.h.kernel * c_.w.kernel), x % c_.in_block,
                     tap / c_.w.kernel % c_.h.kernel, tap % c_.w.kernel, pixel);
      };
      std::vector<double> sums(channels * pixels(), 0);
      AddProduct(weights.data(), input, channels, pixels(), depth, sums.data());
      for (int64_t i = 0; i < std::ssize(sums); ++i) {
        const int64_t channel = i / pixels(), pixel = i % pixels();
        out_.values[n * to_[0] + channel / c_.out_block * to_[1] + pixel * to_[3] +
                    channel % c_.out_block] = sums[i];
      }
    }
  }

  const Shape& c_;
  const ImageSizes s_;
  const RefTensor &x_, &w_;
  const std::vector<int64_t> from_, to_;
  RefTensor out_;
};

absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType> outputs,
                                             const Attrs& attrs) {
  std::vector<TensorType> types;
  for (const RefTensor& input : inputs) types.push_back(input.type);
  TW_ASSIGN(const Shape c, ShapeOf(types, attrs));
  return std::vector<RefTensor>{PlainConv(c, inputs, outputs[0]).Run()};
}

}  // namespace

std::vector<OpSpec> ConvBlockedRows() {
  OpSpec conv;
  conv.name = kOp;
  conv.fusion = FusionClass::kComplexOutFusable;
  conv.min_inputs = conv.max_inputs = 2;
  conv.infer = Infer;
  conv.compute = Build;
  conv.flops = Flops;
  conv.reduction_length = [](std::span<const TensorType> inputs, const Attrs&) {
    return TapsPerOutput(inputs);
  };
  conv.reference = Plain;
  conv.variants = {
      {"winograd", WinogradAppliesBlocked, BuildWinograd<WinogradF4>, /*tolerance_factor=*/16},
      {"winograd_2", WinogradAppliesBlocked, BuildWinograd<WinogradF2>, /*tolerance_factor=*/4},
      {"winograd_5", WinogradF5AppliesBlocked, BuildWinograd<WinogradF5>, /*tolerance_factor=*/32},
      {"dots", DotsApplyBlocked, BuildDots}};
  return {conv};
}

}  // namespace tilewright::op
