// Loops that run as often as a run decides. A loop is nodes of the graph that run again and again,
// not a graph of its own, so that all passes work on them. Four rows say which:
//
//   v = loop_value(init) {loop=1, index=0}        `init` in the first trip, then what the trip
//                                                 before made of it
//   ... nodes that depend on such values          the body
//   t = loop_end(next..., v..., part...) {loop=1, carried=N}
//   r = loop_result(t, v)                         the value behind the last trip; a view of v
//   s = loop_stack(t, part) {sizes=[trips, ...]}  the parts of all trips, the first ones first;
//                                                 of trips that there were not anything
//
// The first value that a loop carries is a bool: as long as it holds, there is another trip. What
// a body reads and no trip changes is computed before the loop. Checks may look at values of a
// body: they hold for each trip, and the sizes that they find are those of one trip, which nothing
// behind the loop needs. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

inline constexpr std::string_view kLoopValueOp = "loop_value", kLoopEndOp = "loop_end",
                                  kLoopResultOp = "loop_result", kLoopStackOp = "loop_stack";

// Whether the node is one of these four: no kernel computes it.
bool IsLoopNode(const Node& node);

struct Loop {
  size_t begin = 0, end = 0;  // nodes [begin, end) are the body; `end` is its loop_end
  struct Carried {
    ValueId init, value, next;
  };
  std::vector<Carried> carried;
  struct Stacked {
    ValueId part, whole;
  };
  std::vector<Stacked> stacked;
  std::vector<size_t> checks;  // of what the body makes, loops in it left out
  bool Holds(size_t node) const { return begin <= node && node < end; }
};
// By their ends: a loop in another one comes before that. REQUIRES: CheckLoops.
std::vector<Loop> LoopsOf(const Graph& graph);

// The nodes in an order in which what no trip changes comes before its loop. REQUIRES: CheckLoops.
Graph OrderLoops(Graph graph);

// Per check the ends of the loops whose bodies make what it looks at, in any order of the nodes.
std::vector<std::vector<size_t>> LoopsOfChecks(const Graph& graph);

// graph.verify.loop names a node of a loop that is not whole, or that depends on what a loop
// carries and is not in its body.
absl::Status CheckLoops(const Graph& graph);

}  // namespace tilewright::graph
