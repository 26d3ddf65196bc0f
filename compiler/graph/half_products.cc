// Products of 16-bit floats. An import casts them to f32 and the product of those back. A machine
// that multiplies 16-bit floats reads half as many bytes, and multiplies them faster:
//   matmul(cast<f32>(x: f16), cast<f32>(y: f16))   →   matmul(x, y): f32, and the same of bf16
// So do dot products of pairs, for dense layers with constant weights and an even number of terms.
// Other machines read constant weights as they are and widen them in registers:
//   dense(x: f32, cast<f32>(w: f16))   →   dense(x, w): f32, and the same of bf16
// or, where they multiply f16 and add to f32, both factors:
//   dense(cast<f32>(x: f16), cast<f32>(w: f16))   →   dense(x, w): f32, and the same of matmul
// The same numbers are multiplied, and sums are f32 as before. Bytes that were cast to i32 are
// multiplied as such, too, where the machine has products of them.
#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

class HalfProductMaker : public ForwardRewriter {
 public:
  HalfProductMaker(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), ctx_(ctx) {}

 private:
  // The value as 16-bit floats where it was cast from such; -1 elsewhere.
  ValueId HalfOf(ValueId id) const {
    const Node* cast = TypeOf(id).dtype == ir::kF32 ? Before(id, "cast") : nullptr;
    if (cast == nullptr) return -1;
    const ir::DType from = TypeOf(cast->inputs[0]).dtype;
    return from == ir::kF16 || from == ir::kBF16 ? cast->inputs[0] : -1;
  }

  // Whether constants are folded to the value, which moves of them make.
  bool IsMovedConstant(ValueId id) const {
    if (IsConstant(g_, id)) return true;
    const Node* node = Before(id);
    return node != nullptr && (node->op == kViewOp || node->op == "transpose") &&
           IsMovedConstant(node->inputs[0]);
  }

  // Whether layout_weights brings the weights into pairs.
  bool HasPairs(const Node& node, ir::DType half) const {
    if (node.op != "dense" || !Contains(ctx_.half_pairs, half) || !UncutWeights(node)) return false;
    const op::Dim terms = TypeOf(node.inputs[0]).shape.back();
    const ValueId cast = HalfOf(node.inputs[1]);
    return terms.is_constant() && terms.value() % op::kPair == 0 &&
           IsMovedConstant(cast < 0 ? node.inputs[1] : cast);
  }

  absl::StatusOr<bool> MultiplyHalves(const Node& node) {
    ValueId a = HalfOf(node.inputs[0]), b = HalfOf(node.inputs[1]);
    // Two constants are folded.
    if (a < 0 && b < 0) return false;
    const ir::DType half = TypeOf(a < 0 ? b : a).dtype;
    if (!Contains(ctx_.half_products, half) && !HasPairs(node, half)) return false;
    if (a < 0) {
      TW_ASSIGN(a, AddHalf(&g_, node.inputs[0], half));
    }
    if (b < 0) {
      TW_ASSIGN(b, AddHalf(&g_, node.inputs[1], half));
    }
    if (a < 0 || b < 0 || TypeOf(a).dtype != TypeOf(b).dtype) return false;
    Define(node, node.op, {a, b}, node.attrs);
    return true;
  }

  // Bytes that were cast to i32; -1 elsewhere.
  ValueId BytesOf(ValueId id) const {
    const Node* cast = TypeOf(id).dtype == ir::kI32 ? Before(id, "cast") : nullptr;
    if (cast == nullptr) return -1;
    const ir::DType from = TypeOf(cast->inputs[0]).dtype;
    return from == ir::kI8 || from == ir::kU8 ? cast->inputs[0] : -1;
  }

  bool MultiplyBytes(const Node& node) {
    const ValueId a = BytesOf(node.inputs[0]), b = BytesOf(node.inputs[1]);
    if (!ctx_.byte_products || a < 0 || b < 0 || TypeOf(b).dtype != ir::kI8) return false;
    Define(node, node.op, {a, b}, node.attrs);
    return true;
  }

  bool WidenWeights(const Node& node) {
    const ValueId weights = HalfOf(node.inputs[1]);
    if (node.op != "dense" || weights < 0 || !IsMovedConstant(weights) ||
        !Contains(ctx_.half_weights, TypeOf(weights).dtype)) {
      return false;
    }
    Define(node, node.op, {node.inputs[0], weights}, node.attrs);
    return true;
  }

  // Whether both factors are read as they are.
  bool ReadsHalves(const Node& node) {
    const ValueId a = HalfOf(node.inputs[0]), b = HalfOf(node.inputs[1]);
    if (a < 0 || b < 0 || TypeOf(a).dtype != TypeOf(b).dtype ||
        !Contains(ctx_.half_factors, TypeOf(a).dtype)) {
      return false;
    }
    if (node.op == "dense" && !IsMovedConstant(b)) return false;
    Define(node, node.op, {a, b}, node.attrs);
    return true;
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "matmul" && node.op != "dense") return false;
    TW_ASSIGN(const bool multiplies, MultiplyHalves(node));
    return multiplies || MultiplyBytes(node) || ReadsHalves(node) || WidenWeights(node);
  }

  const GraphPassContext& ctx_;
};

}  // namespace

absl::StatusOr<Graph> HalfProducts(Graph g, const GraphPassContext& ctx) {
  if (ctx.half_products.empty() && ctx.half_weights.empty() && !ctx.byte_products) return g;
  return HalfProductMaker(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
