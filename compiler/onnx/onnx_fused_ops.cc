// Operators that ONNX Runtime makes of several of ONNX's: activations with a bias, norms of sums,
// products with transposes, factors and activations, products of bytes that give floats.
#include <algorithm>
#include <numeric>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_norm_ops.h"
#include "compiler/onnx/onnx_quantized_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// An activation that an attribute names, with its numbers in order (alpha, beta).
struct Activation {
  std::string_view onnx, row;
  std::vector<std::string_view> attributes;
};
const std::vector<Activation>& Activations() {
  static const auto& rows = *new std::vector<Activation>{
      {"Clip", "clip", {"min", "max"}},
      {"Elu", "elu", {"alpha"}},
      {"HardSigmoid", "hard_sigmoid", {"alpha", "beta"}},
      {"LeakyRelu", "leaky_relu", {"alpha"}},
      {"Relu", "relu", {}},
      {"Sigmoid", "sigmoid", {}},
      {"Tanh", "tanh", {}},
  };
  return rows;
}

// y after the activation that the node names; y itself where it names none.
Result Activated(Composer& c, ValueId y, const std::vector<double>& numbers) {
  NodeReader& n = c.node();
  TW_TRY(c.status());
  TW_ASSIGN(const std::string name, n.String("activation", ""));
  if (name.empty()) return y;
  if (name == "Silu") return c.Done(c.Mul(y, c.Op("sigmoid", {y})));
  std::vector<std::string_view> known = {"Silu"};
  for (const Activation& a : Activations()) {
    known.push_back(a.onnx);
    if (a.onnx != name) continue;
    if (numbers.size() < a.attributes.size()) {
      return n.Error("attribute",
                     StrCat("expected ", a.attributes.size(), " numbers of activation ", name,
                            ", found ", numbers.size()));
    }
    op::Attrs attrs;
    for (size_t i = 0; i < a.attributes.size(); ++i) {
      attrs[std::string(a.attributes[i])] = numbers[i];
    }
    return c.Done(c.Op(a.row, {y}, attrs));
  }
  return n.Error("attribute",
                 StrCat("expected an activation among ", support::Join(known, ", "), ", found ",
                        name, "; export the model without fusing activations"));
}

// The order of axes that brings the first one behind the other batch axes (`batch`) and then swaps
// the last two (`rows`).
ValueId Turned(Composer& c, ValueId x, bool rows, bool batch) {
  const int64_t rank = c.Rank(x);
  if (!c.ok() || rank < 2 || (!rows && !batch)) return x;
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (batch) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (rows) std::swap(order[rank - 1], order[rank - 2]);
  return c.Transpose(x, order);
}

// The first two inputs and the bias of this one, which may be left out.
ValueId SumWithSkip(Composer& c, int bias) {
  const ValueId sum = c.Add(c.Input(0), c.Input(1));
  return c.node().HasInput(bias) ? c.Add(sum, c.Input(bias)) : sum;
}

// Sums of products of bytes as floats, plus the bias of this input.
Result WithBias(NodeReader& n, ValueId sums, ValueId a_scale, ValueId b_scale, int bias) {
  const op::TensorType type = n.importer().TypeOf(sums);
  const size_t rank = type.shape.size();
  TW_ASSIGN(a_scale, Aligned(n, a_scale, RowAxis(type), rank, PartName(n, "_a_scale")));
  TW_ASSIGN(b_scale, Aligned(n, b_scale, ColumnAxis(type), rank, PartName(n, "_b_scale")));
  TW_ASSIGN(const ValueId y, FloatsOfSums(n, sums, a_scale, b_scale));
  if (!n.HasInput(bias)) return y;
  TW_ASSIGN(const ValueId addend, n.Input(bias));
  return n.importer().Emit("add", {y, addend}, {}, n.output_name());
}

}  // namespace

// BiasGelu, which is exact, and FastGelu, which is the form with tanh; the bias may be left out.
Result ImportBiasGelu(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  if (n.HasInput(1)) x = c.Add(x, c.Input(1));
  return c.Done(c.Op(n.op_type() == "FastGelu" ? "gelu_tanh" : "gelu", {x}));
}

Result ImportQuickGelu(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_ASSIGN(const double alpha, n.Float("alpha", 1.702));
  return c.Done(c.Mul(x, c.Op("sigmoid", {c.Mul(x, c.Scalar(alpha, c.TypeOf(x).dtype))})));
}

