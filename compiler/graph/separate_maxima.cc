// The maximum of a window is the maximum, along its row, of the maxima of its columns: two pools of
// k places each instead of one of k*k. Exact, for a maximum does not round.
#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

// The image between the two is written and read once more; so the places that an output reads must
// become less than half. With a stride the first pool keeps columns that the second drops.
bool Pays(const std::vector<int64_t>& kernel, const std::vector<int64_t>& strides) {
  return 2 * (kernel[0] * strides[1] + kernel[1]) < kernel[0] * kernel[1];
}

class MaximaSeparator : public ForwardRewriter {
 public:
  MaximaSeparator(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes) {}

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "pool2d" || op::GetString(node.attrs, "kind", "max") != "max") return false;
    const auto kernel = op::GetInts(node.attrs, "kernel", {});
    const auto strides = op::GetInts(node.attrs, "strides", {1, 1});
    if (!Pays(kernel, strides)) return false;
    const auto pads = op::GetInts(node.attrs, "pads", {0, 0, 0, 0});
    const auto dilations = op::GetInts(node.attrs, "dilations", {1, 1});
    op::Attrs columns = node.attrs, rows = node.attrs;
    columns["kernel"] = std::vector<int64_t>{kernel[0], 1};
    columns["strides"] = std::vector<int64_t>{strides[0], 1};
    columns["pads"] = std::vector<int64_t>{pads[0], 0, pads[2], 0};
    columns["dilations"] = std::vector<int64_t>{dilations[0], 1};
    rows["kernel"] = std::vector<int64_t>{1, kernel[1]};
    rows["strides"] = std::vector<int64_t>{1, strides[1]};
    rows["pads"] = std::vector<int64_t>{0, pads[1], 0, pads[3]};
    rows["dilations"] = std::vector<int64_t>{1, dilations[1]};
    TW_ASSIGN(const ValueId tall, Emit(NameOf(node.outputs[0]) + "_columns", "pool2d", node.inputs,
                                       std::move(columns)));
    Define(node, "pool2d", {tall}, std::move(rows));
    return true;
  }
};

}  // namespace

absl::StatusOr<Graph> SeparateMaxima(Graph g, const GraphPassContext& ctx) {
  if (ctx.matrix_block != 0) return g;  // a matrix unit computes a window in stages of its own
  return MaximaSeparator(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
