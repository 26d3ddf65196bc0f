// Transposed convolution, written as a gather: every output element sums the taps whose stride
// meets an input element. Weights are [in, out / groups, kh, kw] as in ONNX.
#include <algorithm>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "conv2d_transpose";

struct Shape {
  int64_t batch, in_channels, height, width, out_channels, groups, out_height, out_width;
  Window h, w;
  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
};

absl::StatusOr<Shape> ShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType &x = inputs[0], &w = inputs[1];
  if (x.shape.size() != 4 || w.shape.size() != 4) {
    return OpError(
        kOp, "shape",
        StrCat("expected input and weight of rank 4, found ", ToText(x), " and ", ToText(w)));
  }
  for (const TensorType& in : inputs) {
    if (in.dtype != x.dtype) {
      return OpError(
          kOp, "type",
          StrCat("expected operands of one type, found ", ToText(x), " and ", ToText(in)));
    }
  }
  Shape c;
  c.groups = GetInt(attrs, "groups", 1);
  c.batch = x.shape[0];
  c.in_channels = x.shape[1];
  c.height = x.shape[2];
  c.width = x.shape[3];
  if (c.groups < 1 || w.shape[0] != c.in_channels || c.in_channels % c.groups != 0) {
    return OpError(kOp, "channels",
                   StrCat("expected channels that divide into ", c.groups, " groups, found input ",
                          ToText(x), " and weight ", ToText(w)));
  }
  if (__builtin_mul_overflow(w.shape[1], c.groups, &c.out_channels)) {
    return OpError(kOp, "channels", "expected fewer channels");
  }
  TW_ASSIGN(std::vector<Window> windows, WindowsOf(kOp, attrs, w.shape[2], w.shape[3]));
  TW_ASSIGN(auto extra, IntsInRange(kOp, attrs, "output_padding", {0, 0}, 2, 0, kMaxWindowAttr));
  c.h = windows[0];
  c.w = windows[1];
  auto size = [](int64_t input, const Window& window, int64_t more) {
    return (input - 1) * window.stride + (window.kernel - 1) * window.dilation + 1 + more -
           window.pad_begin - window.pad_end;
  };
  c.out_height = size(c.height, c.h, extra[0]);
  c.out_width = size(c.width, c.w, extra[1]);
  if (c.out_height < 1 || c.out_width < 1) {
    return OpError(kOp, "pads", "expected pads smaller than the result, found larger ones");
  }
  if (inputs.size() > 2 && inputs[2].shape != std::vector<int64_t>{c.out_channels}) {
    return OpError(kOp, "bias",
                   StrCat("expected a bias of [", c.out_channels, "], found ", ToText(inputs[2])));
  }
  return c;
}

absl::StatusOr<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                              const Attrs& attrs) {
  TW_ASSIGN(Shape c, ShapeOf(inputs, attrs));
  return std::vector<TensorType>{
      {inputs[0].dtype, {c.batch, c.out_channels, c.out_height, c.out_width}}};
}

// The input position that tap `tap` of output position `out` reads, and when it does.
ir::Expr Source(const Window& w, const ir::Expr& out, const ir::Expr& tap, int64_t input,
                std::vector<ir::Expr>* conditions) {
  ir::Expr at = out;
  if (w.pad_begin > 0) at = at + ir::Int(w.pad_begin);
  if (w.kernel > 1) at = at - (w.dilation == 1 ? tap : tap * ir::Int(w.dilation));
  if (w.stride > 1) {
    conditions->push_back(ir::Eq(ir::FloorMod(at, ir::Int(w.stride)), ir::Int(0)));
    at = ir::FloorDiv(at, ir::Int(w.stride));
  }
  conditions->push_back(at >= ir::Int(0));
  conditions->push_back(at < ir::Int(input));
  return at;
}

