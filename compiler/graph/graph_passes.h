// Graph passes, each `StatusOr<Graph>(Graph, const GraphPassContext&)`, and the memory plan. Order: graph_passes.cc's table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

struct GraphPassContext {
  std::string dump_dir;
};
// Types of all values from the inputs' (also checks types an import claimed).
absl::StatusOr<Graph> InferTypes(Graph g, const GraphPassContext& ctx);
// identity / dropout / no-op reshape removal, dead nodes, constants only used by dead nodes.
absl::StatusOr<Graph> Clean(Graph g, const GraphPassContext& ctx);
// Nodes whose inputs are all constants are evaluated by op/reference (bounded size).
absl::StatusOr<Graph> FoldConstants(Graph g, const GraphPassContext& ctx);
// Constant weights move to the layout kernels read contiguously (conv OIHW → IHWO, dense [N,K] → [K,N]); the operator's
// `weight_layout` attribute says which. Weights that are not constants stay.
absl::StatusOr<Graph> LayoutWeights(Graph g, const GraphPassContext& ctx);
// Complex-out-fusable / reduction anchors take their injective single-consumer epilogues; remaining injective chains fuse.
// Every remaining operator becomes a fused node of its own, so each node of the result is one kernel = one task use.
absl::StatusOr<Graph> FuseOperators(Graph g, const GraphPassContext& ctx);

struct GraphPass {
  std::string_view name;
  absl::StatusOr<Graph> (*run)(Graph, const GraphPassContext&);
};
std::span<const GraphPass> GraphPasses();
absl::StatusOr<Graph> RunGraphPasses(Graph g, const GraphPassContext& ctx = {});

// One arena for all intermediates: lifetimes from the node order, best-fit by size, 64-byte aligned offsets.
struct MemoryPlan {
  std::vector<int64_t> offset;             // per value; -1 = not in the arena (inputs, outputs, constants)
  int64_t arena_bytes = 0;
  int64_t liveness_bound = 0;              // the largest sum of live bytes: no plan can be smaller
};
absl::StatusOr<MemoryPlan> PlanMemory(const Graph& fused);

}  // namespace tilewright::graph
