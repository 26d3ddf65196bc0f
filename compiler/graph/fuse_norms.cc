// Norms and softmax as importers and exporters write them become one operator, whose kernel goes
// over a row as often as it must while the row is in the first cache:
//   d = sub(x, mean(x)); div(d, sqrt(add(mean(mul(d, d)), e)))     →  normalize(x) {kind="layer"}
//   div(x, sqrt(add(mean(mul(x, x)), e)))                          →  normalize(x) {kind="rms"}
//   add(mul(x, a), sub(b, mul(mean(x), a))), a = mul(1 / root, g)  →  add(mul(normalize(x), g), b)
//   e = exp(sub(x, max(x))); div(e, sum(e))                        →  softmax(x)
// The square may be a power, and the division a product with a reciprocal, with a quotient of 1 or
// with a power. Means, maxima and sums are those of the last dimension. Chains stay of which
// somebody else reads a part (which would be computed twice), those whose rows are open or too long
// for the first cache, and RMS norms that do not gain by it.
#include <map>
#include <optional>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/op/normalize.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

class NormFuser : public ForwardRewriter {
 public:
  NormFuser(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes),
        near_row_(ctx.near_row),
        all_rms_norms_(ctx.all_rms_norms),
        readers_(Readers(g_)) {
    for (ValueId id : g_.outputs) readers_[id].push_back(-1);
  }

 private:
  // The nodes of a pattern, and how often they read each value.
  class Members {
   public:
    void Add(const Node* node) {
      if (!nodes_.insert(node).second) return;
      for (ValueId id : node->inputs) ++reads_[id];
    }
    // Whether nothing else reads what the nodes make, but for the last one, `end`.
    bool Closed(const Node* end, const std::vector<std::vector<int>>& readers) const {
      for (const Node* node : nodes_) {
        if (node == end) continue;
        const auto id = static_cast<size_t>(node->outputs[0]);
        const auto read = reads_.find(node->outputs[0]);
        // What this pass makes is read by its pattern only.
        const size_t all = id < readers.size() ? readers[id].size() : 1;
        if (read == reads_.end() || read->second != all) return false;
      }
      return true;
    }

   private:
    std::set<const Node*> nodes_;
    std::map<ValueId, size_t> reads_;
  };

