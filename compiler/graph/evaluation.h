// The reference interpreter of the graph IR, node by node: what Interpret does, for those that look
// at what lies between inputs and outputs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/found_sizes.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

// One thread at a time. The graph outlives it.
class Evaluation {
 public:
  // `sizes`: of variables that are known before.
  Evaluation(const Graph& graph, op::Sizes sizes) : g_(graph), sizes_(std::move(sizes)) {}

  // Takes the inputs, of the types that the graph has at these sizes (graph.interp.inputs, .type).
  absl::Status Begin(const std::vector<op::RefTensor>& inputs);
  // Computes the next node's results, and finds the sizes that checks of these find. In the order
  // of the graph's nodes.
  absl::Status Step(const Node& node);
  // A node's results from other operands, at the sizes that are known after its step.
  absl::StatusOr<std::vector<op::RefTensor>> ResultsFrom(
      const Node& node, const std::vector<op::RefTensor>& args) const;
  // The graph's outputs but those of checks, which are compared (graph.interp.stated_shape). After
  // all nodes.
  absl::StatusOr<std::vector<op::RefTensor>> Outputs() const;

  // Of a value that was computed: what it is, and its type where sizes are known.
  const op::RefTensor& ValueOf(ValueId id) const { return *values_[id]; }

 private:
  absl::Status Find(const std::vector<ValueId>& made);
  absl::Status TakeChecks(std::vector<op::RefTensor>* outputs) const;

  const Graph& g_;
  op::Sizes sizes_;
  const std::map<std::string, FoundSize> places_ = FoundSizes(g_);
  std::vector<std::optional<op::RefTensor>> values_;
};

}  // namespace tilewright::graph
