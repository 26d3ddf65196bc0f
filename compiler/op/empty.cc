#include "compiler/op/empty.h"

#include <algorithm>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

bool HasNoElements(const TensorType& type) { return type.elements() == 0; }

// What all elements of the result are: the sum of nothing, or what surrounds the operand.
absl::StatusOr<RefTensor> EmptyFill(const OpSpec& spec, std::span<const TensorType> inputs,
                                    const TensorType& type, const Attrs& attrs) {
  if (spec.name == "reduce") {
    TW_ASSIGN(RefTensor identity, ReductionIdentity(attrs, type.dtype));
    identity.type = type;
    return identity;
  }
  if (spec.name == "pad") {
    return RefTensor{type, {RoundToType(GetDouble(attrs, "value", 0), type.dtype)}};
  }
  if (spec.name == "dense" || spec.name == "matmul") return RefTensor{type, {0}};
  return OpError(spec.name, "empty",
                 StrCat("expected operands with elements for a result ", ToText(type), ", found ",
                        ToText(*std::find_if(inputs.begin(), inputs.end(), HasNoElements))));
}

}  // namespace

absl::Status CheckShape(const TensorType& type) {
  TensorType filled = type;
  for (int64_t& dim : filled.shape) dim = dim == 0 ? 1 : dim;
  return CheckType(filled);
}

absl::StatusOr<RefTensor> ResultOfEmpty(const OpSpec& spec, std::span<const TensorType> inputs,
                                        const Attrs& attrs) {
  if (!spec.elementwise() && !spec.takes_empty) {
    return OpError(spec.name, "empty",
                   StrCat("expected operands with elements, found ",
                          ToText(*std::find_if(inputs.begin(), inputs.end(), HasNoElements))));
  }
  TW_ASSIGN(const std::vector<TensorType> types, InferWith(CheckShape, spec, inputs, attrs));
  if (HasNoElements(types[0])) return RefTensor{types[0], {}};
  return EmptyFill(spec, inputs, types[0], attrs);
}

}  // namespace tilewright::op
