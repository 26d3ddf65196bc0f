#include "compiler/graph/forward_rewriter.h"

#include <algorithm>

#include "compiler/graph/symbolic_shapes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {

absl::StatusOr<Graph> ForwardRewriter::Run() {
  std::vector<Node> nodes = std::move(g_.nodes);
  g_.nodes.clear();
  for (Node& node : nodes) {
    for (ValueId& id : node.inputs) {
      if (static_cast<size_t>(id) < same_.size() && same_[id] >= 0) id = same_[id];
    }
    TW_ASSIGN(const bool rewritten, Rewrite(node));
    if (!rewritten) Add(std::move(node));
  }
  g_.nodes.assign(std::make_move_iterator(done_.begin()), std::make_move_iterator(done_.end()));
  return Compact(g_);
}

void ForwardRewriter::Add(Node node) {
  done_.push_back(std::move(node));
  before_.resize(g_.values.size(), nullptr);
  for (ValueId id : done_.back().outputs) before_[id] = &done_.back();
}

const Node* ForwardRewriter::Before(ValueId id, std::string_view op) const {
  const Node* node = static_cast<size_t>(id) < before_.size() ? before_[id] : nullptr;
  return node != nullptr && (op.empty() || node->op == op) ? node : nullptr;
}

absl::StatusOr<std::optional<op::RefTensor>> ForwardRewriter::Known(ValueId id) const {
  if (!TypeOf(id).fixed() || TypeOf(id).bytes() > max_known_bytes_) return std::nullopt;
  if (IsConstant(g_, id)) {
    TW_ASSIGN(op::RefTensor tensor, ConstantTensor(g_, id));
    return std::optional(std::move(tensor));
  }
  const Node* node = Before(id);
  const op::OpSpec* spec = node != nullptr ? op::FindOp(node->op) : nullptr;
  if (spec == nullptr || spec->fusion != op::FusionClass::kInjective) return std::nullopt;
  if (IsOpen(node->attrs)) return std::nullopt;
  std::vector<op::RefTensor> inputs;
  for (ValueId input : node->inputs) {
    TW_ASSIGN(std::optional<op::RefTensor> known, Known(input));
    if (!known) return std::nullopt;
    inputs.push_back(*std::move(known));
  }
  TW_ASSIGN(std::vector<op::RefTensor> results, op::Reference(*spec, inputs, node->attrs));
  return std::optional(std::move(results[0]));
}

absl::StatusOr<std::optional<double>> ForwardRewriter::KnownNumber(ValueId id) const {
  if (!TypeOf(id).fixed() || TypeOf(id).elements() != 1) return std::nullopt;
  TW_ASSIGN(const std::optional<op::RefTensor> tensor, Known(id));
  if (!tensor) return std::nullopt;
  return std::optional(tensor->values[0]);
}

absl::StatusOr<ValueId> ForwardRewriter::Emit(const std::string& name, std::string_view op,
                                              std::vector<ValueId> inputs, op::Attrs attrs) {
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) types.push_back(TypeOf(id));
  op::DimEqualities equal;  // hold at the sizes that the graph is used at
  TW_ASSIGN(const auto results, op::InferTypes(*op::FindOp(op), types, attrs, &equal));
  const ValueId out = AddValue(&g_, name, results[0]);
  Add(MakeNode(name, std::string(op), std::move(inputs), out, std::move(attrs)));
  return out;
}

void ForwardRewriter::Define(const Node& node, std::string_view op, std::vector<ValueId> inputs,
                             op::Attrs attrs) {
  Add(MakeNode(node.name, std::string(op), std::move(inputs), node.outputs[0], std::move(attrs)));
}

void ForwardRewriter::Same(const Node& node, ValueId id) {
  const ValueId out = node.outputs[0];
  if (outputs_.count(out) > 0) return Define(node, "identity", {id});
  same_.resize(g_.values.size(), -1);
  same_[out] = id;
}

}  // namespace tilewright::graph
