// Attention as importers and exporters write it (product, scale, bound, mask, softmax, product)
// becomes one operator, which keeps no matrix of scores and reads keys and values where they lie:
//   matmul(softmax(add(mul(matmul(q, transpose(k)), c), mask)), v)   →   attention(q, k, v, mask)
// Transposes of q, k, v and of the result become layouts. A mask that is minus infinity exactly
// where a key comes after the token becomes `causal`, and whole blocks of keys are left out.
// Chains whose scores somebody else reads stay, those whose keys or values are not contiguous along
// a head (the kernel would load them element by element), and those where it does not pay.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/op/attention.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

using Dims = std::vector<op::Dim>;

constexpr double kMasked = -std::numeric_limits<double>::infinity();

// A value of four dimensions, and what they are.
struct Laid {
  ValueId id = -1;
  op::Layout layout{op::kAttentionAxes};
};

// What lies between the two products.
struct Chain {
  const Node* product = nullptr;  // of q and k
  Dims shape;                     // of the scores
  ValueId mask = -1;
  double scale = 1, softcap = 0;
  bool dead_rows_zero = false;
};

class AttentionFuser : public ForwardRewriter {
 public:
  AttentionFuser(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), ctx_(ctx), readers_(Readers(g_)) {
    for (ValueId id : g_.outputs) readers_[id].push_back(-1);
  }

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op == "transpose") return TakeResultLayout(node);
    if (node.op != "matmul") return false;
    TW_ASSIGN(std::optional<Chain> chain, ChainBefore(node.inputs[0]));
    if (!chain) return false;
    return Fuse(node, *chain);
  }

  // What this pass makes has one reader.
  bool ReadOnce(ValueId id) const {
    return static_cast<size_t>(id) >= readers_.size() || readers_[id].size() == 1;
  }
  ValueId BehindViews(ValueId id) const {
    for (const Node* view = Before(id, kViewOp); view != nullptr; view = Before(id, kViewOp)) {
      id = view->inputs[0];
    }
    return id;
  }
  // The node that makes a value, behind views that alone read each other. Null where others read
  // one of them.
  const Node* OnlyBefore(ValueId id) const {
    const Node* node = nullptr;
    do {
      if (!ReadOnce(id)) return nullptr;
      node = Before(id);
      if (node != nullptr && !node->inputs.empty()) id = node->inputs[0];
    } while (node != nullptr && node->op == kViewOp);
    return node;
  }
  absl::StatusOr<std::optional<double>> Number(ValueId id) const {
    if (!TypeOf(id).fixed()) return std::nullopt;
    return KnownNumber(id);
  }

  // ---- the chain between the products, from its end

  absl::StatusOr<std::optional<Chain>> ChainBefore(ValueId weights) const {
    Chain chain;
    const Node* node = OnlyBefore(weights);
    ValueId dead = -1;
    if (node != nullptr && node->op == "where") {  // rows that see no key are zeros
      TW_ASSIGN(const auto zero, Number(node->inputs[1]));
      if (zero != 0.0) return std::nullopt;
      dead = node->inputs[0];
      node = OnlyBefore(node->inputs[2]);
    }
    if (node == nullptr || node->op != "softmax") return std::nullopt;
    const auto rank = static_cast<int64_t>(TypeOf(node->inputs[0]).shape.size());
    const int64_t axis = op::GetInt(node->attrs, "axis", -1);
    if (rank != 4 || (axis != 3 && axis != -1)) return std::nullopt;
    chain.shape = TypeOf(node->inputs[0]).shape;
    TW_ASSIGN(const bool scores, ReadScores(node->inputs[0], &chain));
    if (!scores) return std::nullopt;
    if (dead < 0) return chain;
    chain.dead_rows_zero = true;
    TW_ASSIGN(const bool is_dead, IsDeadRow(dead, chain.mask));
    return is_dead ? std::optional(chain) : std::nullopt;
  }

  // Whether `id` says of which rows the mask is minus infinity for every key.
  absl::StatusOr<bool> IsDeadRow(ValueId id, ValueId mask) const {
    const Node* equal = Before(BehindViews(id), "equal");
    if (equal == nullptr || mask < 0) return false;
    TW_ASSIGN(const auto bound, Number(equal->inputs[1]));
    const Node* best = Before(BehindViews(equal->inputs[0]), "reduce");
    if (best == nullptr || bound != kMasked) return false;
    const auto last = static_cast<int64_t>(TypeOf(best->inputs[0]).shape.size()) - 1;
    const std::vector<int64_t> axes = op::GetInts(best->attrs, "axes", {});
    return op::GetString(best->attrs, "kind", "") == "max" && best->inputs[0] == mask &&
           axes == std::vector<int64_t>{last};
  }

  // Goes from scores back to the product. False where something is not of the pattern.
  absl::StatusOr<bool> ReadScores(ValueId id, Chain* chain) const {
    while (true) {
      const Node* node = OnlyBefore(id);
      if (node == nullptr) return false;
      if (node->op == "matmul") {
        chain->product = node;
        return true;
      }
      if (node->op == "add") {
        // Bounds and other masks lie before the mask.
        if (chain->mask >= 0 || chain->scale != 1 || chain->softcap != 0) return false;
        const size_t side = IsScores(node->inputs[0], *node) ? 0 : 1;
        if (!IsScores(node->inputs[side], *node)) return false;
        chain->mask = node->inputs[1 - side];
        id = node->inputs[side];
        continue;
      }
      if (node->op != "mul" && node->op != "div") return false;
      TW_ASSIGN(std::optional<double> factor, Number(node->inputs[1]));
      size_t side = 0;
      if (!factor && node->op == "mul") {
        TW_ASSIGN(factor, Number(node->inputs[0]));
        side = 1;
      }
      if (!factor || *factor == 0) return false;
      id = node->inputs[side];
      const Node* bound = OnlyBefore(id);
      if (node->op == "mul" && bound != nullptr && bound->op == "tanh") {
        TW_ASSIGN(const bool read, ReadSoftcap(*bound, *factor, chain));
        if (!read) return false;
        id = BehindSoftcap(*bound);
        continue;
      }
      chain->scale *= node->op == "mul" ? *factor : 1 / *factor;
    }
  }

  // c * tanh(x / c)
  absl::StatusOr<bool> ReadSoftcap(const Node& tanh, double cap, Chain* chain) const {
    const Node* divided = OnlyBefore(tanh.inputs[0]);
    if (divided == nullptr || chain->softcap != 0 || chain->scale != 1 || cap <= 0) return false;
    if (divided->op != "div" && divided->op != "mul") return false;
    TW_ASSIGN(const std::optional<double> by, Number(divided->inputs[1]));
    if (!by) return false;
    const double ratio = divided->op == "div" ? *by / cap : *by * cap;
    chain->softcap = cap;
    return std::abs(ratio - 1) < 1e-6;
  }
  ValueId BehindSoftcap(const Node& tanh) const { return OnlyBefore(tanh.inputs[0])->inputs[0]; }

  // Whether an operand of the addition is the scores: of the full shape, and made by the operators
  // of the pattern.
  bool IsScores(ValueId id, const Node& add) const {
    if (!op::SameElements(TypeOf(id), TypeOf(add.outputs[0]))) return false;
    const Node* node = OnlyBefore(id);
    return node != nullptr && (node->op == "matmul" || node->op == "mul" || node->op == "div");
  }

  // ---- operands

  static bool EndsInElements(const op::Layout& layout) {
    return layout.Dimension('D') + 1 == layout.rank();
  }

  // Goes behind transposes of a value of this layout.
  Laid BehindTransposes(Laid value) const {
    for (const Node* node = Before(value.id, "transpose"); node != nullptr;
         node = Before(value.id, "transpose")) {
      std::vector<int64_t> undone(value.layout.rank());
      std::iota(undone.rbegin(), undone.rend(), 0);
      const std::vector<int64_t> perm = op::GetInts(node->attrs, "perm", undone);
      for (size_t d = 0; d < perm.size(); ++d) {
        undone[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
      }
      value = {node->inputs[0], value.layout.Transposed(undone)};
    }
    return value;
  }

  // The queries of the shape [b,h,s,d] behind the rows of the product, without a factor, which goes
  // into `scale`. Makes a view where there are none.
  absl::StatusOr<Laid> Queries(const Node& node, ValueId rows, const Dims& shape, double* scale) {
    ValueId id = rows;
    while (TypeOf(id).shape != shape) {
      const Node* view = Before(id, kViewOp);
      if (view == nullptr) {
        TW_ASSIGN(id,
                  Emit(node.name + "_queries", kViewOp, {rows}, {{"shape", op::ShapeAttr(shape)}}));
        return Laid{id};
      }
      id = view->inputs[0];
    }
    if (const Node* scaled = Before(id, "mul"); scaled != nullptr) {
      TW_ASSIGN(const std::optional<double> factor, Number(scaled->inputs[1]));
      if (factor && TypeOf(scaled->inputs[0]).shape == shape) {
        *scale *= *factor;
        id = scaled->inputs[0];
      }
    }
    return BehindTransposes({id});
  }

  absl::StatusOr<bool> Fuse(const Node& node, Chain chain) {
    const Dims rows = TypeOf(chain.product->inputs[0]).shape;
    const Dims keys = TypeOf(chain.product->inputs[1]).shape;  // [b,g,d,t]
    const Dims values = TypeOf(node.inputs[1]).shape, out = TypeOf(node.outputs[0]).shape;
    const Dims& scores = chain.shape;  // [b,h,s,t]
    // The product reads keys as columns.
    const op::Layout columns = Laid().layout.Transposed(std::vector<int64_t>{0, 1, 3, 2});
    const Laid k = BehindTransposes({chain.product->inputs[1], columns});
    const Laid v = BehindTransposes({node.inputs[1]});
    const bool ranks = rows.size() == 4 && keys.size() == 4 && values.size() == 4;
    if (!ranks || TypeOf(node.outputs[0]).dtype != ir::kF32 || !EndsInElements(k.layout) ||
        !EndsInElements(v.layout) || !IsOneAttention(rows, keys, values, scores) ||
        !Pays(scores[2], scores[3])) {
      return false;
    }
    const Block block = ctx_.attention.from_tokens > 0
                            ? BlockOfGroup(chain, keys, values[3].value(), rows[3].value())
                            : Block{RowsOfBlock(scores, keys[1]), ctx_.attention.keys};
    if (block.rows == 0) return false;
    const Dims shape = {scores[0], scores[1], scores[2], rows[3]};
    TW_ASSIGN(const Laid q, Queries(node, chain.product->inputs[0], shape, &chain.scale));
    op::Attrs attrs = {{"scale", chain.scale},
                       {"rows", block.rows},
                       {"keys", block.keys},
                       {"few_tokens", ctx_.attention.few_tokens},
                       {"q_layout", q.layout.ToText()},
                       {"k_layout", k.layout.ToText()},
                       {"v_layout", v.layout.ToText()}};
    if (chain.softcap > 0) attrs["softcap"] = chain.softcap;
    if (chain.dead_rows_zero) attrs["dead_rows_zero"] = int64_t{1};
    std::vector<ValueId> operands = {q.id, k.id, v.id};
    TW_ASSIGN(const bool causal, IsCausal(chain.mask, scores[2], scores[3]));
    if (causal) {
      attrs["causal"] = int64_t{1};
    } else if (chain.mask >= 0) {
      operands.push_back(chain.mask);
    }
    if (out == Dims{scores[0], scores[1], scores[2], values[3]}) {
      Define(node, op::kAttentionOp, operands, attrs);
      return true;
    }
    TW_ASSIGN(const ValueId y, Emit(node.name + "_heads", op::kAttentionOp, operands, attrs));
    Define(node, kViewOp, {y}, {{"shape", op::ShapeAttr(out)}});
    return true;
  }

  bool Pays(const op::Dim& tokens, const op::Dim& keys) const {
    const AttentionCut& cut = ctx_.attention;
    if (cut.from_tokens > 0) return tokens.constant().value_or(0) >= cut.from_tokens;
    if (tokens.constant().value_or(0) <= cut.few_tokens) return true;  // few, or open
    return keys.constant().value_or(cut.from_keys) >= cut.from_keys;
  }

  // Half of them where so many fewer hang over the end of the tokens that lanes lie along. Heads
  // that share their keys fill a block together.
  int64_t RowsOfBlock(const Dims& scores, const op::Dim& key_heads) const {
    const AttentionCut& cut = ctx_.attention;
    const int64_t tokens = scores[2].constant().value_or(0), half = (cut.rows + 1) / 2;
    if (tokens <= cut.few_tokens || scores[1] != key_heads) return cut.rows;
    const auto computed = [&](int64_t block) {
      return static_cast<double>((tokens + block - 1) / block * block);
    };
    return computed(half) * cut.half_cost < computed(cut.rows) ? half : cut.rows;
  }

  // Queries and keys of a block; 0: none fits.
  struct Block {
    int64_t rows = 0, keys = 0;
  };

  // The most rows whose queries, scores and weights fit into the memory of a group, next to a block
  // of keys and of values. Each element of these serves all rows, so that half as many rows pay
  // less than a quarter of the keys.
  Block BlockOfGroup(const Chain& chain, const Dims& keys, int64_t value, int64_t head) const {
    const AttentionCut& cut = ctx_.attention;
    constexpr int64_t kNumbers = 8, kPad = 4;  // of a row: its sums and maxima; between rows
    const bool shares_keys = chain.shape[1] != keys[1];
    for (const int64_t rows : {cut.rows, cut.rows / 2}) {
      for (const int64_t tile : {cut.keys, cut.keys / 2, cut.keys / 4}) {
        const int64_t block = op::KeysOfBlock(tile, keys[3], true);
        const int64_t all = shares_keys ? 2 * rows : rows;  // the operator's bound
        const int64_t tiles = chain.mask >= 0 ? 4 : 2;      // scores, weights, a mask, and turned
        const int64_t row = head + (shares_keys ? value : 0) + tiles * block + kNumbers;
        const int64_t copies = block * (head + value + 2 * kPad) + head * kPad;
        if ((all * row + copies) * ir::kF32.bytes() <= cut.shared_bytes) return {rows, tile};
      }
    }
    return {};
  }

  // Whether the operands of the products are those of one attention with these scores, in which the
  // query heads of a key head follow one another.
  static bool IsOneAttention(const Dims& rows, const Dims& keys, const Dims& values,
                             const Dims& scores) {
    const auto heads = scores[1].constant(), kv_heads = keys[1].constant();
    return heads && kv_heads && *heads % *kv_heads == 0 && rows[3].is_constant() &&
           values[3].is_constant() && scores[0] == rows[0] && rows[0] == keys[0] &&
           rows[0] == values[0] && rows[1] == keys[1] && rows[1] == values[1] &&
           op::Dim(*heads / *kv_heads) * scores[2] == rows[2];
  }

  // ---- masks

  // The first of numbers that count up by 1 in the only dimension of a value, `count` of them.
  absl::StatusOr<std::optional<op::Dim>> CountsFrom(ValueId id, const op::Dim& count) const {
    id = BehindViews(id);
    if (TypeOf(id).shape != Dims{count}) return std::nullopt;
    op::Dim first = 0;
    if (const Node* node = Before(id, "counting"); node != nullptr) {
      const bool by_one = op::GetInt(node->attrs, "step", 1) == 1;
      return by_one ? std::optional(op::GetDims(node->attrs, "start")[0]) : std::nullopt;
    }
    if (const Node* node = Before(id, "slice"); node != nullptr) {
      if (op::GetInts(node->attrs, "steps", {}) != std::vector<int64_t>{1}) return std::nullopt;
      first = op::GetDims(node->attrs, "starts")[0];
      id = node->inputs[0];
    }
    if (!TypeOf(id).fixed() || TypeOf(id).rank() != 1) return std::nullopt;
    TW_ASSIGN(const std::optional<op::RefTensor> known, Known(id));
    if (!known) return std::nullopt;
    for (size_t i = 0; i < known->values.size(); ++i) {
      if (known->values[i] != known->values[0] + static_cast<double>(i)) return std::nullopt;
    }
    return first + op::Dim(static_cast<int64_t>(known->values[0]));
  }

  // Whether a mask is 0 where a key comes no later than the query's token, and minus infinity
  // elsewhere. The last token is that of the last key.
  absl::StatusOr<bool> IsCausal(ValueId mask, const op::Dim& tokens, const op::Dim& keys) const {
    if (mask < 0) return false;
    mask = BehindViews(mask);
    if (TypeOf(mask).fixed()) {
      TW_ASSIGN(const std::optional<op::RefTensor> known, Known(mask));
      if (known) return HoldsCausal(*known, tokens, keys);
    }
    const Node* where = Before(mask, "where");
    if (where == nullptr) return false;
    TW_ASSIGN(const auto zero, Number(where->inputs[1]));
    TW_ASSIGN(const auto low, Number(where->inputs[2]));
    const Node* seen = Before(BehindViews(where->inputs[0]), "less_equal");
    if (seen == nullptr || zero != 0.0 || low != kMasked) return false;
    const Dims column = TypeOf(seen->inputs[0]).shape, row = TypeOf(seen->inputs[1]).shape;
    if (column.empty() || column.back() != keys || row.size() < 2 || row.back() != op::Dim(1)) {
      return false;
    }
    TW_ASSIGN(const auto first_key, CountsFrom(seen->inputs[0], keys));
    TW_ASSIGN(const auto first_token, CountsFrom(seen->inputs[1], tokens));
    return first_key == op::Dim(0) && first_token == keys - tokens;
  }

  static bool HoldsCausal(const op::RefTensor& mask, const op::Dim& tokens, const op::Dim& keys) {
    if (!tokens.is_constant() || !keys.is_constant()) return false;
    const int64_t rows = tokens.value(), columns = keys.value();
    const Dims& shape = mask.type.shape;
    if (mask.type.elements() != rows * columns || shape.size() < 2 || shape.back() != keys ||
        shape[shape.size() - 2] != tokens) {
      return false;
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const bool seen = i % columns <= columns - rows + i / columns;
      if (mask.values[static_cast<size_t>(i)] != (seen ? 0 : kMasked)) return false;
    }
    return true;
  }

  // ---- the result

  // A transpose of the result alone: the kernel writes it as it will be.
  absl::StatusOr<bool> TakeResultLayout(const Node& node) {
    const Node* made = OnlyBefore(node.inputs[0]);
    if (made == nullptr || made->op != op::kAttentionOp) return false;
    if (TypeOf(made->outputs[0]).shape != TypeOf(node.inputs[0]).shape) return false;
    TW_ASSIGN(const op::Layout before,
              op::Layout::Parse(op::GetString(made->attrs, "y_layout", op::kAttentionAxes),
                                op::kAttentionAxes));
    const std::vector<int64_t> perm = op::GetInts(node.attrs, "perm", {});
    if (perm.size() != before.rank()) return false;
    const op::Layout layout = before.Transposed(perm);
    if (!EndsInElements(layout)) return false;
    op::Attrs attrs = made->attrs;
    attrs["y_layout"] = layout.ToText();
    Define(node, op::kAttentionOp, made->inputs, std::move(attrs));
    return true;
  }

  const GraphPassContext& ctx_;
  std::vector<std::vector<int>> readers_;
};

}  // namespace

absl::StatusOr<Graph> FuseAttention(Graph g, const GraphPassContext& ctx) {
  if (ctx.attention.rows <= 0) return g;
  return AttentionFuser(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
