// Sizes that a run finds: size variables that no input has, such as how many elements a condition
// holds for. A check (Graph::checks) finds one where it expects the variable itself, up to a
// number; elsewhere the variable is expected as any other size. Nodes that need it come behind the
// node that makes what the check looks at. Pure functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

// The variables in the dimensions of the inputs.
std::set<std::string> InputVariables(const Graph& graph);

// What the check of this number looks at.
ValueId LookedAt(const Graph& graph, size_t check);

// Where a size is found: element `element` of check `check`.
struct FoundSize {
  size_t check = 0, element = 0;
};
// By variable; of several places the first.
std::map<std::string, FoundSize> FoundSizes(const Graph& graph);

// Per node the values whose numbers are sizes that its kernel needs; sizes of operands alone are
// known where they were made.
std::vector<std::vector<ValueId>> SizesNeeded(const Graph& graph);

// The nodes in an order in which each size is found before it is needed; the order that they have
// wherever that allows it. Where no order does, the rest is left as it is.
Graph OrderFound(Graph graph);
// graph.verify.found_size names a node that needs a size before it is found.
absl::Status CheckFoundOrder(const Graph& graph);

}  // namespace tilewright::graph
