#include "compiler/graph/rewrite_util.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compiler/ir/numeric.h"
#include "deploy/support/status.h"

namespace tilewright::graph {

bool IsConstant(const Graph& g, ValueId id) { return g.values[id].constant != nullptr; }

absl::StatusOr<op::RefTensor> ConstantTensor(const Graph& g, ValueId id) {
  return op::FromBytes(g.values[id].type, g.values[id].constant->view());
}

ValueId AddTensor(Graph* g, const std::string& name, const op::RefTensor& tensor) {
  return AddConstant(g, name, tensor.type, op::ToBytes(tensor));
}

ValueId AddRounded(Graph* g, const std::string& name, op::TensorType type,
                   std::vector<double> values) {
  for (double& v : values) v = op::RoundToType(v, type.dtype);
  return AddTensor(g, name, {std::move(type), std::move(values)});
}

absl::StatusOr<ValueId> AddHalf(Graph* g, ValueId id, ir::DType half) {
  if (!IsConstant(*g, id) || g->values[id].type.dtype != ir::kF32) return -1;
  TW_ASSIGN(const op::RefTensor tensor, ConstantTensor(*g, id));
  const bool exact = std::all_of(tensor.values.begin(), tensor.values.end(),
                                 [&](double x) { return ir::RoundFloat(x, half) == x; });
  if (!exact) return -1;
  return AddRounded(g, g->values[id].name + "_half", {half, tensor.type.shape}, tensor.values);
}

bool Contains(const std::vector<ir::DType>& types, ir::DType type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::set<ValueId> OutputSet(const Graph& g) { return {g.outputs.begin(), g.outputs.end()}; }

std::vector<int> Producers(const Graph& g) {
  std::vector<int> producer(g.values.size(), -1);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    for (ValueId id : g.nodes[n].outputs) producer[id] = static_cast<int>(n);
  }
  return producer;
}

Node MakeNode(std::string name, std::string op_name, std::vector<ValueId> inputs, ValueId output,
              op::Attrs attrs) {
  Node node;
  node.name = std::move(name);
  node.op = std::move(op_name);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  node.outputs = {output};
  return node;
}

std::vector<int64_t> ChannelShape(int64_t channels, size_t rank) {
  std::vector<int64_t> shape(rank - 1, 1);
  shape[0] = channels;
  return shape;
}

std::optional<std::vector<double>> PerChannel(const op::RefTensor& tensor,
                                              const std::vector<op::Dim>& shape, int64_t axis) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis < 0) axis += rank;
  if (!shape[axis].is_constant()) return std::nullopt;
  const int64_t channels = shape[axis].value();
  const std::vector<int64_t> own = tensor.type.sizes();
  const int64_t skip = rank - static_cast<int64_t>(own.size());
  for (int64_t d = 0; d < static_cast<int64_t>(own.size()); ++d) {
    if (own[d] != 1 && d + skip != axis) return std::nullopt;
  }
  std::vector<double> values = tensor.values;
  if (values.size() == 1) values.assign(static_cast<size_t>(channels), tensor.values[0]);
  if (static_cast<int64_t>(values.size()) != channels) return std::nullopt;
  return values;
}

bool LiesPlain(const Node& node) {
  const op::OpSpec* spec = op::FindOp(node.op);
  const auto is = [&](std::string_view attr, std::string_view plain) {
    return op::GetString(node.attrs, attr, plain) == plain;
  };
  return spec != nullptr && is("data_layout", spec->data_layout) &&
         is("weight_layout", spec->weight_layout);
}

std::optional<op::Layout> UncutWeights(const Node& node) {
  const op::OpSpec* spec = op::FindOp(node.op);
  if (spec == nullptr || spec->weight_layout.empty()) return std::nullopt;
  absl::StatusOr<op::Layout> layout = op::WeightLayout(*spec, node.attrs);
  if (!layout.ok() || layout->is_cut()) return std::nullopt;
  return *std::move(layout);
}

}  // namespace tilewright::graph
