// ONNX Runtime's operators on bytes with one scale and one zero point for each tensor: from bytes
// to floats, the operator in floats, and back to bytes. The passes for quantised models make
// integer kernels of them where they can. QGemm is a product of integers, as QLinearMatMul is.
#include <algorithm>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_quantized_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// A scale or zero point of a whole tensor.
ValueId OfTensor(Composer& c, int input) {
  const ValueId parameter = c.Input(input);
  const op::TensorType type = c.TypeOf(parameter);
  if (c.ok() && (!type.fixed() || type.elements() != 1)) {
    return c.Fail("shape", StrCat("expected one scale and one zero point for a tensor, found ",
                                  op::ToText(type), "; quantise it per tensor"));
  }
  return c.Reshape(parameter, {});
}

ValueId ZeroPoint(Composer& c, int input, ir::DType type) {
  return c.node().HasInput(input) ? OfTensor(c, input) : c.Scalar(0, type);
}

// The floats of input `x`, whose scale and zero point are the next two inputs.
ValueId Floats(Composer& c, int x) {
  const ValueId bytes = c.Input(x);
  const ValueId scale = OfTensor(c, x + 1);
  return c.Op("dequantize", {bytes, scale, ZeroPoint(c, x + 2, c.TypeOf(bytes).dtype)});
}

// Bytes of the type of the first operand, with the scale and zero point of these inputs.
Result Bytes(Composer& c, ValueId y, int scale, int first_operand = 0) {
  const ir::DType type = c.TypeOf(c.Input(first_operand)).dtype;
  const ValueId step = OfTensor(c, scale);
  return c.Done(c.Op("quantize", {y, step, ZeroPoint(c, scale + 1, type)}));
}

absl::StatusOr<bool> ChannelsLast(NodeReader& n) {
  TW_ASSIGN(const int64_t last, n.Int("channels_last", 0));
  return last != 0;
}

// The order of axes that makes [n, ..., c] of [n, c, ...], or the other way round.
std::vector<int64_t> MovedChannels(int64_t rank, bool to_last) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; ++d) order[d] = d;
  if (to_last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  if (!to_last) std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return order;
}

}  // namespace

Result ImportQLinearArithmetic(NodeReader& n) {
  Composer c(n);
  const ValueId a = Floats(c, 0), b = Floats(c, 3);
  return Bytes(c, n.op_type() == "QLinearAdd" ? c.Add(a, b) : c.Mul(a, b), 6);
}

// QLinearSigmoid and QLinearLeakyRelu.
Result ImportQLinearElementwise(NodeReader& n) {
  Composer c(n);
  const ValueId x = Floats(c, 0);
  if (n.op_type() == "QLinearSigmoid") return Bytes(c, c.Op("sigmoid", {x}), 3);
  TW_ASSIGN(const double alpha, n.Float("alpha", 0.01));
  return Bytes(c, c.Op("leaky_relu", {x}, {{"alpha", alpha}}), 3);
}

Result ImportQLinearConcat(NodeReader& n) {
  Composer c(n);
  if (n.num_inputs() < 5 || n.num_inputs() % 3 != 2) {
    return n.Error("inputs", StrCat("expected a scale, a zero point, and then tensors with scale "
                                    "and zero point each, found ",
                                    n.num_inputs(), " inputs"));
  }
  std::vector<ValueId> parts;
  for (int i = 2; i < n.num_inputs(); i += 3) parts.push_back(Floats(c, i));
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, c.Rank(parts[0])));
  return Bytes(c, c.Concat(parts, axis), 0, 2);
}

Result ImportQLinearAveragePool(NodeReader& n) {
  Composer c(n);
  ValueId x = Floats(c, 0);
  TW_TRY(c.status());
  TW_ASSIGN(const bool last, ChannelsLast(n));
  const int64_t rank = c.Rank(x);
  if (rank < 3) return n.Error("rank", "expected spatial dimensions, found none");
  if (last) x = c.Transpose(x, MovedChannels(rank, false));
  TW_TRY(c.status());
  TW_ASSIGN(ValueId y, EmitPool(n, x));
  if (last) y = c.Transpose(y, MovedChannels(rank, true));
  return Bytes(c, y, 3);
}

