// Products of query heads with key and value heads that several of them share. Exporters repeat the
// shared heads (Unsqueeze, Expand, Reshape) up to one for each query head: a copy of the whole
// cache. The query heads of one key head are rows of one product instead.
#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

using Dims = std::vector<op::Dim>;

class HeadSharer : public ForwardRewriter {
 public:
  using ForwardRewriter::ForwardRewriter;

 private:
  // What a value [b,heads*n,r,c] repeats, each head [r,c] n times in a row: [b,heads,r,c].
  struct Repeated {
    ValueId heads = -1;
    int64_t times = 1;
  };
  std::optional<Repeated> RepeatedOf(ValueId id) const {
    const Node* flat = Before(id, kViewOp);
    const Node* wide = flat == nullptr ? nullptr : Before(flat->inputs[0], "expand");
    const Node* apart = wide == nullptr ? nullptr : Before(wide->inputs[0], kViewOp);
    if (apart == nullptr) return std::nullopt;
    const ValueId heads = apart->inputs[0];
    const Dims &from = TypeOf(heads).shape, &to = TypeOf(id).shape;
    const Dims& all = TypeOf(wide->outputs[0]).shape;
    if (from.size() != 4 || all.size() != 5 || to.size() != 4) return std::nullopt;
    const std::optional<int64_t> times = all[2].constant();
    const bool same =
        TypeOf(wide->inputs[0]).shape == Dims{from[0], from[1], 1, from[2], from[3]} &&
        all == Dims{from[0], from[1], all[2], from[2], from[3]} &&
        to == Dims{from[0], from[1] * all[2], from[2], from[3]};
    if (!same || !times || *times < 2) return std::nullopt;
    return Repeated{heads, *times};
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "matmul") return false;
    const Node* turned = Before(node.inputs[1], "transpose");
    const std::vector<int64_t> swap = {0, 1, 3, 2};
    if (turned != nullptr && op::GetInts(turned->attrs, "perm", {}) != swap) return false;
    const auto repeated = RepeatedOf(turned != nullptr ? turned->inputs[0] : node.inputs[1]);
    const Dims rows = TypeOf(node.inputs[0]).shape, out = TypeOf(node.outputs[0]).shape;
    if (!repeated || rows.size() != 4) return false;
    const Dims heads = TypeOf(repeated->heads).shape;
    if (rows[0] != heads[0] || rows[1] != heads[1] * op::Dim(repeated->times)) return false;
    const op::Dim count = op::Dim(repeated->times) * rows[2];
    const auto reshaped = [&](const std::string& name, ValueId id, const Dims& shape) {
      return Emit(name, kViewOp, {id}, {{"shape", op::ShapeAttr(shape)}});
    };
    TW_ASSIGN(const ValueId a,
              reshaped(node.name + "_rows", node.inputs[0], {rows[0], heads[1], count, rows[3]}));
    ValueId b = repeated->heads;
    if (turned != nullptr) {
      TW_ASSIGN(b, Emit(node.name + "_turned", "transpose", {b}, {{"perm", swap}}));
    }
    TW_ASSIGN(const ValueId product, Emit(node.name + "_shared", "matmul", {a, b}));
    Define(node, kViewOp, {product}, {{"shape", op::ShapeAttr(out)}});
    return true;
  }
};

}  // namespace

absl::StatusOr<Graph> ShareHeads(Graph g, const GraphPassContext& ctx) {
  return HeadSharer(std::move(g), ctx.fold_max_bytes).Run();
}

}  // namespace tilewright::graph
