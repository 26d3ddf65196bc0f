// Graph passes, each `StatusOr<Graph>(Graph, const GraphPassContext&)`, and the memory plan. Order:
// the table in graph_passes.cc. Passes are pure: they take a graph that verifies and return one
// that does and computes the same outputs (up to rounding where constants are folded). Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

struct GraphPassContext {
  std::string dump_dir;  // NN_<pass>.graph after each pass; none where empty
  // Nodes with more operations or larger results are left to run time.
  double fold_max_flops = 1e8;
  int64_t fold_max_bytes = int64_t{64} << 20;
};
// Types of all values from the inputs' (also checks types an import claimed).
absl::StatusOr<Graph> InferTypes(Graph g, const GraphPassContext& ctx);
// identity and no-op reshape removal, reshapes of reshapes, dead nodes, constants only used by dead
// nodes.
absl::StatusOr<Graph> Clean(Graph g, const GraphPassContext& ctx);
// Nodes whose inputs are all constants are evaluated by op::Reference (bounded work and size).
absl::StatusOr<Graph> FoldConstants(Graph g, const GraphPassContext& ctx);
// Batch normalisation with constant parameters goes into the weights of the convolution before it,
// else it becomes a multiplication and an addition.
absl::StatusOr<Graph> FoldBatchNorm(Graph g, const GraphPassContext& ctx);
// A (transposed) convolution with a bias → one without and an addition, so that the bias is part of
// the fused epilogue.
absl::StatusOr<Graph> SplitBias(Graph g, const GraphPassContext& ctx);
// Constant weights move to the layout kernels read contiguously (conv OIHW → OIHW16o or IHWO,
// dense [N,K] → NK16n or KN); the operator's `weight_layout` attribute says which. Weights that are
// not constants stay.
absl::StatusOr<Graph> LayoutWeights(Graph g, const GraphPassContext& ctx);
// Every graph output gets storage that a kernel of its own writes: outputs that are inputs,
// constants or views of these or of another output become copies.
absl::StatusOr<Graph> MaterializeOutputs(Graph g, const GraphPassContext& ctx);
// Complex-out-fusable / reduction anchors take their elementwise epilogues (post-dominator rule:
// all paths from the anchor end in one node); remaining injective chains fuse. Every remaining
// operator becomes a fused node of its own, so each node of the result is one kernel = one task
// use, except `reshape` nodes, which are views without a kernel. Bodies list data inputs first,
// then weights.
absl::StatusOr<Graph> FuseOperators(Graph g, const GraphPassContext& ctx);

struct GraphPass {
  std::string_view name;
  absl::StatusOr<Graph> (*run)(Graph, const GraphPassContext&);
};
std::span<const GraphPass> GraphPasses();
// Runs the table; verifies after each pass.
absl::StatusOr<Graph> RunGraphPasses(Graph g, const GraphPassContext& ctx = {});

// One arena for all intermediates: lifetimes from the node order, 64-byte aligned offsets, the best
// of several placement orders.
struct MemoryPlan {
  std::vector<int64_t> offset;  // per value; -1 = not in the arena (inputs, outputs, constants)
  int64_t arena_bytes = 0;
  int64_t liveness_bound = 0;  // the largest sum of live bytes: no plan can be smaller
};
inline constexpr int64_t kArenaAlignment = 64;
// Views share their root's offset. REQUIRES: Verify(fused).ok().
absl::StatusOr<MemoryPlan> PlanMemory(const Graph& fused);

}  // namespace tilewright::graph
