// Where the values of a graph lie in each other, and which slices and concats may be views. Inside
// of compiler/graph.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace tilewright::graph {

// Follows the views of a graph in topological order. The graph may grow meanwhile. Not thread-safe.
class StorageMap {
 public:
  // Nothing is placed yet: every value is its own root.
  explicit StorageMap(const Graph& g);

  Storage Of(ValueId id) const;
  // Places the result of a view, or the operands of a concat in its result. REQUIRES: IsView(node),
  // and for slices and concats that they may be views.
  void Take(const Node& node);

  // Returns the byte of the operand where a slice begins, which may be a view of it. Returns
  // nullopt if its elements are no run of the operand's, the graph is of open sizes, or the storage
  // of one of the two is not in the arena: an input, a constant, an output of the graph.
  std::optional<int64_t> SliceOffset(const Node& slice) const;
  // Returns whether the operands of a concat follow one another in its result, and that is in the
  // arena. If it is of open size, a call decides about it, and no run finds it (found_sizes.h).
  bool HoldsParts(const Node& concat) const;
  // Returns whether the value fills storage in the arena alone, which no concat holds yet.
  bool MayBePart(ValueId id) const;

 private:
  struct Place {
    ValueId root;    // itself: nothing holds the value
    op::Dim offset;  // in the root, in bytes
    bool outside;    // the storage is an input's, a constant's or an output's
  };
  Place At(ValueId id) const;  // values that came later are their own roots
  void Put(ValueId id, Place place);
  bool Outside(ValueId id) const { return At(Of(id).root).outside; }

  const Graph& g_;
  const bool open_;
  const std::set<std::string> bound_;  // sizes that a call binds
  std::vector<Place> places_;
};

// graph.verify.view if a slice or concat is marked as a view that may be none.
absl::Status CheckViews(const Graph& g);

}  // namespace tilewright::graph
