// Operators of 16-bit floats compute in f32: an import widens what they read and rounds what they
// make. Where the machine computes the next operator in f32, too, nobody needs that rounding:
//   cast<f32>(cast<f16>(x: f32) implied)   →   x
// Results get more exact than the model's type has them, as in ONNX Runtime and XLA, and batch
// norms can go into the weights. Casts of the model itself stay, and so do roundings of what is
// read or kept in 16 bits: factors of products, outputs, states. Where the machine computes in f16,
// two elementwise operators stay there, unless they follow a product or a reduction, whose sums are
// in f32 anyway. No cast says `implied` behind this pass.
#include <map>
#include <set>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/op/cast.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

class RoundingDropper : public ForwardRewriter {
 public:
  RoundingDropper(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), ctx_(ctx) {}

 private:
  // The f32 that an implied cast rounded to make the value; -1 elsewhere.
  ValueId Unrounded(ValueId id) const {
    const auto at = unrounded_.find(id);
    return at == unrounded_.end() ? -1 : at->second;
  }

  // Whether f32 is what the value is made in at no cost.
  bool IsWide(ValueId id, ir::DType rounded) const {
    return !Contains(ctx_.half_arithmetic, rounded) || wide_.contains(id);
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    const op::TensorType& type = TypeOf(node.outputs[0]);
    if (node.op == "cast" && op::GetInt(node.attrs, op::kImplied, 0) != 0) {
      const ValueId from = node.inputs[0];
      if (TypeOf(from).dtype == ir::kF32) unrounded_[node.outputs[0]] = from;
      op::Attrs attrs = node.attrs;
      attrs.erase(std::string(op::kImplied));
      Define(node, node.op, node.inputs, std::move(attrs));
      return true;
    }
    if (node.op == "cast" && type.dtype == ir::kF32) {
      const ValueId x = Unrounded(node.inputs[0]);
      const ir::DType rounded = TypeOf(node.inputs[0]).dtype;
      if (x < 0 || !Contains(ctx_.computed_in_f32, rounded) || !IsWide(x, rounded)) return false;
      Same(node, x);
      return true;
    }
    const op::OpSpec* spec = op::FindOp(node.op);
    bool is_wide = spec != nullptr && spec->fusion != op::FusionClass::kInjective;
    for (ValueId id : node.inputs) is_wide = is_wide || wide_.contains(id);
    if (type.dtype == ir::kF32 && is_wide) wide_.insert(node.outputs.begin(), node.outputs.end());
    return false;
  }

  const GraphPassContext& ctx_;
  std::map<ValueId, ValueId> unrounded_;
  std::set<ValueId> wide_;  // sums in f32, and what elementwise operators make of them
};

}  // namespace

absl::StatusOr<Graph> DropRoundings(Graph g, const GraphPassContext& ctx) {
  return RoundingDropper(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
