// Tensors without elements: some dimension is 0. No kernel and no reference sees one: a graph has
// them as inputs, outputs and constants only. What an operator makes of them follows from types
// and attributes. Free functions without state.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "compiler/op/op.h"

namespace tilewright::op {

// As CheckType, but dimensions may be 0. The product of the other dimensions has the same limit.
absl::Status CheckShape(const TensorType& type);

// The result of an operator, at least one operand of which has no elements. Has no values where
// the result has no elements either; else one value, which all elements have.
// REQUIRES: an operand has no elements.
// Errors: those of InferTypes; op.<name>.empty where the result needs an element that is missing.
absl::StatusOr<RefTensor> ResultOfEmpty(const OpSpec& spec, std::span<const TensorType> inputs,
                                        const Attrs& attrs);

}  // namespace tilewright::op
