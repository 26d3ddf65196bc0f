#include "compiler/op/empty.h"

#include <algorithm>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

bool HasNoElements(const TensorType& type) { return type.fixed() && type.elements() == 0; }

}  // namespace

absl::Status CheckShape(const TensorType& type) {
  TensorType filled = type;
  for (Dim& dim : filled.shape) dim = dim == Dim(0) ? Dim(1) : dim;
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
  if (!types[0].fixed()) {
    return OpError(spec.name, "empty",
                   StrCat("expected a result of fixed sizes of operands without elements, found ",
                          ToText(types[0])));
  }
  if (HasNoElements(types[0])) return RefTensor{types[0], {}};
  if (spec.of_empty == nullptr) {
    return OpError(
        spec.name, "empty",
        StrCat("expected operands with elements for a result ", ToText(types[0]), ", found ",
               ToText(*std::find_if(inputs.begin(), inputs.end(), HasNoElements))));
  }
  TW_ASSIGN(RefTensor result, spec.of_empty(types[0].dtype, attrs));
  result.type = types[0];
  return result;
}

}  // namespace tilewright::op
