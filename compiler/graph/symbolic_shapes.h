// Type rules of nodes over size variables, shared by the verifier and shape inference. Inside of
// compiler/graph. Pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/op/op.h"

namespace tilewright::graph {

// What the node's operator makes of its operands' dimensions; collects demanded equalities.
absl::StatusOr<op::TensorTypes> ResultTypes(const Graph& g, const Node& node,
                                            op::DimEqualities* equal);

// Whether an attribute is an expression over size variables. The result may be of fixed size then,
// such as one element of a slice at the end of an open length, and no constant.
bool IsOpen(const op::Attrs& attrs);
// The attributes at these sizes, which give the node's result this type.
op::Attrs AttrsAt(const op::OpSpec& spec, op::Attrs attrs, const op::Sizes& sizes,
                  const op::TensorType& result);

}  // namespace tilewright::graph