  // 1 / √(mean of squares + epsilon), or the root itself.
  struct Root {
    ValueId rows = -1;  // whose squares
    ValueId mean = -1;  // which `rows` were taken off; -1: none was
    ValueId data = -1;  // the operand of the norm
    const Node* squared = nullptr;
    double epsilon = 0;
  };

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op == "add") return RewriteFolded(node);
    if (node.op != "div" && node.op != "mul") return false;
    TW_ASSIGN(const bool softmax, RewriteSoftmax(node));
    if (softmax) return true;
    for (const size_t side : {size_t{1}, size_t{0}}) {
      if (side == 0 && node.op == "div") break;
      TW_ASSIGN(const bool norm, RewriteNorm(node, side));
      if (norm) return true;
    }
    return false;
  }

  // ---- parts of the patterns

  // The reduction of this kind over the last dimension, which it keeps.
  const Node* RowReduction(ValueId id, std::string_view kind) const {
    const Node* node = Before(id, "reduce");
    if (node == nullptr || op::GetString(node->attrs, "kind", "sum") != kind) return nullptr;
    const auto rank = static_cast<int64_t>(TypeOf(node->inputs[0]).shape.size());
    const std::vector<int64_t> axes = op::GetInts(node->attrs, "axes", {});
    const bool last = axes.size() == 1 && (axes[0] == -1 || axes[0] == rank - 1);
    return last && op::GetInt(node->attrs, "keepdims", 1) != 0 ? node : nullptr;
  }

  // Rows that the default schedule keeps in the first cache.
  bool HasNearRows(ValueId id) const {
    const op::TensorType& type = TypeOf(id);
    if (type.shape.size() < 2 || !type.dtype.is_float()) return false;
    const auto length = type.shape.back().constant();
    return length && *length >= 2 && *length <= near_row_;
  }

  // An RMS norm in operators is two kernels. One kernel gains where it has few elements, as open
  // rows mostly do, or long rows. AVX-512, one thread: one row 1.04 to 1.08, rows of 4096 1.17 to
  // 1.22; 16 rows of 768 0.6 to 0.9, 128 of 384 0.93.
  bool PaysAsRms(ValueId id) const {
    const op::TensorType& type = TypeOf(id);
    return all_rms_norms_ || !type.fixed() || type.elements() <= near_row_ ||
           type.shape.back().value() > near_row_ / 2;
  }

  absl::StatusOr<bool> IsNumber(ValueId id, double number) const {
    TW_ASSIGN(const std::optional<double> known, KnownNumber(id));
    return known == number;
  }

  // What `node` squares; -1 if it squares nothing.
  absl::StatusOr<ValueId> SquaredBy(const Node* node) const {
    if (node == nullptr) return ValueId{-1};
    if (node->op == "mul" && node->inputs[0] == node->inputs[1]) return node->inputs[0];
    if (node->op != "pow") return ValueId{-1};
    TW_ASSIGN(const bool two, IsNumber(node->inputs[1], 2));
    return two ? node->inputs[0] : ValueId{-1};
  }

  // Reads √(mean of squares + epsilon), or with `inverse` 1 divided by it.
  absl::StatusOr<std::optional<Root>> RootAt(ValueId id, bool inverse, Members* members) const {
    const Node* node = Before(id);
    if (node == nullptr) return std::nullopt;
    bool open_power = false;
    if (inverse) {
      members->Add(node);
      if (node->op == "reciprocal") {
        id = node->inputs[0];
      } else if (node->op == "div") {
        TW_ASSIGN(const bool one, IsNumber(node->inputs[0], 1));
        if (!one) return std::nullopt;
        id = node->inputs[1];
      } else if (node->op == "pow") {
        TW_ASSIGN(open_power, IsNumber(node->inputs[1], -0.5));
        if (!open_power) return std::nullopt;
        id = node->inputs[0];
      } else {
        return std::nullopt;
      }
    }
    if (!open_power) {
      const Node* root = Before(id);
      if (root == nullptr) return std::nullopt;
      TW_ASSIGN(const bool half,
                root->op == "pow" ? IsNumber(root->inputs[1], 0.5) : root->op == "sqrt");
      if (!half) return std::nullopt;
      members->Add(root);
      id = root->inputs[0];
    }
    return VarianceAt(id, members);
  }

  // Reads the mean of squares + epsilon.
  absl::StatusOr<std::optional<Root>> VarianceAt(ValueId id, Members* members) const {
    const Node* sum = Before(id, "add");
    if (sum == nullptr) return std::nullopt;
    members->Add(sum);
    Root root;
    const Node* mean = nullptr;
    for (const size_t side : {0, 1}) {
      mean = RowReduction(sum->inputs[side], "mean");
      TW_ASSIGN(const std::optional<double> epsilon, KnownNumber(sum->inputs[1 - side]));
      if (mean != nullptr && epsilon && *epsilon >= 0) {
        root.epsilon = *epsilon;
        break;
      }
      mean = nullptr;
    }
    if (mean == nullptr) return std::nullopt;
    members->Add(mean);
    const Node* square = Before(mean->inputs[0]);
    TW_ASSIGN(root.rows, SquaredBy(square));
    if (root.rows < 0) return std::nullopt;
    members->Add(square);
    root.data = root.rows;
    ReadCentred(&root, members);
    if (!HasNearRows(root.data)) return std::nullopt;
    if (root.mean < 0 && !PaysAsRms(root.data)) return std::nullopt;
    return root;
  }

  // Where the squares are those of differences from the mean, finds the data.
  void ReadCentred(Root* root, Members* members) const {
    const Node* centred = Before(root->rows, "sub");
    const Node* mean = centred == nullptr ? nullptr : RowReduction(centred->inputs[1], "mean");
    if (mean == nullptr || mean->inputs[0] != centred->inputs[0]) return;
    members->Add(centred);
    members->Add(mean);
    root->data = centred->inputs[0];
    root->mean = centred->inputs[1];
  }

  absl::StatusOr<ValueId> EmitNorm(const Node& node, const Root& root) {
    return Emit(node.name + "_rows", op::kNormalizeOp, {root.data}, AttrsOf(root));
  }
  static op::Attrs AttrsOf(const Root& root) {
    return {{"kind", std::string(root.mean < 0 ? op::kRmsNorm : op::kLayerNorm)},
            {"epsilon", root.epsilon}};
  }

  // ---- the patterns, from their ends

  // rows / root, or rows times 1 / root, which the scale may have been multiplied with before.
  absl::StatusOr<bool> RewriteNorm(const Node& node, size_t side) {
    Members members;
    members.Add(&node);
    const bool inverse = node.op == "mul";
    TW_ASSIGN(std::optional<Root> root, RootAt(node.inputs[side], inverse, &members));
    if (root && root->rows == node.inputs[1 - side] && members.Closed(&node, readers_)) {
      Define(node, op::kNormalizeOp, {root->data}, AttrsOf(*root));
      return true;
    }
    if (!inverse) return false;
    TW_ASSIGN(const std::optional<Scaled> scaled, ScaledAt(node.inputs[side]));
    if (!scaled || scaled->root.rows != node.inputs[1 - side]) return false;
    members = scaled->members;
    members.Add(&node);
    if (!members.Closed(&node, readers_)) return false;
    TW_ASSIGN(const ValueId rows, EmitNorm(node, scaled->root));
    Define(node, "mul", {rows, scaled->scale});
    return true;
  }

  // mul(1 / root, scale)
  struct Scaled {
    Root root;
    ValueId scale = -1;
    Members members;
  };
  absl::StatusOr<std::optional<Scaled>> ScaledAt(ValueId id) const {
    const Node* product = Before(id, "mul");
    if (product == nullptr) return std::nullopt;
    for (const size_t side : {0, 1}) {
      Scaled scaled;
      scaled.members.Add(product);
      TW_ASSIGN(const std::optional<Root> root,
                RootAt(product->inputs[side], /*inverse=*/true, &scaled.members));
      if (!root) continue;
      scaled.root = *root;
      scaled.scale = product->inputs[1 - side];
      // The product with whole rows must have their shape.
      const op::TensorType &whole = TypeOf(root->data), &part = TypeOf(scaled.scale);
      if (part.shape.size() > whole.shape.size()) continue;
      return scaled;
    }
    return std::nullopt;
  }

  // add(mul(x, a), sub(b, mul(mean, a))), as TensorFlow has it.
  absl::StatusOr<bool> RewriteFolded(const Node& node) {
    for (const size_t side : {0, 1}) {
      const Node* product = Before(node.inputs[side], "mul");
      const Node* shift = Before(node.inputs[1 - side], "sub");
      const Node* mean = shift == nullptr ? nullptr : Before(shift->inputs[1], "mul");
      if (product == nullptr || mean == nullptr) continue;
      for (const size_t factor : {0, 1}) {
        TW_ASSIGN(std::optional<Scaled> scaled, ScaledAt(product->inputs[factor]));
        if (!scaled || scaled->root.mean < 0) continue;
        const ValueId a = product->inputs[factor], x = product->inputs[1 - factor];
        const bool same = x == scaled->root.data &&
                          ((mean->inputs[0] == a && mean->inputs[1] == scaled->root.mean) ||
                           (mean->inputs[1] == a && mean->inputs[0] == scaled->root.mean));
        if (!same) continue;
        for (const Node* part : {product, shift, mean, &node}) scaled->members.Add(part);
        if (!scaled->members.Closed(&node, readers_)) continue;
        TW_ASSIGN(const ValueId rows, EmitNorm(node, scaled->root));
        TW_ASSIGN(const ValueId wide, Emit(node.name + "_scaled", "mul", {rows, scaled->scale}));
        Define(node, "add", {wide, shift->inputs[0]});
        return true;
      }
    }
    return false;
  }

  // e / sum(e), e = exp(x - max(x))
  absl::StatusOr<bool> RewriteSoftmax(const Node& node) {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      if (side == 1 && node.op == "div") break;
      Members members;
      members.Add(&node);
      ValueId id = node.inputs[1 - side];
      if (node.op == "mul") {
        const Node* inverse = Before(id, "reciprocal");
        if (inverse == nullptr) continue;
        members.Add(inverse);
        id = inverse->inputs[0];
      }
      const Node* sum = RowReduction(id, "sum");
      const Node* exps = Before(node.inputs[side], "exp");
      const Node* centred = exps == nullptr ? nullptr : Before(exps->inputs[0], "sub");
      const Node* top = centred == nullptr ? nullptr : RowReduction(centred->inputs[1], "max");
      if (sum == nullptr || top == nullptr || sum->inputs[0] != node.inputs[side] ||
          top->inputs[0] != centred->inputs[0] || !HasNearRows(top->inputs[0])) {
        continue;
      }
      for (const Node* part : {sum, exps, centred, top}) members.Add(part);
      if (!members.Closed(&node, readers_)) continue;
      const auto rank = static_cast<int64_t>(TypeOf(top->inputs[0]).shape.size());
      Define(node, "softmax", {top->inputs[0]}, {{"axis", rank - 1}});
      return true;
    }
    return false;
  }

  const int64_t near_row_;
  const bool all_rms_norms_;
  std::vector<std::vector<int>> readers_;
};

}  // namespace

absl::StatusOr<Graph> FuseNorms(Graph g, const GraphPassContext& ctx) {
  if (ctx.near_row <= 0) return g;
  return NormFuser(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
