// mark_cold_weights: which weights of a fused graph come from memory at every call of the network.
//
// A kernel that is measured alone, again and again, finds its weights in a cache. In a network
// whose weights together are more than the last-level cache, it does not: by the time the network
// comes round to it again, all the others' weights have passed through. What is fastest differs
// (ResNet-18: F(5×5) of Winograd's convolution with cached weights, F(4×4), which reads less,
// without), so the task says which case it is, and agents measure it that way.
#include <algorithm>
#include <vector>

#include "compiler/graph/graph_passes.h"

namespace tilewright::graph {

absl::StatusOr<Graph> MarkColdWeights(Graph g, const GraphPassContext& ctx) {
  if (ctx.cold_weights_bytes <= 0) return g;
  int64_t total = 0;
  std::vector<int> uses(g.values.size(), 0);
  for (const Value& value : g.values) {
    if (value.constant != nullptr) total += value.type.bytes();
  }
  if (total < ctx.cold_weights_bytes) return g;
  for (const Node& node : g.nodes) {
    for (const ValueId id : node.inputs) ++uses[static_cast<size_t>(id)];
  }
  for (Node& node : g.nodes) {
    if (node.body == nullptr) continue;
    auto body = std::make_shared<Graph>(*node.body);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto outside = static_cast<size_t>(node.inputs[i]);
      Value& inside = body->values[static_cast<size_t>(body->inputs[i])];
      // What several kernels read (a recurrent network's weights) is near again soon.
      inside.cold =
          inside.weight && uses[outside] == 1 && inside.type.bytes() >= ctx.cold_weight_bytes;
    }
    node.body = std::move(body);
  }
  return g;
}

}  // namespace tilewright::graph
