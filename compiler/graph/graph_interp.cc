// The reference interpreter of the graph IR: every node by op::Reference.
#include <optional>

#include "compiler/graph/graph.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {

using support::StrCat;

namespace {

// Compares the results of checks, and removes them.
absl::Status TakeChecks(const Graph& graph, std::vector<op::RefTensor>* outputs) {
  const size_t kept = outputs->size() - graph.checks.size();
  for (size_t i = 0; i < graph.checks.size(); ++i) {
    const SizeCheck& check = graph.checks[i];
    const std::vector<int64_t> found = op::IntegersOf((*outputs)[kept + i]);
    if (found == check.expected) continue;
    return support::InvalidArgument(
        "graph.interp.stated_shape",
        StrCat(check.what, ": the model states the sizes [", support::Join(check.expected, ","),
               "], the inputs make [", support::Join(found, ","), "]"));
  }
  outputs->resize(kept);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<op::RefTensor>> InterpretNode(const Node& node,
                                                         const std::vector<op::RefTensor>& args) {
  absl::StatusOr<std::vector<op::RefTensor>> results;
  if (node.body != nullptr) {
    results = Interpret(*node.body, args);
  } else {
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec == nullptr) {
      return support::InvalidArgument("graph.interp.operator",
                                      StrCat("expected a known operator, found ", node.op));
    }
    results = op::Reference(*spec, args, node.attrs);
  }
  if (!results.ok()) return support::WithContext(results.status(), node.name);
  return results;
}

absl::StatusOr<std::vector<op::RefTensor>> Interpret(const Graph& graph,
                                                     const std::vector<op::RefTensor>& inputs) {
  if (IsSymbolic(graph)) {
    return support::InvalidArgument(
        "graph.interp.symbolic", "expected fixed shapes, found size variables; specialize first");
  }
  if (inputs.size() != graph.inputs.size()) {
    return support::InvalidArgument(
        "graph.interp.inputs",
        StrCat("expected ", graph.inputs.size(), " inputs, found ", inputs.size()));
  }
  std::vector<std::optional<op::RefTensor>> values(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.values[graph.inputs[i]];
    if (inputs[i].type != value.type) {
      return support::InvalidArgument(
          "graph.interp.type",
          StrCat("expected ", op::ToText(value.type), " for input ", support::Quote(value.name),
                 ", found ", op::ToText(inputs[i].type)));
    }
    values[graph.inputs[i]] = inputs[i];
  }
  for (size_t id = 0; id < values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.constant == nullptr) continue;
    TW_ASSIGN(values[id], op::FromBytes(value.type, value.constant->view()));
  }
  for (const Node& node : graph.nodes) {
    std::vector<op::RefTensor> args;
    for (ValueId id : node.inputs) args.push_back(*values[id]);
    TW_ASSIGN(std::vector<op::RefTensor> results, InterpretNode(node, args));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      values[node.outputs[i]] = std::move(results[i]);
    }
  }
  std::vector<op::RefTensor> outputs;
  for (ValueId id : graph.outputs) outputs.push_back(*values[id]);
  TW_TRY(TakeChecks(graph, &outputs));
  return outputs;
}

}  // namespace tilewright::graph
