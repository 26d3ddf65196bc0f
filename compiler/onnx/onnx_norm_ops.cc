// Normalisations, as compositions of reductions and elementwise rows.
#include "compiler/onnx/onnx_norm_ops.h"

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

Standard Standardize(Composer& c, ValueId x, const std::vector<int64_t>& axes, double epsilon) {
  const ValueId mean = c.Reduce("mean", x, axes);
  const ValueId centred = c.Sub(x, mean);
  const ValueId variance = c.Reduce("mean", c.Mul(centred, centred), axes);
  const ValueId deviation = c.Op("sqrt", {c.Add(variance, c.Scalar(epsilon, c.TypeOf(x).dtype))});
  return {mean, deviation, c.Div(centred, deviation)};
}

Standard StandardizeRows(Composer& c, ValueId x, double epsilon) {
  const ir::DType type = c.TypeOf(x).dtype;
  x = c.Cast(x, type.bits == 16 ? ir::kF32 : type);
  Standard s = Standardize(c, x, {c.Rank(x) - 1}, epsilon);
  s.normalized = c.Cast(s.normalized, type);
  return s;
}

ValueId DividedByRms(Composer& c, ValueId x, const std::vector<int64_t>& axes, double epsilon) {
  const ValueId mean = c.Reduce("mean", c.Mul(x, x), axes);
  return c.Div(x, c.Op("sqrt", {c.Add(mean, c.Scalar(epsilon, c.TypeOf(x).dtype))}));
}

namespace {

using support::StrCat;

std::vector<int64_t> AxesFrom(int64_t first, int64_t rank) {
  std::vector<int64_t> axes;
  for (int64_t d = first; d < rank; ++d) axes.push_back(d);
  return axes;
}

// The precision of the first stage: the type that `stash_type` names.
absl::StatusOr<ir::DType> StashType(NodeReader& n) {
  TW_ASSIGN(const ir::DType type, ReadType(n, "stash_type", ir::kF32));
  if (!type.is_float()) return n.Error("attribute", "expected a float type as stash_type");
  return type;
}

// f32 at least: `stash_type` never makes the computation narrower than the data.
ir::DType Wider(ir::DType a, ir::DType b) { return a.bytes() > b.bytes() ? a : b; }

// A parameter per channel, as it broadcasts against x [n, c, ...].
ValueId PerChannel(Composer& c, ValueId parameter, int64_t rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank) - 1, 1);
  // A list of fixed length, or one number.
  const std::vector<int64_t> own = c.Shape(parameter);
  if (!c.ok()) return kNone;
  shape[0] = own.empty() ? 1 : c.TypeOf(parameter).elements();
  return c.Reshape(parameter, shape);
}

}  // namespace

Result ImportLayerNorm(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0), scale = c.Input(1);
  const ValueId bias = c.OptionalInput(2);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -1, c.Rank(x)));
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  TW_ASSIGN(const ir::DType stash, StashType(n));
  const op::TensorType type = c.TypeOf(x);
  x = c.Cast(x, Wider(stash, type.dtype));
  const Standard s = Standardize(c, x, AxesFrom(axis, c.Rank(x)), epsilon);
  ValueId y = c.Mul(c.Cast(s.normalized, type.dtype), scale);
  if (bias != kNone) y = c.Add(y, bias);
  // Open dimensions are settled with the rest of the graph.
  const bool fixed = type.fixed() && c.TypeOf(y).fixed();
  if (c.ok() && fixed && c.TypeOf(y).shape != type.shape) {
    c.Fail("shape", StrCat("expected scale and bias that broadcast to ", op::ToText(type)));
  }
  TW_TRY(c.status());
  if (n.HasOutput(1)) TW_TRY(n.BindOutput(1, c.Cast(s.mean, stash)));
  if (n.HasOutput(2)) {
    TW_TRY(n.BindOutput(2, c.Cast(c.Op("reciprocal", {s.deviation}), stash)));
  }
  return c.Done(y);
}

Result ImportRmsNorm(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  const ValueId scale = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -1, c.Rank(x)));
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  TW_ASSIGN(const ir::DType stash, StashType(n));
  const ir::DType type = c.TypeOf(x).dtype, result = c.TypeOf(scale).dtype;
  x = c.Cast(x, Wider(stash, type));
  const ValueId y = DividedByRms(c, x, AxesFrom(axis, c.Rank(x)), epsilon);
  return c.Done(c.Mul(c.Cast(c.Cast(y, type), result), scale));
}

