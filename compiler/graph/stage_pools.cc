// For a matrix unit: the maxima of images of signed bytes in blocks of channels are computed in
// stages that the unit has (attribute `staged` of pool2d). There padding is zeros, so images with
// padding must have no negative numbers: those behind a relu.
#include <algorithm>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

class PoolStager : public ForwardRewriter {
 public:
  PoolStager(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), block_(ctx.matrix_block) {}

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "pool2d" || op::GetString(node.attrs, "kind", "max") != "max") return false;
    const op::TensorType& x = TypeOf(node.inputs[0]);
    if (x.dtype != ir::kI8 || x.rank() != 5 || x.shape[4] != op::Dim(block_)) return false;
    const auto pads = op::GetInts(node.attrs, "pads", {0, 0, 0, 0});
    if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; })) {
      TW_ASSIGN(const bool fits, IsNeverNegative(node.inputs[0]));
      if (!fits) return false;
    }
    op::Attrs attrs = node.attrs;
    attrs["staged"] = int64_t{1};
    Define(node, "pool2d", node.inputs, std::move(attrs));
    return true;
  }

  // Whether the operators before a value show that no number of it is negative.
  absl::StatusOr<bool> IsNeverNegative(ValueId id) const {
    const Node* from = Before(id);
    if (from == nullptr) return false;
    if (from->op == "relu") return true;
    if (from->op == "clip") return op::GetDouble(from->attrs, "min", -1) >= 0;
    const op::OpSpec* spec = op::FindOp(from->op);
    bool keeps_signs =
        from->op == "pool2d" || (spec != nullptr && spec->moves == 1 && from->inputs.size() == 1);
    if (from->op == "cast") {
      // What does not fit the narrower type wraps; a requantisation has cut it before.
      const op::TensorType &wide = TypeOf(from->inputs[0]), &narrow = TypeOf(id);
      keeps_signs = narrow.dtype.bytes() >= wide.dtype.bytes() ||
                    Before(from->inputs[0], "requantize") != nullptr;
    }
    if (from->op == "requantize") {
      TW_ASSIGN(const auto multipliers, Known(from->inputs[1]));
      keeps_signs =
          multipliers && std::all_of(multipliers->values.begin(), multipliers->values.end(),
                                     [](double m) { return m >= 0; });
    }
    if (from->op == "quantize") {
      TW_ASSIGN(const auto zeros, Known(from->inputs[2]));
      keeps_signs = zeros && std::all_of(zeros->values.begin(), zeros->values.end(),
                                         [](double zero) { return zero == 0; });
    }
    if (!keeps_signs) return false;
    return IsNeverNegative(from->inputs[0]);
  }

  const int64_t block_;
};

}  // namespace

absl::StatusOr<Graph> StagePools(Graph g, const GraphPassContext& ctx) {
  if (ctx.matrix_block == 0) return g;
  return PoolStager(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
