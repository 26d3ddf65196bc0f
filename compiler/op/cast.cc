// cast: every element as another type. Floats become integers by truncation, and saturate; NaN
// becomes 0; integers keep their low bits; bool is "not zero". One rule for the reference, the
// interpreter and generated code.
#include "compiler/ir/numeric.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "cast";

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities*) {
  const std::string name = GetString(attrs, "dtype", "");
  TensorType out = inputs[0];
  if (!ir::ParseType(name, &out.dtype) || out.dtype.lanes != 1) {
    return OpError(kOp, "attribute",
                   StrCat("expected the name of an element type as dtype, found '", name, "'"));
  }
  return TensorTypes{out};
}

ir::Expr Scalar(std::span<const ir::Expr> args, const Attrs& attrs) {
  ir::DType to = args[0]->dtype;
  ir::ParseType(GetString(attrs, "dtype", ""), &to);
  return to == args[0]->dtype ? args[0] : ir::Cast(to, args[0]);
}

absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType> outputs, const Attrs&) {
  const TensorType& to = outputs[0];
  const ir::DType from = inputs[0].type.dtype;
  if (from.is_float() && to.dtype.is_int()) {
    std::vector<int64_t> integers;
    for (double value : inputs[0].values) {
      integers.push_back(ir::CastFloatToInt(value, to.dtype));
    }
    return std::vector<RefTensor>{FromIntegers(to, integers)};
  }
  if (from.is_float()) {
    RefTensor out{to, inputs[0].values};
    for (double& value : out.values) value = RoundToType(value, to.dtype);
    return std::vector<RefTensor>{std::move(out)};
  }
  const std::vector<int64_t> integers = IntegersOf(inputs[0]);
  if (!to.dtype.is_float()) return std::vector<RefTensor>{FromIntegers(to, integers)};
  RefTensor out{to, {}};
  for (int64_t value : integers) out.values.push_back(ir::CastIntToFloat(value, from, to.dtype));
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

std::vector<OpSpec> CastRows() {
  OpSpec cast;
  cast.name = kOp;
  cast.onnx = {"Cast"};
  cast.fusion = FusionClass::kInjective;
  cast.infer = Infer;
  cast.scalar = Scalar;
  cast.reference = Plain;
  cast.reads_wide = true;
  cast.exact = true;
  return {cast};
}

}  // namespace tilewright::op