Result ImportInstanceNorm(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), scale = c.Input(1), bias = c.Input(2);
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  const int64_t rank = c.Rank(x);
  if (c.ok() && rank < 3) c.Fail("rank", "expected spatial dimensions, found none");
  TW_TRY(c.status());
  const Standard s = Standardize(c, x, AxesFrom(2, rank), epsilon);
  return c.Done(c.Add(c.Mul(s.normalized, PerChannel(c, scale, rank)), PerChannel(c, bias, rank)));
}

// Statistics per group of channels. Scale and bias are per group in opset 18, per channel later.
Result ImportGroupNorm(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0), scale = c.Input(1), bias = c.Input(2);
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(x);
  const int64_t rank = c.Rank(x);
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  TW_ASSIGN(const int64_t groups, n.Int("num_groups", 0));
  TW_ASSIGN(const ir::DType stash, StashType(n));
  if (rank >= 2 && !type.shape[1].is_constant()) {
    return n.Error("open_size",
                   StrCat("expected a fixed number of channels, found ", op::ToText(type)));
  }
  if (rank < 2 || groups < 1 || type.size(1) % groups != 0) {
    return n.Error("attribute", StrCat("expected num_groups that divides the channels of ",
                                       op::ToText(type), ", found ", groups));
  }
  const int64_t width = type.size(1) / groups;
  const bool per_group = n.importer().opset() < 21;
  for (ValueId* parameter : {&scale, &bias}) {
    const int64_t count = per_group ? groups : type.size(1);
    if (c.Dims(*parameter) != std::vector<op::Dim>{count}) {
      return n.Error("shape", StrCat("expected scale and bias of [", count, "], found ",
                                     op::ToText(c.TypeOf(*parameter))));
    }
    if (per_group) {
      *parameter = c.Broadcast(c.Reshape(*parameter, {groups, 1}), {groups, width});
      *parameter = c.Reshape(*parameter, {type.size(1)});
    }
  }
  const ir::DType wide = n.importer().opset() < 21 ? type.dtype : Wider(stash, type.dtype);
  op::Dim elements = width;  // of a group
  for (int64_t d = 2; d < rank; ++d) elements = elements * type.shape[d];
  x = c.ReshapeTo(c.Cast(x, wide), {type.shape[0], groups, elements});
  const Standard s = Standardize(c, x, {2}, epsilon);
  const ValueId y = c.ReshapeTo(c.Cast(s.normalized, type.dtype), type.shape);
  return c.Done(c.Add(c.Mul(y, PerChannel(c, scale, rank)), PerChannel(c, bias, rank)));
}

// (x - mean) / (deviation + 1e-9), as the function in ONNX's definition has it.
Result ImportMeanVarianceNorm(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(std::vector<int64_t> axes, n.Ints("axes", {0, 2, 3}));
  const ValueId mean = c.Reduce("mean", x, axes);
  const ValueId centred = c.Sub(x, mean);
  const ValueId variance = c.Reduce("mean", c.Mul(centred, centred), axes);
  const ValueId deviation = c.Op("sqrt", {variance});
  return c.Done(c.Div(centred, c.Add(deviation, c.Scalar(1e-9, c.TypeOf(x).dtype))));
}

