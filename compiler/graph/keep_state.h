// State of a model: inputs that a caller would fill with what the run before gave out, such as the
// keys and values of a decoder. The module keeps them itself. Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

// A node of this name is `append(list, entries)`: the list with the entries behind it, along the
// first dimension. It is a view: the list, an input of the graph, is where the module keeps it; the
// kernel that makes the entries writes them behind it; and no kernel copies anything.
inline constexpr std::string_view kAppendOp = "append";
bool IsAppend(const Node& node);
// The entries and the longer list of each append: their storage is the module's state.
std::vector<ValueId> StateValues(const Graph& graph);

// The pairs that exporters of decoders name, by the names of inputs and outputs:
// past_key_values.N.key → present.N.key, past_key_N → present_key_N, and the same with "value".
std::map<std::string, std::string> KnownStates(const Graph& graph);

// Makes each pair of an input and an output state. The output must be a Concat of the input and new
// entries along one axis, and nothing else may read the input. Entries become the first dimension.
// Both leave the inputs and outputs of the module. graph.state.<reason>: name (no such input or
// output), form (another node makes the output), length (the number of entries is not one variable,
// the same for all pairs, that may be 0), entry (its bytes are no multiple of 64), output (another
// output has that size).
absl::StatusOr<Graph> KeepState(Graph graph, const std::map<std::string, std::string>& pairs);

}  // namespace tilewright::graph