Result ImportQLinearGlobalAveragePool(NodeReader& n) {
  Composer c(n);
  const ValueId x = Floats(c, 0);
  TW_TRY(c.status());
  TW_ASSIGN(const bool last, ChannelsLast(n));
  const int64_t rank = c.Rank(x);
  if (rank < 3) return n.Error("rank", "expected spatial dimensions, found none");
  std::vector<int64_t> axes;
  for (int64_t d = 2; d < rank; ++d) axes.push_back(last ? d - 1 : d);
  return Bytes(c, c.Reduce("mean", x, axes), 3);
}

Result ImportQLinearReduceMean(NodeReader& n) {
  Composer c(n);
  const ValueId x = Floats(c, 0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t keepdims, n.Int("keepdims", 1));
  TW_ASSIGN(std::vector<int64_t> axes, ReadAxes(n, n.num_inputs(), c.Rank(x)));
  if (axes.empty()) {
    for (int64_t d = 0; d < c.Rank(x); ++d) axes.push_back(d);
  }
  return Bytes(c, c.Reduce("mean", x, axes, keepdims != 0), 3);
}

// Before opset 13, which an attribute says, all that follows the axis is one row.
Result ImportQLinearSoftmax(NodeReader& n) {
  Composer c(n);
  const ValueId x = Floats(c, 0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t opset, n.Int("opset", n.importer().opset()));
  const bool rows = opset < 13;
  TW_ASSIGN(const int64_t axis, ReadAxis(n, rows ? 1 : -1, c.Rank(x)));
  if (!rows) return Bytes(c, c.Op("softmax", {x}, {{"axis", axis}}), 3);
  const std::vector<op::Dim> shape = c.Dims(x);
  op::Dim outer = 1, inner = 1;
  for (int64_t d = 0; d < c.Rank(x); ++d) {
    op::Dim& side = d < axis ? outer : inner;
    side = side * shape[d];
  }
  const ValueId flat = c.Op("softmax", {c.ReshapeTo(x, {outer, inner})}, {{"axis", int64_t{1}}});
  return Bytes(c, c.ReshapeTo(flat, shape), 3);
}

Result ImportQLinearWhere(NodeReader& n) {
  Composer c(n);
  const ValueId x = Floats(c, 1), y = Floats(c, 4);
  return Bytes(c, c.Op("where", {c.Input(0), x, y}), 7, 1);
}

// alpha * A * B + C, where C is in steps of alpha * a_scale * b_scale; bytes where there is a
// y_scale, else floats. Scale and zero point of B may be per column.
Result ImportQGemm(NodeReader& n) {
  Composer c(n);
  ValueId a = c.Input(0), b = c.Input(3);
  ValueId a_scale = OfTensor(c, 1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t trans_a, n.Int("transA", 0));
  TW_ASSIGN(const int64_t trans_b, n.Int("transB", 0));
  TW_ASSIGN(const double alpha, n.Float("alpha", 1));
  if (c.Rank(a) != 2 || c.Rank(b) != 2) {
    return n.Error("rank", StrCat("expected two matrices, found ", op::ToText(c.TypeOf(a)), " and ",
                                  op::ToText(c.TypeOf(b))));
  }
  if (trans_a != 0) a = c.Transpose(a, {1, 0});
  TW_ASSIGN(a, WithoutZero(n, a, 2, RowAxis(c.TypeOf(a)), "_a"));
  TW_ASSIGN(b, WithoutZero(n, b, 5, trans_b != 0 ? 0 : 1, "_b"));
  const std::string layout = trans_b != 0 ? "NK" : "KN";
  ValueId sums = c.Op("dense", {a, b}, {{"weight_layout", layout}});
  const op::TensorType product = c.TypeOf(sums);
  if (n.HasInput(6)) sums = c.Add(sums, c.Input(6));
  TW_TRY(c.status());
  if (c.TypeOf(sums) != product) {
    return n.Error("shape", StrCat("expected C that broadcasts to ", op::ToText(product),
                                   ", found ", op::ToText(c.TypeOf(c.Input(6)))));
  }
  if (alpha != 1) a_scale = c.Mul(a_scale, c.Scalar(alpha, c.TypeOf(a_scale).dtype));
  TW_TRY(c.status());
  TW_ASSIGN(ValueId b_scale, n.Input(4));
  TW_ASSIGN(b_scale, Aligned(n, b_scale, 1, 2, PartName(n, "_b_scale")));
  if (!n.HasInput(7)) return FloatsOfSums(n, sums, a_scale, b_scale);
  const Parameters y{OfTensor(c, 7), ZeroPoint(c, 8, ir::kU8)};
  TW_TRY(c.status());
  return Requantized(n, sums, a_scale, b_scale, y);
}

}  // namespace tilewright::graph::onnx
