// Between which numbers the elements of a value are, whatever the inputs are: boxes cut to an image
// are inside of it. It bounds the sizes that a run finds, which that run checks: an estimate that
// rounding breaks refuses a run, and makes no wrong number. One per question; the graph outlives
// it.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "compiler/graph/graph.h"

namespace tilewright::graph::onnx {

struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

class RangeFinder {
 public:
  // The range of a value that the import itself knows, such as a constant; nullopt for others.
  using Known = std::function<std::optional<NumberRange>(ValueId)>;
  RangeFinder(const Graph& graph, Known known);

  NumberRange Of(ValueId id);

 private:
  NumberRange Find(ValueId id);
  NumberRange OfNode(const Node& node);
  NumberRange OfReduction(const Node& node);
  std::vector<NumberRange> OfAll(const std::vector<ValueId>& ids);

  const Graph& g_;
  const Known known_;
  std::vector<int> producer_;
  std::map<ValueId, NumberRange> found_;
  int depth_ = 0;
};

}  // namespace tilewright::graph::onnx
