#include "compiler/graph/found_sizes.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

void AddVariables(const std::vector<op::Dim>& dims, std::set<std::string>* names) {
  for (const op::Dim& dim : dims) {
    if (!dim.is_constant()) names->merge(dim.variables());
  }
}

// What the node's kernel needs to know; sizes of operands alone are known where they were made.
std::set<std::string> VariablesOf(const Graph& graph, const Node& node) {
  std::set<std::string> names;
  if (node.body != nullptr) names = SizeVariables(*node.body);
  for (ValueId id : node.outputs) AddVariables(graph.values[id].type.shape, &names);
  for (const auto& [name, value] : node.attrs) {
    const auto* dims = std::get_if<std::vector<op::Dim>>(&value);
    if (dims != nullptr) AddVariables(*dims, &names);
  }
  return names;
}

// Which nodes each node has to come behind: of its operands, and of the sizes that it needs.
class FoundOrder {
 public:
  explicit FoundOrder(const Graph& graph) : graph_(graph), maker_(graph.values.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (ValueId id : graph.nodes[n].outputs) maker_[id] = n;
    }
    for (const auto& [name, place] : FoundSizes(graph)) {
      finder_[name] = maker_[LookedAt(graph, place.check)];
    }
  }

  std::set<size_t> Before(const Node& node) const {
    std::set<size_t> nodes;
    for (ValueId id : node.inputs) {
      if (maker_[id]) nodes.insert(*maker_[id]);
    }
    for (const std::string& name : VariablesOf(graph_, node)) {
      const auto finder = finder_.find(name);
      if (finder != finder_.end() && finder->second) nodes.insert(*finder->second);
    }
    return nodes;
  }

 private:
  const Graph& graph_;
  std::vector<std::optional<size_t>> maker_;             // by value
  std::map<std::string, std::optional<size_t>> finder_;  // by variable
};

}  // namespace

std::set<std::string> InputVariables(const Graph& graph) {
  std::set<std::string> names;
  for (ValueId id : graph.inputs) AddVariables(graph.values[id].type.shape, &names);
  return names;
}

ValueId LookedAt(const Graph& graph, size_t check) {
  return graph.outputs[graph.outputs.size() - graph.checks.size() + check];
}

std::map<std::string, FoundSize> FoundSizes(const Graph& graph) {
  std::map<std::string, FoundSize> found;
  if (graph.checks.empty()) return found;
  const std::set<std::string> known = InputVariables(graph);
  for (size_t i = 0; i < graph.checks.size(); ++i) {
    const std::vector<op::Dim>& expected = graph.checks[i].expected;
    for (size_t e = 0; e < expected.size(); ++e) {
      for (const std::string& name : expected[e].variables()) {
        const bool alone = (expected[e] - op::Dim::Variable(name)).is_constant();
        if (alone && !known.contains(name)) found.try_emplace(name, FoundSize{i, e});
      }
    }
  }
  return found;
}

Graph OrderFound(Graph graph) {
  if (FoundSizes(graph).empty()) return graph;
  const FoundOrder order(graph);
  const size_t count = graph.nodes.size();
  std::vector<size_t> missing(count);
  std::vector<std::vector<size_t>> behind(count);
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t n = 0; n < count; ++n) {
    const std::set<size_t> before = order.Before(graph.nodes[n]);
    missing[n] = before.size();
    for (const size_t b : before) behind[b].push_back(n);
    if (missing[n] == 0) ready.push(n);
  }
  std::vector<Node> nodes;
  while (!ready.empty()) {
    const size_t n = ready.top();
    ready.pop();
    nodes.push_back(graph.nodes[n]);
    for (const size_t b : behind[n]) {
      if (--missing[b] == 0) ready.push(b);
    }
  }
  if (nodes.size() == count) graph.nodes = std::move(nodes);
  return graph;
}

absl::Status CheckFoundOrder(const Graph& graph) {
  if (FoundSizes(graph).empty()) return absl::OkStatus();
  const FoundOrder order(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::set<size_t> before = order.Before(graph.nodes[n]);
    if (before.empty() || *before.rbegin() < n) continue;
    return support::InvalidArgument(
        "graph.verify.found_size",
        StrCat(support::Quote(graph.nodes[n].name), ": expected it behind node ",
               support::Quote(graph.nodes[*before.rbegin()].name), ", which finds a size of it"));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::graph
