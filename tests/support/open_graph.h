// Graphs with open sizes from graphs of fixed ones, for differential tests. Pure functions of the
// generator's state.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/graph/graph.h"
#include "deploy/support/rng.h"

namespace tilewright::tests {

struct OpenedGraph {
  graph::Graph graph;  // no nodes where nothing could be opened
  std::string size;    // its variable
  int64_t before = 0;  // what the variable was
};
// The graph with one size of its inputs open, up to `most`; `may_be_nothing`: from 0 on. What a
// node gives that takes no such size becomes an input. Verifies.
OpenedGraph OpenGraph(const graph::Graph& g, support::Rng* rng, bool may_be_nothing, int64_t most);

}  // namespace tilewright::tests
