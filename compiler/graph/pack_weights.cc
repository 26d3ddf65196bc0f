// Dense layers of floats whose weights are dequantised constants, and of few rows: the kernel reads
// the integers (packed_dense). Such a layer waits for its weights, and these are a quarter or an
// eighth of the bytes. With more rows it computes what it reads several times, and floats are
// faster.
#include <algorithm>
#include <numeric>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/numeric.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

constexpr int64_t kBlock = op::kWeightBlock;
// Smaller groups have about as many bytes of scales as of weights.
constexpr int64_t kMinGroup = 16;

// Integers, and for each the number of its scale and of its zero point, all of one shape.
struct Integers {
  op::RefTensor q, scale_of, zero_of;
  std::vector<double> scales, zeros;
};

class WeightPacker : public ForwardRewriter {
 public:
  WeightPacker(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), max_rows_(ctx.packed_weight_rows) {}

 private:
  // Numbers each element of a parameter, repeated over the shape of what it belongs to.
  static absl::StatusOr<op::RefTensor> Places(const op::RefTensor& parameter,
                                              const std::vector<int64_t>& shape) {
    op::RefTensor numbers{{ir::kI64, parameter.type.shape}, {}};
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      numbers.values.push_back(static_cast<double>(i));
    }
    return Moved("expand", {{"shape", shape}}, numbers);
  }

  static absl::StatusOr<op::RefTensor> Moved(std::string_view op, const op::Attrs& attrs,
                                             const op::RefTensor& tensor) {
    TW_ASSIGN(auto results,
              op::Reference(*op::FindOp(op), std::vector<op::RefTensor>{tensor}, attrs));
    return std::move(results[0]);
  }

  // What a value was dequantised from, with the moves behind that; nothing if it is something else.
  absl::StatusOr<std::optional<Integers>> IntegersBehind(ValueId id) const {
    const Node* node = Before(id);
    if (node == nullptr) return std::nullopt;
    if (node->op == "dequantize") {
      const ir::DType type = TypeOf(node->inputs[0]).dtype;
      if (type != ir::kI8 && type != ir::kU8) return std::nullopt;
      TW_ASSIGN(auto q, Known(node->inputs[0]));
      TW_ASSIGN(auto scale, Known(node->inputs[1]));
      TW_ASSIGN(auto zero, Known(node->inputs[2]));
      if (!q || !scale || !zero) return std::nullopt;
      Integers found;
      TW_ASSIGN(found.scale_of, Places(*scale, q->type.sizes()));
      TW_ASSIGN(found.zero_of, Places(*zero, q->type.sizes()));
      found.q = *std::move(q);
      found.scales = std::move(scale->values);
      found.zeros = std::move(zero->values);
      return std::optional(std::move(found));
    }
    if (node->op != kViewOp && node->op != "transpose") return std::nullopt;
    TW_ASSIGN(auto found, IntegersBehind(node->inputs[0]));
    if (!found) return std::nullopt;
    for (op::RefTensor* tensor : {&found->q, &found->scale_of, &found->zero_of}) {
      TW_ASSIGN(*tensor, Moved(node->op, node->attrs, *tensor));
    }
    return found;
  }

  // Neighbours along k that always share a scale and a zero point. The matrix is [n, k].
  static int64_t GroupOf(const Integers& w, int64_t n, int64_t k) {
    int64_t group = k;
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t at = 1; at < k; ++at) {
        const size_t here = static_cast<size_t>(row * k + at);
        if (w.scale_of.values[here] != w.scale_of.values[here - 1] ||
            w.zero_of.values[here] != w.zero_of.values[here - 1]) {
          group = std::gcd(group, at);
        }
      }
    }
    return group;
  }

  // The unsigned numbers that hold q: of 4 bits if they fit. `base` becomes 0.
  struct Fields {
    int64_t bits;
    double base;
  };
  static Fields FieldsOf(const op::RefTensor& q) {
    const auto [low, high] = std::minmax_element(q.values.begin(), q.values.end());
    if (*low >= 0 && *high <= 15) return {4, 0};
    if (*low >= -8 && *high <= 7) return {4, -8};
    return {8, q.type.dtype == ir::kI8 ? -128.0 : 0.0};
  }

  // [n/16, k/step, 16] of what `element` gives for (n, k): the parameters of groups.
  template <typename Element>
  ValueId Blocked(const std::string& name, int64_t n, int64_t k, int64_t step,
                  const Element& element) {
    const int64_t blocks = (n + kBlock - 1) / kBlock;
    op::RefTensor tensor{{ir::kF32, {blocks, k / step, kBlock}}, {}};
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t at = 0; at < k; at += step) {
        for (int64_t lane = b * kBlock; lane < (b + 1) * kBlock; ++lane) {
          tensor.values.push_back(lane < n ? element(static_cast<size_t>(lane * k + at)) : 0);
        }
      }
    }
    return AddTensor(&g_, name, tensor);
  }

  ValueId Words(const std::string& name, const Integers& w, Fields fields, int64_t n, int64_t k) {
    const int64_t blocks = (n + kBlock - 1) / kBlock, count = 32 / fields.bits;
    std::vector<int64_t> words(static_cast<size_t>(blocks * (k / count) * kBlock), 0);
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t at = 0; at < k; ++at) {
        const double q = w.q.values[static_cast<size_t>(row * k + at)] - fields.base;
        const int64_t place = (row / kBlock * (k / count) + at / count) * kBlock + row % kBlock;
        words[static_cast<size_t>(place)] |= static_cast<int64_t>(q) << at % count * fields.bits;
      }
    }
    const op::TensorType type{ir::kI32, {blocks, k / count, kBlock}};
    return AddTensor(&g_, name, op::FromIntegers(type, words));
  }

  // The fewest rows of data, if their number is open: a decoder has those most of the time.
  int64_t RowsOf(const op::TensorType& x) const {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < x.shape.size(); ++d) {
      op::Sizes least;
      for (const std::string& name : x.shape[d].variables()) {
        const auto range = g_.size_ranges.find(name);
        least[name] = range == g_.size_ranges.end() ? 1 : range->second.min;
      }
      rows *= std::max<int64_t>(1, x.shape[d].Evaluate(least).value_or(1));
    }
    return rows;
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "dense" || node.inputs.size() != 2) return false;
    const std::optional<op::Layout> layout = UncutWeights(node);
    const op::TensorType &x = TypeOf(node.inputs[0]), &result = TypeOf(node.outputs[0]);
    if (!layout || x.dtype != ir::kF32) return false;
    if (!x.shape.back().is_constant() || !result.shape.back().is_constant()) return false;
    const int64_t k = x.size(-1), n = result.size(-1), rows = RowsOf(x);
    if (rows > max_rows_) return false;
    TW_ASSIGN(auto w, IntegersBehind(node.inputs[1]));
    if (!w) return false;
    if (layout->Dimension('N') == 1) {
      for (op::RefTensor* tensor : {&w->q, &w->scale_of, &w->zero_of}) {
        TW_ASSIGN(*tensor, Moved("transpose", {{"perm", std::vector<int64_t>{1, 0}}}, *tensor));
      }
    }
    const Fields fields = FieldsOf(w->q);
    // Of 4 bits, twice as much is unpacked for each byte that is read.
    if (rows * 8 / fields.bits > max_rows_) return false;
    const int64_t group = GroupOf(*w, n, k);
    if (group < kMinGroup || group % (32 / fields.bits) != 0) return false;
    const std::string name = NameOf(node.inputs[1]);
    std::vector<ValueId> operands = {
        node.inputs[0], Words(name + "_words", *w, fields, n, k),
        Blocked(name + "_scales", n, k, group,
                [&](size_t at) { return w->scales[static_cast<size_t>(w->scale_of.values[at])]; })};
    const double middle = static_cast<double>(int64_t{1} << (fields.bits - 1));
    const auto is_middle = [&](double zero) { return zero - fields.base == middle; };
    if (!std::all_of(w->zeros.begin(), w->zeros.end(), is_middle)) {
      operands.push_back(Blocked(name + "_zeros", n, k, group, [&](size_t at) {
        return w->zeros[static_cast<size_t>(w->zero_of.values[at])] - fields.base;
      }));
    }
    op::Attrs attrs = {{"bits", fields.bits}, {"group", group}};
    if (n % kBlock != 0) attrs["units"] = n;
    Define(node, "packed_dense", operands, std::move(attrs));
    return true;
  }

  const int64_t max_rows_;
};

}  // namespace

absl::StatusOr<Graph> PackWeights(Graph g, const GraphPassContext& ctx) {
  if (ctx.packed_weight_rows == 0) return g;
  return WeightPacker(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
