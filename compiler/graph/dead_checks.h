// Checks of what no output needs: they would keep alive what they look at. Pure function.
#pragma once

#include "compiler/graph/graph.h"

namespace tilewright::graph {

// Without the checks that find sizes which nothing needs, and without those in loops whose results
// nothing needs: such a loop does not run.
Graph DropDeadChecks(Graph graph);

}  // namespace tilewright::graph
