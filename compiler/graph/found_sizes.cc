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

// The nodes that each node has to come behind: those of its operands, and of the sizes it needs.
std::vector<std::set<size_t>> NodesBefore(const Graph& graph) {
  std::vector<std::optional<size_t>> maker(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId id : graph.nodes[n].outputs) maker[id] = n;
  }
  const std::vector<std::vector<ValueId>> sizes = SizesNeeded(graph);
  std::vector<std::set<size_t>> before(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const std::vector<ValueId>& values : {graph.nodes[n].inputs, sizes[n]}) {
      for (ValueId id : values) {
        if (maker[id]) before[n].insert(*maker[id]);
      }
    }
  }
  return before;
}

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

std::vector<std::vector<ValueId>> SizesNeeded(const Graph& graph) {
  std::vector<std::vector<ValueId>> needed(graph.nodes.size());
  const std::map<std::string, FoundSize> places = FoundSizes(graph);
  if (places.empty()) return needed;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const std::string& name : VariablesOf(graph, graph.nodes[n])) {
      const auto place = places.find(name);
      if (place != places.end()) needed[n].push_back(LookedAt(graph, place->second.check));
    }
  }
  return needed;
}

Graph OrderFound(Graph graph) {
  if (FoundSizes(graph).empty()) return graph;
  const std::vector<std::set<size_t>> nodes_before = NodesBefore(graph);
  const size_t count = graph.nodes.size();
  std::vector<size_t> missing(count);
  std::vector<std::vector<size_t>> behind(count);
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t n = 0; n < count; ++n) {
    const std::set<size_t>& before = nodes_before[n];
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
  const std::vector<std::set<size_t>> nodes_before = NodesBefore(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::set<size_t>& before = nodes_before[n];
    if (before.empty() || *before.rbegin() < n) continue;
    return support::InvalidArgument(
        "graph.verify.found_size",
        StrCat(support::Quote(graph.nodes[n].name), ": expected it behind node ",
               support::Quote(graph.nodes[*before.rbegin()].name), ", which finds a size of it"));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::graph
