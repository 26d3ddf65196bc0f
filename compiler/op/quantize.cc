// quantize and dequantize: numbers as small integers, each with a scale and a zero point that
// broadcast to the data (one for all, or one for each channel). What ONNX says in QuantizeLinear
// and DequantizeLinear, rounding half to even and saturating.
//
// requantize: sums of i32 times a multiplier, divided by 2^shift, rounded to the nearest integer
// with halves up, and cut to -128 to 127. Exact: it has no floats.
#include <algorithm>
#include <cmath>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using support::StrCat;
using Types = std::span<const TensorType>;

bool IsByte(ir::DType type) { return type == ir::kU8 || type == ir::kI8; }

absl::Status Refuse(std::string_view op, std::string_view what, Types inputs) {
  return OpError(op, "type",
                 StrCat("expected ", what, ", found ", ToText(inputs[0]), ", ", ToText(inputs[1]),
                        " and ", ToText(inputs[2])));
}

absl::StatusOr<TensorTypes> WithType(std::string_view op, Types inputs, ir::DType type,
                                     DimEqualities* equal) {
  TW_ASSIGN(TensorType out, BroadcastOperands(op, inputs, equal));
  if (!MayEqual(out.shape, inputs[0].shape, equal)) {
    return OpError(op, "shape",
                   StrCat("expected a scale and a zero point that broadcast to the data, found ",
                          ToText(inputs[0]), ", ", ToText(inputs[1]), " and ", ToText(inputs[2])));
  }
  out.dtype = type;
  return TensorTypes{out};
}

absl::StatusOr<TensorTypes> InferQuantize(Types inputs, const Attrs&, DimEqualities* equal) {
  if (inputs[0].dtype != ir::kF32 || inputs[1].dtype != ir::kF32 || !IsByte(inputs[2].dtype)) {
    return Refuse("quantize", "f32 data, an f32 scale and a zero point of i8 or u8", inputs);
  }
  return WithType("quantize", inputs, inputs[2].dtype, equal);
}

absl::StatusOr<TensorTypes> InferDequantize(Types inputs, const Attrs&, DimEqualities* equal) {
  const bool fits = IsByte(inputs[0].dtype) || inputs[0].dtype == ir::kI32;
  if (!fits || inputs[1].dtype != ir::kF32 || inputs[2].dtype != inputs[0].dtype) {
    return Refuse("dequantize", "i8, u8 or i32 data, an f32 scale and a zero point like the data",
                  inputs);
  }
  return WithType("dequantize", inputs, ir::kF32, equal);
}

// Literals stay literals, so that zero points of 0 and scales of 1 cost nothing.
Expr Widened(const Expr& x, ir::DType type) {
  if (x->kind != ir::ExprKind::kIntImm) return ir::Cast(type, x);
  return type.is_float() ? ir::Float(static_cast<double>(x->int_value), type)
                         : ir::Int(x->int_value, type);
}
bool IsLiteral(const Expr& x, double value) {
  if (x->kind == ir::ExprKind::kIntImm) return static_cast<double>(x->int_value) == value;
  return x->kind == ir::ExprKind::kFloatImm && x->float_value == value;
}

Expr Quantize(std::span<const Expr> a, const Attrs&) {
  const Expr steps = IsLiteral(a[1], 1) ? a[0] : a[0] / a[1];
  const Expr rounded = ir::Call(ir::Intrinsic::kRoundEven, {steps});
  const ir::DType type = a[2]->dtype;
  return ir::Cast(type, IsLiteral(a[2], 0) ? rounded : rounded + Widened(a[2], a[0]->dtype));
}

Expr Dequantize(std::span<const Expr> a, const Attrs&) {
  const Expr wide = Widened(a[0], ir::kI32);
  const Expr steps = IsLiteral(a[2], 0) ? wide : wide - Widened(a[2], ir::kI32);
  return ir::Cast(a[1]->dtype, steps) * a[1];
}

// A product of two numbers of 32 bits and half of the last bit that is kept are below 2^63.
constexpr int64_t kMostShift = 62;
constexpr int64_t kLow = -128, kHigh = 127;

absl::StatusOr<TensorTypes> InferRequantize(Types inputs, const Attrs& attrs,
                                            DimEqualities* equal) {
  const int64_t shift = GetInt(attrs, "shift", 0);
  if (shift < 0 || shift > kMostShift) {
    return OpError("requantize", "attribute",
                   StrCat("expected a shift of 0 to ", kMostShift, ", found ", shift));
  }
  TW_ASSIGN(TensorType out, BroadcastOperands("requantize", inputs, equal));
  if (inputs[0].dtype != ir::kI32 || inputs[1].dtype != ir::kI32 ||
      !MayEqual(out.shape, inputs[0].shape, equal)) {
    return OpError("requantize", "type",
                   StrCat("expected sums of i32 and a multiplier of i32 that broadcasts to them, "
                          "found ",
                          ToText(inputs[0]), " and ", ToText(inputs[1])));
  }
  return TensorTypes{out};
}

Expr Requantize(std::span<const Expr> a, const Attrs& attrs) {
  const Expr product = ir::Call(ir::Intrinsic::kWideningMul, {a[0], a[1]});
  const Expr rounded = ir::Call(ir::Intrinsic::kRoundingShiftRight,
                                {product, ir::Int(GetInt(attrs, "shift", 0), ir::kI64)});
  return ir::Cast(ir::kI32,
                  ir::Max(ir::Min(rounded, ir::Int(kHigh, ir::kI64)), ir::Int(kLow, ir::kI64)));
}

double InF32(double value) { return RoundToType(value, ir::kF32); }

}  // namespace

std::vector<OpSpec> QuantizeRows() {
  OpSpec quantize;
  quantize.name = "quantize";
  quantize.domain = OfSecond<Domain::kScale>;
  quantize.takes_empty = true;
  quantize.onnx = {"QuantizeLinear"};
  quantize.fusion = FusionClass::kInjective;
  quantize.min_inputs = quantize.max_inputs = 3;
  quantize.scalar = Quantize;
  quantize.scalar_reference = [](std::span<const double> a, const Attrs&) {
    return InF32(std::nearbyint(InF32(a[0] / a[1])) + a[2]);
  };
  quantize.infer = InferQuantize;

  OpSpec dequantize = quantize;
  dequantize.name = "dequantize";
  dequantize.domain = OfSecond<Domain::kScale>;
  dequantize.exact = true;
  dequantize.takes_empty = true;
  dequantize.onnx = {"DequantizeLinear"};
  dequantize.scalar = Dequantize;
  dequantize.scalar_reference = [](std::span<const double> a, const Attrs&) {
    return InF32(a[0] - a[2]) * a[1];
  };
  dequantize.infer = InferDequantize;

  OpSpec requantize;
  requantize.name = "requantize";
  requantize.domain = OfSecond<Domain::kMultiplier>;
  requantize.takes_empty = true;
  requantize.fusion = FusionClass::kInjective;
  requantize.min_inputs = requantize.max_inputs = 2;
  requantize.types = kInts;
  requantize.staged = true;
  requantize.scalar = Requantize;
  requantize.integer_reference = [](std::span<const int64_t> a, ir::DType, const Attrs& attrs) {
    const int64_t shift = GetInt(attrs, "shift", 0), half = (int64_t{1} << shift) / 2;
    return std::clamp((a[0] * a[1] + half) >> shift, kLow, kHigh);
  };
  requantize.infer = InferRequantize;
  return {quantize, dequantize, requantize};
}

}  // namespace tilewright::op
