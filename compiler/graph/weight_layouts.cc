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

// `to` is `from` permuted; with a block, of the output channels cut into [blocks, block], and with
// dots, for bytes only, of the input channels cut into [groups, 4], or [blocks, block] of squares.
struct LayoutRule {
  std::string_view op, from, to;
  std::vector<int64_t> perm;
  int64_t block = 1;
  bool dots = false;
  bool squares = false;
};

// In order of preference: the first whose block divides the output channels. A matrix unit has one
// layout, for what it computes.
std::vector<LayoutRule> LayoutRules(int64_t matrix_block) {
  constexpr int64_t kBlock = op::kWeightBlock;
  if (matrix_block > 0) {
    return {{"dense", "NK", "NKnk", {0, 2, 1, 3}, matrix_block, false, /*squares=*/true},
            {"dense", "KN", "NKnk", {2, 0, 3, 1}, matrix_block, false, /*squares=*/true}};
  }
  return {{"conv2d", "OIHW", "OIHW16o", {0, 2, 3, 4, 1}, kBlock},
          {"conv2d", "OIHW", "IHWO", {1, 2, 3, 0}},
          {"conv2d_transpose", "IOHW", "OHWI16o", {1, 3, 4, 0, 2}, kBlock},
          {"conv2d_transpose", "IOHW", "IHWO", {0, 2, 3, 1}},
          {"dense", "NK", "NK16n4k", {0, 2, 1, 3}, kBlock, /*dots=*/true},
          {"dense", "KN", "NK16n4k", {2, 0, 3, 1}, kBlock, /*dots=*/true},
          {"dense", "NK", "NK16n", {0, 2, 1}, kBlock},
          {"dense", "NK", "KN", {1, 0}},
          // Already contiguous along n, so only the order of the blocks changes.
          {"dense", "KN", "NK16n", {1, 0, 2}, kBlock}};
}

// What an operator without the attribute has.
std::string_view DefaultLayout(std::string_view op) {
  return op == "dense" ? "NK" : op == "conv2d" ? "OIHW" : "IOHW";
}

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

size_t BlockedAxis(const LayoutRule& rule) {
  return rule.from == "KN" || rule.from == "IOHW" ? 1 : 0;
}

// A dense layer of some size may end inside a block, which zeros fill: columns that nobody reads.
constexpr int64_t kMinPaddedBlocks = 8;

// The shape that a rule permutes; empty where the rule does not apply.
std::vector<int64_t> CutShape(const LayoutRule& rule, const Node& node,
                              std::vector<int64_t> shape) {
  if (rule.block == 1) return shape;
  if (rule.squares && (shape[0] % rule.block != 0 || shape[1] % rule.block != 0)) return {};
  if (op::GetInt(node.attrs, "groups", 1) != 1) return {};
  const size_t at = BlockedAxis(rule);
  const bool fill = rule.op == "dense" && (rule.dots || shape[at] >= kMinPaddedBlocks * rule.block);
  if (shape[at] % rule.block != 0 && !fill) return {};
  if (rule.dots && shape[1 - at] % op::kDot != 0) return {};
  std::vector<int64_t> cut;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d == at) {
      cut.insert(cut.end(), {RoundUp(shape[d], rule.block) / rule.block, rule.block});
    } else if (rule.dots || rule.squares) {
      const int64_t part = rule.dots ? op::kDot : rule.block;
      cut.insert(cut.end(), {shape[d] / part, part});
    } else {
      cut.push_back(shape[d]);
    }
  }
  return cut;
}

// The weight as `cut` with the rule's order of dimensions; zeros fill the last block.
std::string Permuted(const LayoutRule& rule, const Value& weight, const std::vector<int64_t>& cut) {
  const int64_t element = weight.type.dtype.bytes();
  const std::vector<int64_t> shape = weight.type.sizes();
  const std::string_view bytes = weight.constant->view();
  const size_t at = BlockedAxis(rule);
  if (rule.block == 1 || shape[at] % rule.block == 0) {
    return PermuteBytes(bytes, cut, rule.perm, element);
  }
  int64_t inner = element;
  for (size_t d = at + 1; d < shape.size(); ++d) inner *= shape[d];
  const size_t row = static_cast<size_t>(inner * shape[at]);
  const size_t zeros = static_cast<size_t>(inner * (RoundUp(shape[at], rule.block) - shape[at]));
  std::string padded;
  for (size_t begin = 0; begin < bytes.size(); begin += row) {
    padded.append(bytes.substr(begin, row)).append(zeros, '\0');
  }
  return PermuteBytes(padded, cut, rule.perm, element);
}

// A dense layer of bytes computes whole blocks, for dot products fill vectors; what is none of its
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

}  // namespace

absl::StatusOr<Graph> LayoutWeights(Graph g, const GraphPassContext& ctx) {
  const std::vector<LayoutRule> rules = LayoutRules(ctx.matrix_block);
  std::map<std::pair<ValueId, std::string>, ValueId> moved;
  std::vector<Node> nodes = std::move(g.nodes);
  g.nodes.clear();
  for (Node& node : nodes) {
    std::optional<Node> behind;
    for (const LayoutRule& rule : rules) {
      if (node.op != rule.op || !IsConstant(g, node.inputs[1]) ||
          op::GetString(node.attrs, "weight_layout", DefaultLayout(rule.op)) != rule.from) {
        continue;
      }
      const ValueId from = node.inputs[1];
      if ((rule.dots || rule.squares) && g.values[from].type.dtype != ir::kI8) continue;
      // Fragments are loaded from rows or columns alike.
      if (ctx.half_products && rule.op == "dense" && g.values[from].type.dtype == ir::kF16)
        continue;
      const std::vector<int64_t> cut = CutShape(rule, node, g.values[from].type.sizes());
      if (cut.empty()) continue;
      ValueId& to = moved.try_emplace({from, std::string(rule.to)}, -1).first->second;
      if (to < 0) {
        const Value weight = g.values[from];
        op::TensorType type{weight.type.dtype, {}};
        for (int64_t p : rule.perm) type.shape.push_back(cut[p]);
        to = AddConstant(&g, StrCat(weight.name, "_", support::ToLower(rule.to)), type,
                         Permuted(rule, weight, cut));
      }
      const int64_t units = g.values[from].type.size(BlockedAxis(rule));
      if (rule.block > 1 && units % rule.block != 0) {
        if (rule.dots) {
          behind = CutUnits(&g, &node, units);
        } else {
          node.attrs["units"] = units;
        }
      }
      node.inputs[1] = to;
      node.attrs["weight_layout"] = std::string(rule.to);
      break;
    }
    g.nodes.push_back(std::move(node));
    if (behind) g.nodes.push_back(*std::move(behind));
  }
  return Compact(g);
}

}  // namespace tilewright::graph
