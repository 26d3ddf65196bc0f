// Conversions of quantised operators. Numbers become integers by `quantize` and come back by
// `dequantize`; products of integers are sums of i32 over what is left after the zero points are
// taken off, exact whatever the zero points are. The pass integer_layers makes sums of bytes of
// them.
#include "compiler/onnx/onnx_quantized_ops.h"

#include <algorithm>

#include "compiler/ir/numeric.h"
#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;
using Ints = std::vector<int64_t>;

Result EmitKnown(NodeReader& n, std::string_view op_name, std::vector<ValueId> inputs,
                 op::Attrs attrs, const std::string& name) {
  std::vector<op::RefTensor> tensors;
  std::vector<op::TensorType> types;
  int64_t largest = 0;
  for (ValueId id : inputs) {
    types.push_back(n.importer().TypeOf(id));
    if (!types.back().fixed()) {
      return n.importer().Emit(op_name, std::move(inputs), std::move(attrs), name);
    }
    largest = std::max(largest, types.back().elements());
  }
  TW_ASSIGN(const auto inferred, op::InferTypes(*op::FindOp(op_name), types, attrs));
  if (inferred[0].elements() > largest) {
    return n.importer().Emit(op_name, std::move(inputs), std::move(attrs), name);
  }
  for (ValueId id : inputs) {
    const Value& value = n.importer().ValueOf(id);
    if (value.constant == nullptr) {
      return n.importer().Emit(op_name, std::move(inputs), std::move(attrs), name);
    }
    TW_ASSIGN(op::RefTensor tensor, op::FromBytes(value.type, value.constant->view()));
    tensors.push_back(std::move(tensor));
  }
  TW_ASSIGN(auto results, op::Reference(*op::FindOp(op_name), tensors, attrs));
  return n.importer().Constant(name, results[0].type, op::ToBytes(results[0]));
}

Result Aligned(NodeReader& n, ValueId parameter, int64_t axis, size_t rank,
               const std::string& name) {
  const op::TensorType type = n.importer().TypeOf(parameter);
  if (!type.fixed()) {
    return n.Error("open_size", StrCat("expected scales and zero points of fixed shape, found ",
                                       op::ToText(type), kGiveNumbers));
  }
  const bool one = type.elements() == 1 && type.shape.size() <= 1;
  if (!one && type.shape.size() != 1) return parameter;
  if (one && type.shape.empty()) return parameter;
  Ints shape;
  if (!one) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank)) {
      return n.Error("axis", StrCat("expected an axis of rank ", rank, ", found ", axis));
    }
    shape.assign(rank - static_cast<size_t>(axis), 1);
    shape[0] = type.size(0);
  }
  return EmitKnown(n, kViewOp, {parameter}, {{"shape", shape}}, name);
}

absl::StatusOr<Parameters> ReadParameters(NodeReader& n, int scale, ir::DType type, int64_t axis,
                                          size_t rank, std::string_view what) {
  Parameters p;
  TW_ASSIGN(p.scale, n.Input(scale));
  TW_ASSIGN(p.scale, Aligned(n, p.scale, axis, rank, PartName(n, StrCat(what, "_scale"))));
  const std::string name = PartName(n, StrCat(what, "_zero"));
  if (!n.HasInput(scale + 1)) {
    p.zero = ScalarConstant(n, type, 0, name);
    return p;
  }
  TW_ASSIGN(p.zero, n.Input(scale + 1));
  TW_ASSIGN(p.zero, Aligned(n, p.zero, axis, rank, name));
  return p;
}

Result CentredBy(NodeReader& n, ValueId value, std::optional<ValueId> zero_point, int64_t axis,
                 std::string_view what) {
  const size_t rank = n.importer().TypeOf(value).shape.size();
  TW_ASSIGN(value, EmitKnown(n, "cast", {value}, {{"dtype", std::string("i32")}},
                             PartName(n, StrCat(what, "_wide"))));
  if (!zero_point) return value;
  TW_ASSIGN(ValueId zero, Aligned(n, *zero_point, axis, rank, PartName(n, StrCat(what, "_zero"))));
  TW_ASSIGN(zero, EmitKnown(n, "cast", {zero}, {{"dtype", std::string("i32")}},
                            PartName(n, StrCat(what, "_zero_wide"))));
  return EmitKnown(n, "sub", {value, zero}, {}, PartName(n, StrCat(what, "_centred")));
}

