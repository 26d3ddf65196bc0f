// Sums or products of the first rows of a matrix, one kernel with a serial loop over the rows.
#include <string>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "cumulate";

bool Multiplies(const Attrs& attrs) { return GetString(attrs, "kind", "") == "prod"; }

// x [t,n] → [t + 1,n]: row i combines the first i rows of x; none of them give 0 or 1.
absl::StatusOr<TensorTypes> InferCumulate(std::span<const TensorType> inputs, const Attrs& attrs,
                                          DimEqualities*) {
  const std::string kind = GetString(attrs, "kind", "");
  if (kind != "sum" && kind != "prod") {
    return OpError(kOp, "attribute", StrCat("expected kind sum or prod, found ", kind));
  }
  if (inputs[0].rank() != 2) {
    return OpError(kOp, "shape", StrCat("expected a matrix, found ", ToText(inputs[0])));
  }
  return TensorTypes{{inputs[0].dtype, {inputs[0].shape[0] + Dim(1), inputs[0].shape[1]}}};
}

absl::StatusOr<std::vector<ir::Buffer>> BuildCumulate(const ComputeArgs& a) {
  const ir::Buffer& x = a.inputs[0];
  const ir::DType type = x->dtype;
  const bool multiplies = Multiplies(a.attrs);
  const ir::Expr first =
      type.is_float() ? ir::Float(multiplies ? 1 : 0, type) : ir::Int(multiplies ? 1 : 0, type);
  const ir::Buffer rows = a.b.State(a.name, type, x->shape[0], {x->shape[1]}, {"j"},
                                    [&](const std::vector<ir::Var>&) { return first; });
  a.b.BeginScan("t", x->shape[0]);
  a.b.Next(rows, {"j"}, [&](const std::vector<ir::Var>& v) {
    const ir::Expr before = ir::Load(rows, {v[0], v[1]}), next = ir::Load(x, {v[0], v[1]});
    return multiplies ? before * next : before + next;
  });
  a.b.EndScan();
  return std::vector<ir::Buffer>{rows};
}

// Rounds after each row, as the kernel does. Integers wrap, in 64 bits or less.
template <typename T, typename Combine>
std::vector<T> Cumulated(const std::vector<T>& x, int64_t columns, T neutral, Combine combine) {
  std::vector<T> out(static_cast<size_t>(columns), neutral);
  for (size_t i = 0; i < x.size(); ++i) out.push_back(combine(out[i], x[i]));
  return out;
}

absl::StatusOr<std::vector<RefTensor>> PlainCumulate(std::span<const RefTensor> inputs,
                                                     std::span<const TensorType> outputs,
                                                     const Attrs& attrs) {
  const RefTensor& x = inputs[0];
  const int64_t columns = x.type.size(1);
  const bool multiplies = Multiplies(attrs);
  if (!x.type.dtype.is_float()) {
    const auto wrapping = [&](int64_t a, int64_t b) {
      const auto u = static_cast<uint64_t>(a), v = static_cast<uint64_t>(b);
      return static_cast<int64_t>(multiplies ? u * v : u + v);
    };
    return std::vector<RefTensor>{FromIntegers(
        outputs[0], Cumulated<int64_t>(IntegersOf(x), columns, multiplies ? 1 : 0, wrapping))};
  }
  const auto rounded = [&](double a, double b) {
    return RoundToType(multiplies ? a * b : a + b, x.type.dtype);
  };
  return std::vector<RefTensor>{
      {outputs[0], Cumulated<double>(x.values, columns, multiplies ? 1 : 0, rounded)}};
}

}  // namespace

std::vector<OpSpec> CumulateRows() {
  OpSpec row;
  row.name = kOp;
  row.onnx = {"CumSum", "CumProd"};
  row.types = kNumbers;
  row.reads_wide = true;
  row.takes_empty = true;
  row.of_empty = [](ir::DType type, const Attrs& attrs) -> absl::StatusOr<RefTensor> {
    return RefTensor{{type, {}}, {Multiplies(attrs) ? 1.0 : 0.0}};
  };
  row.infer = InferCumulate;
  row.compute = BuildCumulate;
  row.flops = [](std::span<const TensorType> inputs, std::span<const TensorType>, const Attrs&) {
    return static_cast<double>(inputs[0].elements());
  };
  row.reduction_length = [](std::span<const TensorType> inputs, const Attrs&) {
    return static_cast<double>(inputs[0].size(0));
  };
  row.reference = PlainCumulate;
  return {row};
}

}  // namespace tilewright::op
