// Constant weights in the layouts that kernels read contiguously.
#include <map>
#include <optional>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

struct LayoutRule {
  std::string_view op, from;
  std::string to;
  bool pairs = false;      // of bf16, else of bytes where blocks of terms are
  bool fragments = false;  // of bytes that a machine multiplies as matrices
};

// In order of preference: the first that the sizes fit. A matrix unit has one layout, for what it
// computes.
std::vector<LayoutRule> LayoutRules(int64_t matrix_block) {
  static_assert(op::kWeightBlock == 16 && op::kDot == 4 && op::kPair == 2);
  if (matrix_block > 0) {
    const std::string squares = StrCat("NK", matrix_block, "n", matrix_block, "k");
    return {{"dense", "NK", squares}, {"dense", "KN", squares}};
  }
  return {{"recurrent", "KGU", "GUK16u"},
          {"conv2d", "OIHW", "OIHW16o"},
          {"conv2d", "OIHW", "IHWO"},
          {"conv2d_transpose", "IOHW", "OHWI16o"},
          {"conv2d_transpose", "IOHW", "IHWO"},
          // Words of fragments are neighbouring terms.
          {"dense", "KN", "NK", /*pairs=*/false, /*fragments=*/true},
          {"dense", "NK", "NK16n2k", /*pairs=*/true},
          {"dense", "KN", "NK16n2k", /*pairs=*/true},
          {"dense", "NK", "NK16n4k"},
          {"dense", "KN", "NK16n4k"},
          {"dense", "NK", "NK16n"},
          {"dense", "NK", "KN"},
          // Already contiguous along n, so only the order of the blocks changes.
          {"dense", "KN", "NK16n"}};
}

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A rule with what follows from it for one operator.
struct Repacking {
  op::Layout from, to;
  std::vector<int64_t> sizes;  // of the weight's axes
  char units, terms;           // the axes of the results and of the sum
  bool pairs;

  // Blocks of terms are for dot products and matrix units.
  bool has_terms() const { return to.Block(terms) > 1; }
  int64_t Size(char axis, const op::OpSpec& spec) const {
    return sizes[spec.weight_layout.find(axis)];
  }
};

Repacking RepackingOf(const LayoutRule& rule, const op::OpSpec& spec,
                      const op::TensorType& weight) {
  const auto has = [&](char axis) { return spec.weight_layout.find(axis) != std::string::npos; };
  Repacking r{op::Layout::Parse(rule.from, spec.weight_layout).value(),
              op::Layout::Parse(rule.to, spec.weight_layout).value(),
              {},
              has('N')   ? 'N'
              : has('U') ? 'U'
                         : 'O',
              has('K') ? 'K' : 'I',
              rule.pairs};
  const std::vector<op::Dim> sizes = r.from.SizesOf(weight.shape, nullptr).value();
  for (const op::Dim& size : sizes) r.sizes.push_back(size.value());
  return r;
}

// A product of vectors of some size may end inside a block, which zeros fill: columns that nobody
// reads.
bool Fits(const Repacking& r, const op::OpSpec& spec, const Node& node, ir::DType type, bool pairs,
          int64_t padded_blocks) {
  if (!r.to.is_cut()) return true;
  if (r.has_terms() && (r.pairs ? !pairs : type != ir::kI8)) return false;
  if (op::GetInt(node.attrs, "groups", 1) != 1) return false;
  const int64_t units = r.Size(r.units, spec), block = r.to.Block(r.units);
  const bool dots = r.to.Block(r.terms) == op::kDot || r.pairs;
  const bool fill = dots || (r.units != 'O' && !r.has_terms() && units >= padded_blocks * block);
  return r.Size(r.terms, spec) % r.to.Block(r.terms) == 0 && (units % block == 0 || fill);
}

