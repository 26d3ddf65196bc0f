// Sliding-window pooling: pool2d with kind=max|avg over dimensions 2 and 3; each place along the
// others has windows of its own, so blocks of channels may lie behind. Maxima of integers, too. A
// window reads only what lies inside the input; an average counts the padding only where
// count_include_pad says so.
// `staged`: maxima of signed bytes as a matrix unit takes them. Padding is zeros, and bytes become
// numbers of 32 bits, then maxima, then bytes, each in a stage of its own.
#include <cmath>
#include <limits>

#include "compiler/ir/numeric.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "pool2d";

// What the attributes say.
struct PoolForm {
  Window h, w;
  bool max, include_pad, staged;
};
struct PoolShape : PoolForm {
  Dim height, width, out_height, out_width;
};

absl::StatusOr<PoolForm> FormOf(const Attrs& attrs) {
  const std::string kind = GetString(attrs, "kind", "max");
  if (kind != "max" && kind != "avg") {
    return OpError(kOp, "attribute", StrCat("expected kind max or avg, found ", kind));
  }
  TW_ASSIGN(auto kernel, IntsInRange(kOp, attrs, "kernel", {}, 2, 1, kMaxWindowAttr));
  TW_ASSIGN(std::vector<Window> windows, WindowsOf(kOp, attrs, kernel[0], kernel[1]));
  for (const Window& w : windows) {
    // A window that lies in the padding alone would have no value.
    if (w.pad_begin > (w.kernel - 1) * w.dilation || w.pad_end > (w.kernel - 1) * w.dilation) {
      return OpError(kOp, "pads", "expected pads smaller than the window, found larger ones");
    }
  }
  return PoolForm{windows[0], windows[1], kind == "max", GetInt(attrs, "count_include_pad", 0) != 0,
                  GetInt(attrs, "staged", 0) != 0};
}

absl::StatusOr<TensorTypes> InferPool(std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities*) {
  TensorType out = inputs[0];
  if (out.shape.size() < 4) {
    return OpError(kOp, "shape",
                   StrCat("expected an input of rank 4 or more, found rank ", out.shape.size()));
  }
  TW_ASSIGN(const PoolForm form, FormOf(attrs));
  out.shape[2] = form.h.OutputSize(out.shape[2]);
  out.shape[3] = form.w.OutputSize(out.shape[3]);
  if (SurelyBelow(out.shape[2], 1) || SurelyBelow(out.shape[3], 1)) {
    return OpError(kOp, "kernel", "expected a kernel that fits the padded input");
  }
  if (out.dtype.is_bool() || (!form.max && !out.dtype.is_float())) {
    return OpError(kOp, "type",
                   StrCat("expected floats, or the maxima of integers, found ", ToText(inputs[0])));
  }
  if (form.staged && (!form.max || out.dtype != ir::kI8)) {
    return OpError(kOp, "attribute", "expected staged maxima of i8, found another type or kind");
  }
  return TensorTypes{out};
}

absl::StatusOr<PoolShape> ShapeOf(const TensorType& in, const TensorType& out, const Attrs& attrs) {
  TW_ASSIGN(const PoolForm form, FormOf(attrs));
  return PoolShape{form, in.shape[2], in.shape[3], out.shape[2], out.shape[3]};
}

// How many taps of the window at `output` lie inside [0, input).
ir::Expr TapsInside(ir::FunctionBuilder& b, const Window& w, const Dim& input,
                    const Dim& output_size, const ir::Expr& output) {
  if (w.pad_begin == 0 && w.EndsInside(input, output_size)) return ir::Int(w.kernel);
  const ir::Expr start = output * ir::Int(w.stride) - ir::Int(w.pad_begin);
  const ir::Expr d = ir::Int(w.dilation);
  // First tap at or after 0, and one past the last tap before `input`.
  ir::Expr first =
      ir::FloorDiv(ir::Max(ir::Int(0) - start, ir::Int(0)) + ir::Int(w.dilation - 1), d);
  ir::Expr past =
      ir::Min(ir::Int(w.kernel), ir::FloorDiv(SizeExpr(b, input + Dim(w.dilation - 1)) - start, d));
  return past - first;
}

std::vector<std::string> AxesOf(const TensorType& image) {
  std::vector<std::string> axes = {"n", "c", "oh", "ow"};
  for (int64_t d = 4; d < image.rank(); ++d) axes.push_back(StrCat("b", d == 4 ? "" : StrCat(d)));
  return axes;
}

std::vector<ir::Buffer> BuildStagedPool(const ComputeArgs& a, PoolShape p) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const std::vector<std::string> axes = AxesOf(types[0]);
  const Padded rows = TakePadding(&p.h, p.height, p.out_height),
               cols = TakePadding(&p.w, p.width, p.out_width);
  const ir::Buffer padded = PadImage(b, name, inputs[0], rows, cols);
  const ir::Buffer wide =
      b.Compute(name + "_wide", ir::kI32, padded->shape, axes, [&](const std::vector<ir::Var>& i) {
        return ir::Cast(ir::kI32, ir::Load(padded, VarExprs(i)));
      });
  const ir::Axis kh = b.ReduceAxis("kh", ir::Int(p.h.kernel));
  const ir::Axis kw = b.ReduceAxis("kw", ir::Int(p.w.kernel));
  const std::vector<ir::Expr> out_shape = ShapeExprs(b, outputs[0].shape);
  const ir::Buffer most = b.Reduce(name + "_max", ir::kI32, out_shape, axes, {kh, kw},
                                   ir::Combiner::kMax, [&](const std::vector<ir::Var>& i) {
                                     std::vector<ir::Expr> at = VarExprs(i);
                                     at[2] = p.h.Position(i[2], kh.var);
                                     at[3] = p.w.Position(i[3], kw.var);
                                     return ir::Load(wide, std::move(at));
                                   });
  return {b.Compute(name, ir::kI8, out_shape, axes, [&](const std::vector<ir::Var>& i) {
    return ir::Cast(ir::kI8, ir::Load(most, VarExprs(i)));
  })};
}