Result FloatsOfSums(NodeReader& n, ValueId sums, ValueId x_scale, ValueId w_scale) {
  TW_ASSIGN(const ValueId scale,
            EmitKnown(n, "mul", {x_scale, w_scale}, {}, PartName(n, "_scale")));
  const ValueId zero = ScalarConstant(n, ir::kI32, 0, PartName(n, "_none"));
  return n.importer().Emit("dequantize", {sums, scale, zero}, {}, PartName(n, "_floats"));
}

Result WithoutZero(NodeReader& n, ValueId value, int zero_input, int64_t axis,
                   std::string_view what) {
  if (!n.HasInput(zero_input)) return CentredBy(n, value, std::nullopt, axis, what);
  TW_ASSIGN(const ValueId zero, n.Input(zero_input));
  return CentredBy(n, value, zero, axis, what);
}

Result Requantized(NodeReader& n, ValueId sums, ValueId x_scale, ValueId w_scale,
                   const Parameters& y) {
  const op::TensorType type = n.importer().TypeOf(x_scale);
  TW_ASSIGN(ValueId scale, EmitKnown(n, "mul", {x_scale, w_scale}, {}, PartName(n, "_scales")));
  TW_ASSIGN(scale, EmitKnown(n, "div", {scale, y.scale}, {}, PartName(n, "_scale")));
  const ValueId zero = ScalarConstant(n, ir::kI32, 0, PartName(n, "_none"));
  TW_ASSIGN(ValueId steps,
            n.importer().Emit("dequantize", {sums, scale, zero}, {}, PartName(n, "_steps")));
  const ValueId one = ScalarConstant(n, type.dtype, 1, PartName(n, "_one"));
  return n.importer().Emit("quantize", {steps, one, y.zero}, {}, n.output_name());
}

int64_t RowAxis(const op::TensorType& type) { return static_cast<int64_t>(type.shape.size()) - 2; }
int64_t ColumnAxis(const op::TensorType& type) {
  return static_cast<int64_t>(type.shape.size()) - 1;
}

namespace {

// The axis that scales run along, and with the attribute block_size how many neighbours share one:
// then the data is cut into blocks, which have an axis of their own.
struct Blocks {
  int64_t axis = 0, size = 0;
  std::vector<op::Dim> whole, cut;  // shapes of the data
};

absl::StatusOr<Blocks> ReadBlocks(NodeReader& n, const std::vector<op::Dim>& shape) {
  Blocks b;
  const auto rank = static_cast<int64_t>(shape.size());
  TW_ASSIGN(b.axis, n.Int("axis", 1));
  TW_ASSIGN(b.size, n.Int("block_size", 0));
  if (b.axis < 0) b.axis += rank;
  b.whole = b.cut = shape;
  if (b.size == 0) return b;
  const bool inside = b.axis >= 0 && b.axis < rank && b.size > 0;
  if (inside && !shape[b.axis].is_constant()) {
    return n.Error("open_size", StrCat("expected a fixed dimension that is cut into blocks, found ",
                                       shape[b.axis].ToText(), kGiveNumbers));
  }
  if (!inside || shape[b.axis].value() % b.size != 0) {
    return n.Error("attribute", StrCat("expected a block_size that divides the axis, found ",
                                       b.size, " along axis ", b.axis));
  }
  b.cut[b.axis] = shape[b.axis].value() / b.size;
  b.cut.insert(b.cut.begin() + b.axis + 1, b.size);
  return b;
}

// A scale or zero point of blocks: one for all elements of each.
Result OfBlocks(NodeReader& n, ValueId parameter, const Blocks& b, const std::string& name) {
  Ints shape = n.importer().TypeOf(parameter).sizes();
  if (b.size == 0 || shape.size() != b.whole.size()) return parameter;
  shape.insert(shape.begin() + b.axis + 1, 1);
  return EmitKnown(n, kViewOp, {parameter}, {{"shape", shape}}, name);
}

// The rows quantize and dequantize; of integers of 16 bits, which they do not have, the formula.
Result Quantization(NodeReader& n, std::string_view row, ValueId x, ValueId scale, ValueId zero,
                    const std::string& name) {
  const ir::DType type = n.importer().TypeOf(zero).dtype;
  if (!type.is_int() || type.bits != 16) return n.importer().Emit(row, {x, scale, zero}, {}, name);
  const auto emit = [&](std::string_view op, std::vector<ValueId> inputs, op::Attrs attrs,
                        std::string_view suffix) {
    return n.importer().Emit(op, std::move(inputs), std::move(attrs), PartName(n, suffix));
  };
  const op::Attrs wide = {{"dtype", ir::TypeName(ir::kF32)}};
  TW_ASSIGN(const ValueId offset, emit("cast", {zero}, wide, "_offset"));
  if (row == "dequantize") {
    TW_ASSIGN(x, emit("cast", {x}, wide, "_wide"));
    TW_ASSIGN(x, emit("sub", {x, offset}, {}, "_steps"));
    return n.importer().Emit("mul", {x, scale}, {}, name);
  }
  TW_ASSIGN(x, emit("div", {x, scale}, {}, "_quotient"));
  TW_ASSIGN(x, emit("round", {x}, {}, "_steps"));
  TW_ASSIGN(x, emit("add", {x, offset}, {}, "_moved"));
  const op::Attrs range = {{"min", static_cast<double>(ir::MinInt(type))},
                           {"max", static_cast<double>(ir::MaxInt(type))}};
  TW_ASSIGN(x, emit("clip", {x}, range, "_saturated"));
  return n.importer().Emit("cast", {x}, {{"dtype", ir::TypeName(type)}}, name);
}

// quantize or dequantize, in blocks where there are some.
Result Convert(NodeReader& n, std::string_view op_name, ValueId x, const Parameters& p,
               const Blocks& b) {
  if (b.size == 0) return Quantization(n, op_name, x, p.scale, p.zero, n.output_name());
  TW_ASSIGN(const ValueId scale, OfBlocks(n, p.scale, b, PartName(n, "_scales")));
  TW_ASSIGN(const ValueId zero, OfBlocks(n, p.zero, b, PartName(n, "_zeros")));
  TW_ASSIGN(x, ReshapedTo(n, x, b.cut, PartName(n, "_cut")));
  TW_ASSIGN(x, Quantization(n, op_name, x, scale, zero, PartName(n, "_blocks")));
  return ReshapedTo(n, x, b.whole, n.output_name());
}

}  // namespace

