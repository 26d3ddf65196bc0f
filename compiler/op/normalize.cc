// normalize: rows of the last dimension, each by its own numbers. Attributes: kind, epsilon.
//   layer:  y = (x - mean) / √(mean of (x - mean)² + epsilon)
//   rms:    y = x / √(mean of x² + epsilon)
// The mean comes first and the squares are those of the differences: the mean of x² minus the
// square of the mean would cancel where the mean is far from zero. Scale and bias are operators of
// their own, which fusion puts into the kernel.
#include "compiler/op/normalize.h"

#include <cmath>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

bool TakesMeanOff(const Attrs& attrs) { return GetString(attrs, "kind", kLayerNorm) == kLayerNorm; }
double Epsilon(const Attrs& attrs) { return GetDouble(attrs, "epsilon", 1e-5); }

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities*) {
  const std::string kind = GetString(attrs, "kind", kLayerNorm);
  if ((kind != kLayerNorm && kind != kRmsNorm) || !(Epsilon(attrs) >= 0)) {
    return OpError(kNormalizeOp, "attribute",
                   StrCat("expected kind ", kLayerNorm, " or ", kRmsNorm,
                          " and an epsilon of 0 or more, found ", kind, " and ", Epsilon(attrs)));
  }
  if (inputs[0].shape.empty()) {
    return OpError(kNormalizeOp, "shape", "expected rows, found " + ToText(inputs[0]));
  }
  return TensorTypes{inputs[0]};
}

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Buffer& x = inputs[0];
  const ir::DType dtype = outputs[0].dtype;
  const Dim& length = types[0].shape.back();
  const std::vector<ir::Expr> rows(x->shape.begin(), x->shape.end() - 1);
  const ir::Expr count = length.is_constant()
                             ? ir::Float(static_cast<double>(length.value()), dtype)
                             : ir::Cast(dtype, SizeExpr(b, length));
  const auto row_of = [](std::vector<ir::Expr> index) {
    index.pop_back();
    return index;
  };
  // The sum of value(element) over each row.
  const auto sum = [&](std::string_view part,
                       const std::function<ir::Expr(const std::vector<ir::Expr>&)>& value) {
    const ir::Axis along = b.ReduceAxis("k", x->shape.back());
    return b.Reduce(StrCat(name, "_", part), dtype, rows, {}, {along}, ir::Combiner::kSum,
                    [&](const std::vector<ir::Var>& i) {
                      std::vector<ir::Expr> at = VarExprs(i);
                      at.push_back(along.var);
                      return value(at);
                    });
  };
  std::function<ir::Expr(const std::vector<ir::Expr>&)> centred =
      [&](const std::vector<ir::Expr>& at) { return ir::Load(x, at); };
  if (TakesMeanOff(attrs)) {
    const ir::Buffer total = sum("sum", centred);
    const ir::Buffer mean = b.Compute(
        name + "_mean", dtype, rows, {},
        [&](const std::vector<ir::Var>& i) { return ir::Load(total, VarExprs(i)) / count; });
    centred = [&x, mean, row_of](const std::vector<ir::Expr>& at) {
      return ir::Load(x, at) - ir::Load(mean, row_of(at));
    };
  }
  const ir::Buffer squares = sum("squares", [&](const std::vector<ir::Expr>& at) {
    const ir::Expr value = centred(at);
    return value * value;
  });
  // One division a row, not one an element.
  const ir::Buffer factor =
      b.Compute(name + "_factor", dtype, rows, {}, [&](const std::vector<ir::Var>& i) {
        const ir::Expr variance = ir::Load(squares, VarExprs(i)) / count;
        const ir::Expr sum = variance + ir::Float(Epsilon(attrs), dtype);
        return ir::Float(1, dtype) / ir::Call(ir::Intrinsic::kSqrt, {sum});
      });
  return std::vector<ir::Buffer>{
      b.Compute(name, dtype, x->shape, {}, [&](const std::vector<ir::Var>& i) {
        const std::vector<ir::Expr> at = VarExprs(i);
        return centred(at) * ir::Load(factor, row_of(at));
      })};
}

absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType>, const Attrs& attrs) {
  RefTensor out = inputs[0];
  const int64_t length = out.type.sizes().back();
  for (size_t start = 0; start < out.values.size(); start += static_cast<size_t>(length)) {
    const std::span<double> row(out.values.data() + start, static_cast<size_t>(length));
    double mean = 0, squares = 0;
    for (const double x : row) mean += x;
    mean = TakesMeanOff(attrs) ? mean / static_cast<double>(length) : 0;
    for (const double x : row) squares += (x - mean) * (x - mean);
    const double root = std::sqrt(squares / static_cast<double>(length) + Epsilon(attrs));
    for (double& x : row) x = (x - mean) / root;
  }
  return std::vector<RefTensor>{std::move(out)};
}

double NormalizeFlops(std::span<const TensorType> inputs, std::span<const TensorType>,
                      const Attrs& attrs) {
  return (TakesMeanOff(attrs) ? 6.0 : 3.0) * static_cast<double>(inputs[0].elements());
}

}  // namespace

std::vector<OpSpec> NormalizeRows() {
  OpSpec row;
  row.name = kNormalizeOp;
  row.fusion = FusionClass::kReduction;
  row.types = kFloats;
  row.infer = Infer;
  row.compute = Build;
  row.flops = NormalizeFlops;
  row.reduction_length = [](std::span<const TensorType> inputs, const Attrs&) {
    return static_cast<double>(inputs[0].sizes().back());
  };
  row.reference = Plain;
  return {row};
}

}  // namespace tilewright::op
