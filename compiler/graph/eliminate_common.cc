// Common subexpressions: nodes with equal operators, attributes and operands compute one value;
// constants with equal types and bytes are one constant.
#include <map>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

// Operators are deterministic, so equal keys mean equal values.
std::string KeyOf(const Node& node) {
  std::string key = support::StrCat(node.op, "(", support::Join(node.inputs, ","), ")");
  for (const auto& [name, value] : node.attrs) {
    key += support::StrCat(" ", name, "=", AttrText(value));
  }
  return key;
}

}  // namespace

absl::StatusOr<Graph> EliminateCommon(Graph g, const GraphPassContext&) {
  std::vector<ValueId> replacement(g.values.size());
  std::map<std::pair<std::string, std::string_view>, ValueId> constants;  // type, bytes
  for (size_t id = 0; id < g.values.size(); ++id) {
    replacement[id] = static_cast<ValueId>(id);
    const Value& value = g.values[id];
    if (value.constant == nullptr) continue;
    const auto key = std::pair(op::ToText(value.type), value.constant->view());
    replacement[id] = constants.try_emplace(key, static_cast<ValueId>(id)).first->second;
  }
  const std::set<ValueId> outputs = OutputSet(g);
  std::map<std::string, size_t> seen;  // key → position in `result`
  std::vector<Node> result;
  for (Node& node : g.nodes) {
    for (ValueId& id : node.inputs) id = replacement[id];
    if (node.body != nullptr) {
      result.push_back(std::move(node));
      continue;
    }
    auto [it, fresh] = seen.try_emplace(KeyOf(node), result.size());
    if (fresh) {
      result.push_back(std::move(node));
      continue;
    }
    const size_t first = it->second;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId same = result[first].outputs[i], out = node.outputs[i];
      if (outputs.count(out) == 0) {
        replacement[out] = same;
      } else {  // keeps its name
        result.push_back(MakeNode(node.name, "identity", {same}, out));
      }
    }
  }
  g.nodes = std::move(result);
  return Compact(g);
}

}  // namespace tilewright::graph