namespace {

// Statistics of each element of an image rather than of its channel (`spatial` 0, up to opset 8):
// parameters of [c, h, w, ...].
Result NormOfElements(NodeReader& n, const std::vector<ValueId>& in, double epsilon) {
  Composer c(n);
  const ValueId deviation = c.Op("sqrt", {c.Add(in[4], c.Scalar(epsilon, c.TypeOf(in[4]).dtype))});
  const ValueId factor = c.Div(in[1], deviation);
  return c.Done(c.Add(c.Mul(in[0], factor), c.Sub(in[2], c.Mul(in[3], factor))));
}

// By the statistics of the operand itself (`training_mode` 1), as layers that standardise their
// weights are exported; the running ones move towards these.
Result NormOfBatch(NodeReader& n, const std::vector<ValueId>& in, double epsilon) {
  Composer c(n);
  TW_ASSIGN(const double momentum, n.Float("momentum", 0.9));
  const ValueId x = in[0];
  const int64_t rank = c.Rank(x);
  if (rank < 2) return n.Error("shape", "expected a batch of channels, found another operand");
  std::vector<int64_t> axes = AxesFrom(2, rank);
  axes.insert(axes.begin(), 0);
  const Standard s = Standardize(c, x, axes, epsilon);
  const auto running = [&](ValueId before, ValueId now) {
    const ir::DType type = c.TypeOf(before).dtype;
    return c.Add(c.Mul(before, c.Scalar(momentum, type)),
                 c.Mul(c.Cast(c.Reshape(now, {-1}), type), c.Scalar(1 - momentum, type)));
  };
  if (n.HasOutput(1)) TW_TRY(n.BindOutput(1, running(in[3], s.mean)));
  if (n.HasOutput(2)) {
    const ValueId centred = c.Sub(x, s.mean);
    const ValueId variance = c.Reduce("mean", c.Mul(centred, centred), axes);
    TW_TRY(n.BindOutput(2, running(in[4], variance)));
  }
  return c.Done(c.Add(c.Mul(s.normalized, PerChannel(c, in[1], rank)), PerChannel(c, in[2], rank)));
}

}  // namespace

Result ImportBatchNorm(NodeReader& n) {
  std::vector<ValueId> inputs;
  for (int i = 0; i < 5; ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    inputs.push_back(id);
  }
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  TW_ASSIGN(const int64_t training, n.Int("training_mode", 0));
  TW_ASSIGN(const int64_t spatial, n.Int("spatial", 1));
  TW_ASSIGN(const int64_t is_test, n.Int("is_test", 0));
  // Before opset 7 training has results of its own, and says so.
  const bool trained = n.importer().opset() < 7 && is_test == 0 && n.HasOutput(1);
  if (trained) return n.Error("attribute", "expected inference mode, found training");
  if (training != 0) return NormOfBatch(n, inputs, epsilon);
  if (spatial == 0) return NormOfElements(n, inputs, epsilon);
  return n.importer().Emit("batch_norm", inputs, {{"epsilon", epsilon}}, n.output_name());
}

Result ImportSoftmax(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  const bool rows =
      n.importer().opset() < 13;  // older versions normalise all that follows the axis
  TW_ASSIGN(int64_t axis, n.Int("axis", rows ? 1 : -1));
  if (axis < -rank || axis >= rank) {
    return n.Error("attribute", StrCat("expected an axis of rank ", rank, ", found ", axis));
  }
  if (axis < 0) axis += rank;
  if (!rows || axis == rank - 1) {
    return n.importer().Emit("softmax", {x}, {{"axis", axis}}, n.output_name());
  }
  op::Dim outer = 1, inner = 1;
  for (int64_t d = 0; d < rank; ++d) {
    op::Dim& side = d < axis ? outer : inner;
    side = side * shape[d];
  }
  TW_ASSIGN(x, ReshapedTo(n, x, {outer, inner}, PartName(n, "_rows")));
  TW_ASSIGN(x, n.importer().Emit("softmax", {x}, {{"axis", int64_t{1}}}, PartName(n, "_softmax")));
  return ReshapedTo(n, x, shape, n.output_name());
}

// x / norm; zeros where the norm is zero.
Result ImportLpNorm(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -1, c.Rank(x)));
  TW_ASSIGN(const int64_t p, n.Int("p", 2));
  if (p != 1 && p != 2) return n.Error("attribute", StrCat("expected p 1 or 2, found ", p));
  ValueId norm = c.Reduce("sum", p == 1 ? c.Op("abs", {x}) : c.Mul(x, x), {axis});
  if (p == 2) norm = c.Op("sqrt", {norm});
  // All x of a zero norm are zeros: any other divisor gives the zeros that are asked for.
  const ir::DType type = c.TypeOf(x).dtype;
  const double tiny = type == ir::kF64 ? 1e-300 : type == ir::kF32 ? 1.2e-38 : 6e-8;
  return c.Done(c.Div(x, c.Op("max", {c.Scalar(tiny, type), norm})));
}

}  // namespace tilewright::graph::onnx
