// quantize(dequantize(sums)) is one multiplication and a rounding: the scale of the result goes
// into those of the operands, through what is linear or only bounds. Then scales and zero points
// are written out for each channel, so that layers that differ in them alone are one task.
#include <algorithm>
#include <cmath>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

constexpr int kMaxDepth = 8;  // of the expression that a scale goes through

class Requantizer : public ForwardRewriter {
 public:
  using ForwardRewriter::ForwardRewriter;

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "quantize") return false;
    TW_ASSIGN(const auto scale, KnownNumber(node.inputs[1]));
    if (!scale || *scale == 1 || !(*scale > 0)) return false;
    if (!Divisible(node.inputs[0], 0)) return false;
    TW_ASSIGN(const ValueId steps, Divided(node.inputs[0], *scale));
    const ValueId one = AddRounded(&g_, node.name + "_one", {ir::kF32, {}}, {1});
    Define(node, "quantize", {steps, one, node.inputs[2]});
    return true;
  }

  // Whether `Divided` can.
  bool Divisible(ValueId id, int depth) const {
    const Node* node = Before(id);
    if (node == nullptr || depth > kMaxDepth) return false;
    if (node->op == "dequantize") return IsConstant(g_, node->inputs[1]);
    if (node->op == "relu" || node->op == "clip") return Divisible(node->inputs[0], depth + 1);
    return node->op == "add" && Divisible(node->inputs[0], depth + 1) &&
           Divisible(node->inputs[1], depth + 1);
  }

  // The value / divisor, computed beside the value.
  absl::StatusOr<ValueId> Divided(ValueId id, double divisor) {
    const Node node = *Before(id);
    const std::string name = node.name + "_steps";
    std::vector<ValueId> inputs = node.inputs;
    op::Attrs attrs = node.attrs;
    if (node.op == "dequantize") {
      TW_ASSIGN(op::RefTensor scale, ConstantTensor(g_, inputs[1]));
      for (double& v : scale.values) v /= divisor;
      inputs[1] = AddRounded(&g_, name + "_scale", scale.type, std::move(scale.values));
      return Emit(name, node.op, std::move(inputs));
    }
    for (ValueId& input : inputs) {
      TW_ASSIGN(input, Divided(input, divisor));
    }
    for (const char* bound : {"min", "max"}) {
      if (attrs.count(bound) > 0) attrs[bound] = op::GetDouble(attrs, bound, 0) / divisor;
    }
    return Emit(name, node.op, std::move(inputs), std::move(attrs));
  }
};

// One number for all channels → as many as there are. Images have theirs in dimension 1, other
// values in the last. True: some were, and what they replace may be unused now.
absl::StatusOr<bool> WriteOut(Graph* g) {
  bool any = false;
  for (Node& node : g->nodes) {
    if (node.op != "quantize" && node.op != "dequantize") continue;
    const std::vector<op::Dim> shape = g->values[node.inputs[0]].type.shape;
    if (shape.size() < 2 || IsConstant(*g, node.inputs[0])) continue;
    for (const int i : {1, 2}) {
      const ValueId id = node.inputs[i];
      if (!IsConstant(*g, id) || g->values[id].type.elements() != 1) continue;
      TW_ASSIGN(const op::RefTensor number, ConstantTensor(*g, id));
      if (number.values[0] == (i == 1 ? 1 : 0)) continue;  // literals that cost nothing
      const bool image = shape.size() == 4;
      const op::Dim& last = image ? shape[1] : shape.back();
      if (!last.is_constant()) continue;
      const int64_t channels = last.value();
      op::TensorType type{number.type.dtype, {channels}};
      if (image) type = {type.dtype, ChannelShape(channels, shape.size())};
      node.inputs[i] =
          AddRounded(g, g->values[id].name + "_channels", type,
                     std::vector<double>(static_cast<size_t>(channels), number.values[0]));
      any = true;
    }
  }
  return any;
}

}  // namespace

absl::StatusOr<Graph> FoldRequantize(Graph g, const GraphPassContext& ctx) {
  TW_ASSIGN(g, Requantizer(std::move(g), ctx.fold_max_bytes).Run());
  TW_ASSIGN(const bool written, WriteOut(&g));
  return written ? Compact(g) : std::move(g);
}

}  // namespace tilewright::graph