Result ImportQuantizeLinear(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const Blocks b, ReadBlocks(n, n.importer().TypeOf(x).shape));
  TW_ASSIGN(const int64_t wanted, n.Int("output_dtype", 0));
  ir::DType type = ir::kU8;
  const support::PackedInteger* packed = support::FindPackedInteger(wanted);
  if (wanted != 0) {
    TW_ASSIGN(type, HeldType(wanted));
  }
  if (n.HasInput(2)) {
    TW_ASSIGN(const ValueId zero, n.Input(2));
    packed = n.importer().PackedTypeOf(zero);
  }
  TW_ASSIGN(const Parameters p, ReadParameters(n, 1, type, b.axis, b.whole.size(), ""));
  if (n.importer().TypeOf(x).dtype == ir::kI32) {
    TW_ASSIGN(
        x, n.importer().Emit("cast", {x}, {{"dtype", std::string("f32")}}, PartName(n, "_float")));
  }
  TW_ASSIGN(const ValueId y, Convert(n, "quantize", x, p, b));
  if (packed == nullptr) return y;
  // Bytes saturate at numbers that the smaller type does not have.
  Composer c(n);
  const ir::DType held = c.TypeOf(y).dtype;
  const ValueId low = c.Scalar(static_cast<double>(packed->low()), held);
  const ValueId high = c.Scalar(static_cast<double>(packed->high()), held);
  const ValueId saturated = c.Op("min", {c.Op("max", {y, low}), high});
  TW_TRY(c.status());
  n.importer().MarkPacked(saturated, packed);
  return saturated;
}

Result ImportDequantizeLinear(NodeReader& n) {
  TW_ASSIGN(const ValueId x, n.Input(0));
  const op::TensorType type = n.importer().TypeOf(x);
  TW_ASSIGN(const Blocks b, ReadBlocks(n, type.shape));
  TW_ASSIGN(const Parameters p, ReadParameters(n, 1, type.dtype, b.axis, b.whole.size(), ""));
  return Convert(n, "dequantize", x, p, b);
}

