// What the graph passes share: who computes a value, constants as numbers, nodes in one line.
// Inside of compiler/graph. Free functions without state.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

bool IsConstant(const Graph& g, ValueId id);
// REQUIRES: IsConstant.
absl::StatusOr<op::RefTensor> ConstantTensor(const Graph& g, ValueId id);
ValueId AddTensor(Graph* g, const std::string& name, const op::RefTensor& tensor);
// A constant that holds `values` rounded to the element type.
ValueId AddRounded(Graph* g, const std::string& name, op::TensorType type,
                   std::vector<double> values);
// A constant of f32 in 16 bits, a constant of its own; -1 if it is none, or 16 bits do not hold its
// numbers.
absl::StatusOr<ValueId> AddHalf(Graph* g, ValueId id, ir::DType half);

bool Contains(const std::vector<ir::DType>& types, ir::DType type);
std::set<ValueId> OutputSet(const Graph& g);
// Which node produces each value; -1 for inputs and constants.
std::vector<int> Producers(const Graph& g);
Node MakeNode(std::string name, std::string op_name, std::vector<ValueId> inputs, ValueId output,
              op::Attrs attrs = {});
// [c] → [c,1,1,…], which broadcasts along dimension 1 of a tensor of this rank.
std::vector<int64_t> ChannelShape(int64_t channels, size_t rank);
// The number of each channel along `axis` (negative: from the end) of data of this shape; nothing
// where the tensor does not broadcast to it along that axis alone.
std::optional<std::vector<double>> PerChannel(const op::RefTensor& tensor,
                                              const std::vector<op::Dim>& shape, int64_t axis);
// Whether data and weights have the layouts that the operator's row says.
bool LiesPlain(const Node& node);
// The layout of the weights; nothing where the operator has none, or they lie in blocks.
std::optional<op::Layout> UncutWeights(const Node& node);
// An attribute as the text form writes it; equal texts mean equal values.
std::string AttrText(const op::AttrValue& value);

}  // namespace tilewright::graph
