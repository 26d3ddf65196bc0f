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
#include "compiler/graph/loops.h"

namespace tilewright::graph {

// One thread at a time. The graph outlives it.
class Evaluation {
 public:
  // `sizes`: of variables that are known before.
  Evaluation(const Graph& graph, op::Sizes sizes) : g_(graph), sizes_(std::move(sizes)) {}

  // Takes the inputs, of the types that the graph has at these sizes (graph.interp.inputs, .type).
  absl::Status Begin(const std::vector<op::RefTensor>& inputs);
  // Computes the results of node `n`, or all trips of the loop whose body begins there, and finds
  // the sizes that checks of these find. Returns the node that comes next; the first is 0.
  absl::StatusOr<size_t> Step(size_t n);
  // A node's results from other operands, at the sizes that are known after its step.
  absl::StatusOr<std::vector<op::RefTensor>> ResultsFrom(
      const Node& node, const std::vector<op::RefTensor>& args) const;
  // The graph's outputs but those of checks, which are compared (graph.interp.stated_shape). After
  // all nodes.
  absl::StatusOr<std::vector<op::RefTensor>> Outputs() const;

  // Of a value that was computed: what it is, and its type where sizes are known.
  const op::RefTensor& ValueOf(ValueId id) const { return *values_[id]; }

 private:
  const Loop* LoopAt(size_t n) const;
  absl::Status Run(size_t begin, size_t end);
  absl::Status RunLoop(const Loop& loop);
  absl::Status StackTrips(ValueId whole, const std::vector<op::RefTensor>& parts);
  absl::Status Compute(const Node& node);
  absl::Status Find(const std::vector<ValueId>& made);
  absl::Status Check(size_t check) const;

  const Graph& g_;
  op::Sizes sizes_;
  const std::map<std::string, FoundSize> places_ = FoundSizes(g_);
  const std::vector<Loop> loops_ = LoopsOf(g_);
  std::vector<std::optional<op::RefTensor>> values_;
  ValueId full_ = -1;  // a stack without room for all trips
};

}  // namespace tilewright::graph