absl::StatusOr<std::vector<ir::Buffer>> BuildPool(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Buffer& x = inputs[0];
  TW_ASSIGN(PoolShape p, ShapeOf(types[0], outputs[0], attrs));
  if (p.staged) return BuildStagedPool(a, p);
  const ir::Axis kh = b.ReduceAxis("kh", ir::Int(p.h.kernel));
  const ir::Axis kw = b.ReduceAxis("kw", ir::Int(p.w.kernel));
  const ir::DType dtype = outputs[0].dtype;
  const std::vector<ir::Expr> out_shape = ShapeExprs(b, outputs[0].shape);
  const std::vector<std::string> axes = AxesOf(types[0]);
  const ir::Expr outside = dtype.is_float() ? ir::Float(p.max ? -INFINITY : 0, dtype)
                           : p.max          ? ir::Int(ir::MinInt(dtype), dtype)
                                            : ir::Zero(dtype);
  auto value = [&](const std::vector<ir::Var>& i) {
    ir::Expr row = p.h.Position(i[2], kh.var), col = p.w.Position(i[3], kw.var);
    std::vector<ir::Expr> inside;
    p.h.Guards(b, row, p.height, p.out_height, &inside);
    p.w.Guards(b, col, p.width, p.out_width, &inside);
    std::vector<ir::Expr> at = VarExprs(i);
    at[2] = row;
    at[3] = col;
    return Guarded(inside, ir::Load(x, std::move(at)), outside);
  };
  ir::Buffer total = b.Reduce(p.max ? name : name + "_sum", dtype, out_shape, axes, {kh, kw},
                              p.max ? ir::Combiner::kMax : ir::Combiner::kSum, value);
  if (p.max) return std::vector<ir::Buffer>{total};
  return std::vector<ir::Buffer>{
      b.Compute(name, dtype, out_shape, axes, [&](const std::vector<ir::Var>& i) {
        ir::Expr count = ir::Int(p.h.kernel * p.w.kernel);
        if (!p.include_pad) {
          count = TapsInside(b, p.h, p.height, p.out_height, i[2]) *
                  TapsInside(b, p.w, p.width, p.out_width, i[3]);
        }
        return ir::Load(total, VarExprs(i)) / ir::Cast(dtype, count);
      })};
}

// The same with numbers, for the reference.
struct PlaneShape : PoolForm, ImageSizes {};

// The pooled value of one plane at one output position; neighbours are `step` values apart.
double PoolOne(const PlaneShape& p, const double* plane, int64_t step, int64_t oh, int64_t ow) {
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  int64_t count = 0;
  for (int64_t kh = 0; kh < p.h.kernel; ++kh) {
    const int64_t row = oh * p.h.stride + kh * p.h.dilation - p.h.pad_begin;
    for (int64_t kw = 0; kw < p.w.kernel; ++kw) {
      const int64_t col = ow * p.w.stride + kw * p.w.dilation - p.w.pad_begin;
      if (row < 0 || row >= p.height || col < 0 || col >= p.width) {
        if (p.staged) best = std::max(best, 0.0);
        continue;
      }
      const double value = plane[(row * p.width + col) * step];
      best = std::max(best, value);
      sum += value;
      ++count;
    }
  }
  if (p.max) return best;
  return sum / static_cast<double>(p.include_pad ? p.h.kernel * p.w.kernel : count);
}

absl::StatusOr<std::vector<RefTensor>> PlainPool(std::span<const RefTensor> inputs,
                                                 std::span<const TensorType> outputs,
                                                 const Attrs& attrs) {
  const RefTensor& x = inputs[0];
  TW_ASSIGN(const PoolForm form, FormOf(attrs));
  const PlaneShape p{form, ImageSizes(x.type, outputs[0])};
  RefTensor out{outputs[0], {}};
  const int64_t planes = x.type.size(0) * x.type.size(1);
  const int64_t step = x.type.elements() / (planes * p.height * p.width);
  for (int64_t plane = 0; plane < planes; ++plane) {
    const double* values = x.values.data() + plane * p.height * p.width * step;
    for (int64_t oh = 0; oh < p.out_height; ++oh) {
      for (int64_t ow = 0; ow < p.out_width; ++ow) {
        for (int64_t lane = 0; lane < step; ++lane) {
          out.values.push_back(PoolOne(p, values + lane, step, oh, ow));
        }
      }
    }
  }
  return std::vector<RefTensor>{std::move(out)};
}

double KernelArea(std::span<const TensorType>, const Attrs& attrs) {
  double area = 1;
  for (int64_t k : GetInts(attrs, "kernel", {})) area *= static_cast<double>(k);
  return area;
}

}  // namespace

std::vector<OpSpec> PoolRows() {
  OpSpec pool;
  pool.name = kOp;
  pool.takes_empty = true;
  pool.onnx = {"MaxPool", "AveragePool"};
  pool.fusion = FusionClass::kReduction;
  pool.infer = InferPool;
  pool.compute = BuildPool;
  pool.flops = [](std::span<const TensorType>, std::span<const TensorType> outputs,
                  const Attrs& attrs) {
    return static_cast<double>(outputs[0].elements()) * KernelArea({}, attrs);
  };
  pool.reduction_length = KernelArea;
  pool.reference = PlainPool;
  return {pool};
}

}  // namespace tilewright::op