// A dense layer of words computes whole blocks, for dot products fill vectors; what is none of its
// units is cut off behind it.
Node CutUnits(Graph* g, Node* node, int64_t units) {
  const ValueId y = node->outputs[0];
  op::TensorType wide = g->values[y].type;
  const op::AttrValue sizes = op::ShapeAttr(wide.shape);
  const std::vector<int64_t> zeros(wide.shape.size(), 0), ones(wide.shape.size(), 1);
  wide.shape.back() = RoundUp(units, op::kWeightBlock);
  node->outputs[0] = AddValue(g, StrCat(g->values[y].name, "_wide"), wide);
  return MakeNode(node->name + "_units", "slice", {node->outputs[0]}, y,
                  {{"starts", zeros}, {"steps", ones}, {"sizes", sizes}});
}

// A product of matrices that are large enough for fragments of bytes (of 16 rows, 8 columns and 32
// terms at most) to be half full.
bool FillsFragments(const Graph& g, const Node& node) {
  const op::TensorType &data = g.values[node.inputs[0]].type,
                       &sums = g.values[node.outputs[0]].type;
  const op::Dim &rows = data.shape[data.shape.size() - 2], &terms = data.shape.back();
  const op::Dim& columns = sums.shape.back();
  const auto holds = [](const op::Dim& dim, int64_t least) {
    return dim.is_constant() && dim.value() >= least;
  };
  return holds(rows, 8) && holds(terms, 16) && holds(columns, 4);
}

}  // namespace

absl::StatusOr<Graph> LayoutWeights(Graph g, const GraphPassContext& ctx) {
  const std::vector<LayoutRule> rules = LayoutRules(ctx.matrix_block);
  std::map<std::pair<ValueId, std::string>, ValueId> moved;
  std::vector<Node> nodes = std::move(g.nodes);
  g.nodes.clear();
  for (Node& node : nodes) {
    std::optional<Node> behind;
    for (const LayoutRule& rule : rules) {
      if (node.op != rule.op || !IsConstant(g, node.inputs[1])) continue;
      const op::OpSpec& spec = *op::FindOp(node.op);
      if (op::GetString(node.attrs, "data_layout", spec.data_layout) != spec.data_layout ||
          op::GetString(node.attrs, "weight_layout", spec.weight_layout) != rule.from) {
        continue;
      }
      const ValueId from = node.inputs[1];
      const ir::DType type = g.values[from].type.dtype;
      // Fragments of words are loaded from rows or columns alike.
      const bool words =
          Contains(ctx.half_products, type) || (ctx.rounded_products && type == ir::kF32);
      const bool bytes = ctx.byte_products && type == ir::kI8 && FillsFragments(g, node);
      if (rule.op == "dense" && (words || bytes != rule.fragments)) continue;
      const Repacking r = RepackingOf(rule, spec, g.values[from].type);
      const bool pairs =
          Contains(ctx.half_pairs, type) && g.values[node.inputs[0]].type.dtype == type;
      if (!Fits(r, spec, node, type, pairs, ctx.padded_blocks)) continue;
      ValueId& to = moved.try_emplace({from, rule.to}, -1).first->second;
      if (to < 0) {
        const Value weight = g.values[from];
        to = AddConstant(&g, StrCat(weight.name, "_", support::ToLower(rule.to)),
                         op::TensorType(type, r.to.Stored(r.sizes)),
                         [data = weight.constant, r, type] {
                           return op::Repack(data->view(), r.from, r.to, r.sizes, type.bytes());
                         });
      }
      const int64_t units = r.Size(r.units, spec);
      if (units % r.to.Block(r.units) != 0) {
        if (r.has_terms()) {
          behind = CutUnits(&g, &node, units);
        } else if (rule.op == "dense") {
          node.attrs["units"] = units;
        }
      }
      node.inputs[1] = to;
      node.attrs["weight_layout"] = rule.to;
      break;
    }
    g.nodes.push_back(std::move(node));
    if (behind) g.nodes.push_back(*std::move(behind));
  }
  return Compact(g);
}

}  // namespace tilewright::graph
