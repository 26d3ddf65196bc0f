// Random graphs for differential tests of graph passes: every operator of the table in a context
// where its value is well conditioned (roots of positive numbers, quotients by numbers away from
// zero, rounding only of inputs), constants where weights usually are, shared operands, several
// outputs, and the idioms that rewrites look for. Pure functions of the generator's state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "deploy/support/rng.h"

namespace tilewright::tests {

struct RandomGraphOptions {
  int min_nodes = 3, max_nodes = 16;
  int64_t max_elements = 1200;  // of any value
  bool bfloat_inputs = true;    // which some devices refuse
};
// Verifies. Inputs take values in [-1, 1]; results stay of that order.
graph::Graph RandomGraph(support::Rng* rng, const RandomGraphOptions& options = {});
// Operators that RandomGraph never makes, with the reason; a test holds the two together.
std::vector<std::pair<std::string, std::string>> OperatorsLeftOut();
// Values in [-1, 1] for every input; whole numbers below 4 for integers, 0 or 1 for bools.
std::vector<op::RefTensor> RandomGraphInputs(const graph::Graph& g, uint64_t seed);
// The smallest graph found by keeping single outputs and cutting nodes off (their results become
// inputs) for which `fails` still holds. REQUIRES: fails(g).
graph::Graph ShrinkGraph(graph::Graph g, const std::function<bool(const graph::Graph&)>& fails);

}  // namespace tilewright::tests