// The norm of a sum, which is the fourth output.
Result ImportSkipLayerNorm(NodeReader& n) {
  Composer c(n);
  const ValueId sum = SumWithSkip(c, 4), scale = c.Input(2);
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-12));
  TW_TRY(c.status());
  const Standard s = StandardizeRows(c, sum, epsilon);
  ValueId y = c.Mul(s.normalized, scale);
  if (n.HasInput(3)) y = c.Add(y, c.Input(3));
  TW_TRY(c.status());
  if (n.HasOutput(1)) TW_TRY(n.BindOutput(1, s.mean));
  if (n.HasOutput(2)) TW_TRY(n.BindOutput(2, c.Op("reciprocal", {s.deviation})));
  if (n.HasOutput(3)) TW_TRY(n.BindOutput(3, sum));
  return c.Done(y);
}

Result ImportSkipSimplifiedLayerNorm(NodeReader& n) {
  Composer c(n);
  const ValueId sum = SumWithSkip(c, 3), scale = c.Input(2);
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-12));
  TW_TRY(c.status());
  const ValueId y = c.Mul(DividedByRms(c, sum, {c.Rank(sum) - 1}, epsilon), scale);
  TW_TRY(c.status());
  if (n.HasOutput(3)) TW_TRY(n.BindOutput(3, sum));
  return c.Done(y);
}

Result ImportFusedMatMul(NodeReader& n) {
  Composer c(n);
  ValueId a = c.Input(0), b = c.Input(1);
  TW_ASSIGN(const int64_t rows_a, n.Int("transA", 0));
  TW_ASSIGN(const int64_t rows_b, n.Int("transB", 0));
  TW_ASSIGN(const int64_t batch_a, n.Int("transBatchA", 0));
  TW_ASSIGN(const int64_t batch_b, n.Int("transBatchB", 0));
  TW_ASSIGN(const double alpha, n.Float("alpha", 1));
  a = Turned(c, a, rows_a != 0, batch_a != 0);
  b = Turned(c, b, rows_b != 0, batch_b != 0);
  const ValueId y = c.MatMul(a, b);
  return c.Done(alpha == 1 ? y : c.Mul(y, c.Scalar(alpha, c.TypeOf(y).dtype)));
}

Result ImportFusedGemm(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const ValueId y, ImportGemm(n));
  std::vector<double> numbers;
  for (const char* name : {"activation_alpha", "activation_beta"}) {
    if (n.Find(name) == nullptr) break;
    TW_ASSIGN(const double number, n.Float(name, 0));
    numbers.push_back(number);
  }
  return Activated(c, y, numbers);
}

// A convolution, plus Z where there is one, then the activation.
Result ImportFusedConv(NodeReader& n) {
  Composer c(n);
  std::vector<ValueId> operands = {c.Input(0), c.Input(1)};
  if (n.HasInput(2)) operands.push_back(c.Input(2));
  TW_TRY(c.status());
  TW_ASSIGN(ValueId y, EmitConv(n, operands, n.output_name()));
  if (n.HasInput(3)) y = c.Add(y, c.Input(3));
  std::vector<double> numbers;
  if (const pb::AttributeProto* params = n.Find("activation_params")) {
    numbers.assign(params->floats().begin(), params->floats().end());
  }
  return Activated(c, y, numbers);
}

Result ImportMatMulIntegerToFloat(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  TW_ASSIGN(const ValueId a_scale, n.Input(2));
  TW_ASSIGN(const ValueId b_scale, n.Input(3));
  TW_ASSIGN(a, WithoutZero(n, a, 4, RowAxis(n.importer().TypeOf(a)), "_a"));
  TW_ASSIGN(b, WithoutZero(n, b, 5, ColumnAxis(n.importer().TypeOf(b)), "_b"));
  TW_ASSIGN(const ValueId sums, EmitMatMul(n, a, b, PartName(n, "_sums")));
  return WithBias(n, sums, a_scale, b_scale, 6);
}

Result ImportDynamicQuantizeMatMul(NodeReader& n) {
  TW_ASSIGN(const ValueId x, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  TW_ASSIGN(const ValueId b_scale, n.Input(2));
  TW_ASSIGN(const DynamicBytes q, DynamicallyQuantized(n, x));
  TW_ASSIGN(const ValueId a, CentredBy(n, q.bytes, q.zero, RowAxis(n.importer().TypeOf(x)), "_a"));
  TW_ASSIGN(b, WithoutZero(n, b, 3, ColumnAxis(n.importer().TypeOf(b)), "_b"));
  TW_ASSIGN(const ValueId sums, EmitMatMul(n, a, b, PartName(n, "_sums")));
  return WithBias(n, sums, q.scale, b_scale, 4);
}

}  // namespace tilewright::graph::onnx
