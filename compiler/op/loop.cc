// Loops of a graph: what they carry from trip to trip. No kernel computes these rows; what they
// mean is in compiler/graph/loops.h.
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr int kMostOperands = 1 << 12;

absl::Status Bad(std::string_view op, std::string_view reason, const std::string& detail) {
  return support::InvalidArgument(StrCat("op.", op, ".", reason), detail);
}

// What is carried has one type in every trip. Sizes that may be equal are noted.
absl::Status SameType(const TensorType& value, const TensorType& next, DimEqualities* equal) {
  bool same = value.dtype == next.dtype && value.rank() == next.rank();
  for (size_t d = 0; same && d < value.shape.size(); ++d) {
    const Dim &a = value.shape[d], &b = next.shape[d];
    if (a == b) continue;
    same = equal != nullptr && !(a.is_constant() && b.is_constant());
    if (same) equal->emplace_back(a, b);
  }
  if (same) return absl::OkStatus();
  return Bad("loop_end", "type",
             StrCat("expected a value of one type in every trip, found ", ToText(value), " and ",
                    ToText(next)));
}

absl::StatusOr<TensorTypes> InferEnd(std::span<const TensorType> inputs, const Attrs& attrs,
                                     DimEqualities* equal) {
  const int64_t carried = GetInt(attrs, "carried", 0);
  if (carried < 1 || 2 * carried > static_cast<int64_t>(inputs.size())) {
    return Bad("loop_end", "carried",
               StrCat("expected two operands for each of the values carried, found ", inputs.size(),
                      " for ", carried));
  }
  const auto count = static_cast<size_t>(carried);
  if (inputs[0] != TensorType{ir::kBool, std::vector<int64_t>{}}) {
    return Bad("loop_end", "condition",
               StrCat("expected a condition bool[], found ", ToText(inputs[0])));
  }
  for (size_t i = 0; i < count; ++i) TW_TRY(SameType(inputs[count + i], inputs[i], equal));
  return TensorTypes{inputs[0]};
}

absl::StatusOr<TensorTypes> InferStack(std::span<const TensorType> inputs, const Attrs& attrs,
                                       DimEqualities*) {
  TensorType result = inputs[1];
  const std::vector<Dim> sizes = GetDims(attrs, "sizes");
  if (sizes.size() != result.shape.size() + 1 || sizes[0] == Dim(-1)) {
    return Bad("loop_stack", "sizes", "expected the number of trips, then a size for each axis");
  }
  result.shape.insert(result.shape.begin(), sizes[0]);
  return TensorTypes{result};
}

OpSpec Row(std::string_view name, int inputs) {
  OpSpec row;
  row.name = name;
  row.min_inputs = row.max_inputs = inputs;
  row.control = true;
  row.flops = [](std::span<const TensorType>, std::span<const TensorType>, const Attrs&) {
    return 0.0;
  };
  return row;
}

}  // namespace

std::vector<OpSpec> LoopRows() {
  OpSpec value = Row("loop_value", 1);
  value.onnx = {"Loop", "Scan"};
  value.infer = [](std::span<const TensorType> inputs, const Attrs&,
                   DimEqualities*) -> absl::StatusOr<TensorTypes> {
    return TensorTypes{inputs[0]};
  };
  OpSpec end = Row("loop_end", 2);
  end.max_inputs = kMostOperands;
  end.infer = InferEnd;
  OpSpec result = Row("loop_result", 2);
  result.infer = [](std::span<const TensorType> inputs, const Attrs&,
                    DimEqualities*) -> absl::StatusOr<TensorTypes> {
    return TensorTypes{inputs[1]};
  };
  OpSpec stack = Row("loop_stack", 2);
  stack.infer = InferStack;
  stack.sizes_attr = "sizes";
  return {value, end, result, stack};
}

}  // namespace tilewright::op