absl::StatusOr<DynamicBytes> DynamicallyQuantized(NodeReader& n, ValueId x) {
  Importer& g = n.importer();
  const ValueId none = ScalarConstant(n, ir::kF32, 0, PartName(n, "_zero_float"));
  auto end = [&](const std::string& kind) -> Result {
    TW_ASSIGN(const ValueId end, g.Emit("reduce", {x}, {{"kind", kind}, {"keepdims", int64_t{0}}},
                                        PartName(n, StrCat("_", kind))));
    return g.Emit(kind, {end, none}, {}, PartName(n, StrCat("_", kind, "_0")));
  };
  TW_ASSIGN(const ValueId low, end("min"));
  TW_ASSIGN(const ValueId high, end("max"));
  DynamicBytes q;
  TW_ASSIGN(q.scale, g.Emit("sub", {high, low}, {}, PartName(n, "_range")));
  const ValueId steps = ScalarConstant(n, ir::kF32, 255, PartName(n, "_steps"));
  TW_ASSIGN(q.scale, g.Emit("div", {q.scale, steps}, {}, PartName(n, "_scale")));
  TW_ASSIGN(q.zero, g.Emit("sub", {none, low}, {}, PartName(n, "_below")));
  const ValueId byte = ScalarConstant(n, ir::kU8, 0, PartName(n, "_byte"));
  TW_ASSIGN(q.zero, g.Emit("quantize", {q.zero, q.scale, byte}, {}, PartName(n, "_zero")));
  TW_ASSIGN(q.bytes, g.Emit("quantize", {x, q.scale, q.zero}, {}, n.output_name()));
  return q;
}

Result ImportDynamicQuantizeLinear(NodeReader& n) {
  TW_ASSIGN(const ValueId x, n.Input(0));
  TW_ASSIGN(const DynamicBytes q, DynamicallyQuantized(n, x));
  TW_TRY(n.BindOutput(1, q.scale));
  TW_TRY(n.BindOutput(2, q.zero));
  return q.bytes;
}

Result ImportMatMulInteger(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  TW_ASSIGN(a, WithoutZero(n, a, 2, RowAxis(n.importer().TypeOf(a)), "_a"));
  TW_ASSIGN(b, WithoutZero(n, b, 3, ColumnAxis(n.importer().TypeOf(b)), "_b"));
  return EmitMatMul(n, a, b, n.output_name());
}

Result ImportConvInteger(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId w, n.Input(1));
  TW_ASSIGN(x, WithoutZero(n, x, 2, /*axis=*/1, "_x"));
  TW_ASSIGN(w, WithoutZero(n, w, 3, /*axis=*/0, "_w"));
  return EmitConv(n, {x, w}, n.output_name());
}

Result ImportQLinearConv(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId w, n.Input(3));
  const size_t rank = n.importer().TypeOf(x).shape.size();
  TW_ASSIGN(x, WithoutZero(n, x, 2, /*axis=*/1, "_x"));
  TW_ASSIGN(w, WithoutZero(n, w, 5, /*axis=*/0, "_w"));
  std::vector<ValueId> operands = {x, w};
  if (n.HasInput(8)) {
    TW_ASSIGN(const ValueId bias, n.Input(8));
    operands.push_back(bias);
  }
  TW_ASSIGN(const ValueId sums, EmitConv(n, operands, PartName(n, "_sums")));
  TW_ASSIGN(ValueId x_scale, n.Input(1));
  TW_ASSIGN(ValueId w_scale, n.Input(4));
  TW_ASSIGN(x_scale, Aligned(n, x_scale, 1, rank, PartName(n, "_x_scale")));
  TW_ASSIGN(w_scale, Aligned(n, w_scale, 1, rank, PartName(n, "_w_scale")));
  TW_ASSIGN(const Parameters y, ReadParameters(n, 6, ir::kU8, 1, rank, "_y"));
  return Requantized(n, sums, x_scale, w_scale, y);
}

Result ImportQLinearMatMul(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(3));
  const op::TensorType a_type = n.importer().TypeOf(a), b_type = n.importer().TypeOf(b);
  TW_ASSIGN(a, WithoutZero(n, a, 2, RowAxis(a_type), "_a"));
  TW_ASSIGN(b, WithoutZero(n, b, 5, ColumnAxis(b_type), "_b"));
  TW_ASSIGN(const ValueId sums, EmitMatMul(n, a, b, PartName(n, "_sums")));
  const op::TensorType type = n.importer().TypeOf(sums);
  TW_ASSIGN(ValueId a_scale, n.Input(1));
  TW_ASSIGN(ValueId b_scale, n.Input(4));
  TW_ASSIGN(a_scale,
            Aligned(n, a_scale, RowAxis(type), type.shape.size(), PartName(n, "_a_scale")));
  TW_ASSIGN(b_scale,
            Aligned(n, b_scale, ColumnAxis(type), type.shape.size(), PartName(n, "_b_scale")));
  TW_ASSIGN(const Parameters y,
            ReadParameters(n, 6, ir::kU8, RowAxis(type), type.shape.size(), "_y"));
  return Requantized(n, sums, a_scale, b_scale, y);
}

}  // namespace tilewright::graph::onnx