absl::StatusOr<std::vector<ir::Buffer>> Build(ir::FunctionBuilder& b, const std::string& name,
                                              std::span<const ir::Buffer> inputs,
                                              std::span<const TensorType> outputs,
                                              const Attrs& attrs) {
  std::vector<TensorType> types;
  for (const ir::Buffer& input : inputs) {
    types.push_back({input->dtype, {}});
    for (const ir::Expr& dim : input->shape) types.back().shape.push_back(*ir::AsInt(dim));
  }
  TW_ASSIGN(Shape c, ShapeOf(types, attrs));
  const ir::Axis ic = b.ReduceAxis("ic", ir::Int(c.group_in()));
  const ir::Axis kh = b.ReduceAxis("kh", ir::Int(c.h.kernel));
  const ir::Axis kw = b.ReduceAxis("kw", ir::Int(c.w.kernel));
  const ir::DType dtype = outputs[0].dtype;
  auto value = [&](const std::vector<ir::Var>& i) {
    ir::Expr channel = ic.var, within = i[1];
    if (c.groups > 1) {
      ir::Expr group = ir::FloorDiv(i[1], ir::Int(c.group_out()));
      channel = group * ir::Int(c.group_in()) + ic.var;
      within = ir::FloorMod(i[1], ir::Int(c.group_out()));
    }
    std::vector<ir::Expr> inside;
    ir::Expr row = Source(c.h, i[2], kh.var, c.height, &inside);
    ir::Expr col = Source(c.w, i[3], kw.var, c.width, &inside);
    return Guarded(inside, ir::Load(inputs[0], {i[0], channel, row, col}), ir::Zero(dtype)) *
           ir::Load(inputs[1], {channel, within, kh.var, kw.var});
  };
  const std::vector<std::string> axes = {"n", "oc", "oh", "ow"};
  ir::Buffer sum =
      b.Reduce(inputs.size() > 2 ? name + "_sum" : name, dtype, ShapeExprs(outputs[0].shape), axes,
               {ic, kh, kw}, ir::Combiner::kSum, value);
  if (inputs.size() == 2) return std::vector<ir::Buffer>{sum};
  return std::vector<ir::Buffer>{b.Compute(
      name, dtype, ShapeExprs(outputs[0].shape), axes, [&](const std::vector<ir::Var>& i) {
        return ir::Load(sum, VarExprs(i)) + ir::Load(inputs[2], {i[1]});
      })};
}

double Flops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
             const Attrs&) {
  // Every input element meets every tap of its weights once.
  const double taps =
      static_cast<double>(inputs[1].elements()) / static_cast<double>(inputs[1].shape[0]);
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
  std::vector<TensorType> types;
  for (const RefTensor& input : inputs) types.push_back(input.type);
  TW_ASSIGN(Shape c, ShapeOf(types, attrs));
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  const int64_t plane = c.out_height * c.out_width;
  for (int64_t oc = 0; inputs.size() > 2 && oc < c.batch * c.out_channels; ++oc) {
    std::fill_n(out.values.begin() + oc * plane, plane, inputs[2].values[oc % c.out_channels]);
  }
  int64_t at = 0;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t ic = 0; ic < c.in_channels; ++ic) {
      for (int64_t ih = 0; ih < c.height; ++ih) {
        for (int64_t iw = 0; iw < c.width; ++iw, ++at) {
          for (int64_t g = 0; g < c.group_out(); ++g) {
            const int64_t oc = ic / c.group_in() * c.group_out() + g;
            for (int64_t kh = 0; kh < c.h.kernel; ++kh) {
              const int64_t oh = ih * c.h.stride + kh * c.h.dilation - c.h.pad_begin;
              if (oh < 0 || oh >= c.out_height) continue;
              for (int64_t kw = 0; kw < c.w.kernel; ++kw) {
                const int64_t ow = iw * c.w.stride + kw * c.w.dilation - c.w.pad_begin;
                if (ow < 0 || ow >= c.out_width) continue;
                const int64_t tap = ((ic * c.group_out() + g) * c.h.kernel + kh) * c.w.kernel + kw;
                out.values[(n * c.out_channels + oc) * plane + oh * c.out_width + ow] +=
                    inputs[0].values[at] * inputs[1].values[tap];
              }
            }
          }
        }
      }
    }
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
  row.float_only = true;
  row.infer = Infer;
  row.compute = Build;
  row.flops = Flops;
  row.reduction_length = Length;
  row.reference = Plain;
  return {row};
}

}  // namespace tilewright::op
