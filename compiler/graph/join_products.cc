// Horizontal fusion of products: dense layers of one operand whose results are cut into heads, and
// the heads transposed, become one layer with all of their weights:
//   transpose(reshape(add(dense(x, wq), bq), [b,s,h,d])), the same of k and v
//     →  j = reshape(add(dense(x, [wq wk wv]), [bq bk bv]), [b,s,3h,d]); transpose(slice(j)), …
// Heads are cut off before the transpose, which fusion computes together with the slice: so nothing
// is copied that was not copied before. Results that others read as they are would become copies of
// parts of rows: they stay. So do layers that attention reads where they lie, and those of open
// sizes, which are products of one row most of the time.
#include <map>
#include <optional>
#include <tuple>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

class ProductJoiner : public ForwardRewriter {
 public:
  ProductJoiner(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes),
        max_bytes_(ctx.fold_max_bytes),
        readers_(Readers(g_)) {
    for (ValueId id : g_.outputs) readers_[id].push_back(-1);
    FindGroups();
  }

 private:
  // A layer up to its heads.
  struct Branch {
    const Node* dense = nullptr;
    ValueId bias = -1;   // -1: none
    ValueId heads = -1;  // the result of the reshape
  };
  // Where a branch's heads are: the first of them among those of the joined layer.
  struct Part {
    ValueId first_dense = -1;  // the result of the group's first layer
    int64_t begin = 0;
  };

  const Node* OnlyReader(ValueId id) const {
    const std::vector<int>& readers = readers_[id];
    return readers.size() == 1 && readers[0] >= 0 ? &g_.nodes[readers[0]] : nullptr;
  }

  std::optional<Branch> BranchAt(const Node& dense) const {
    if (dense.op != "dense" || dense.inputs.size() != 2 || dense.attrs.count("units") > 0) {
      return std::nullopt;
    }
    const ValueId weight = dense.inputs[1];
    ValueId result = dense.outputs[0];
    if (!IsConstant(g_, weight) || readers_[weight].size() != 1 || !UncutWeights(dense) ||
        !TypeOf(result).fixed() || TypeOf(result).dtype != ir::kF32 ||
        TypeOf(weight).dtype != ir::kF32) {
      return std::nullopt;
    }
    Branch branch{&dense};
    const std::vector<op::Dim> units = {TypeOf(result).shape.back()};
    const Node* next = OnlyReader(result);
    if (next != nullptr && next->op == "add") {
      branch.bias = next->inputs[next->inputs[0] == result ? 1 : 0];
      if (!IsConstant(g_, branch.bias) || TypeOf(branch.bias).shape != units) return std::nullopt;
      result = next->outputs[0];
      next = OnlyReader(result);
    }
    if (next == nullptr || next->op != kViewOp) return std::nullopt;
    branch.heads = next->outputs[0];
    const Node* reader = OnlyReader(branch.heads);
    if (reader == nullptr || reader->op != "transpose") return std::nullopt;
    // [.., units] → [.., heads, elements of a head]
    std::vector<op::Dim> rows = TypeOf(result).shape, heads = TypeOf(branch.heads).shape;
    if (heads.size() != rows.size() + 1) return std::nullopt;
    rows.pop_back();
    heads.resize(rows.size());
    return rows == heads ? std::optional(branch) : std::nullopt;
  }

  void FindGroups() {
    using Key = std::tuple<ValueId, std::string, int64_t, bool>;
    std::map<Key, std::vector<Branch>> groups;
    for (const Node& node : g_.nodes) {
      const std::optional<Branch> branch = BranchAt(node);
      if (!branch) continue;
      const std::string layout = UncutWeights(node)->ToText();
      const int64_t head = TypeOf(branch->heads).shape.back().value();
      groups[{node.inputs[0], layout, head, branch->bias >= 0}].push_back(*branch);
    }
    for (const auto& [key, branches] : groups) {
      int64_t bytes = 0;
      for (const Branch& branch : branches) bytes += TypeOf(branch.dense->inputs[1]).bytes();
      if (branches.size() < 2 || bytes > max_bytes_) continue;
      int64_t begin = 0;
      const ValueId first = branches[0].dense->outputs[0];
      for (const Branch& branch : branches) {
        parts_[branch.heads] = {first, begin};
        const op::TensorType& heads = TypeOf(branch.heads);
        begin += heads.size(static_cast<int64_t>(heads.shape.size()) - 2);
        Group& group = joined_[first];
        group.head = heads.shape.back().value();
        group.weights.push_back(branch.dense->inputs[1]);
        if (branch.bias >= 0) group.biases.push_back(branch.bias);
      }
    }
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (const auto group = joined_.find(node.outputs[0]); group != joined_.end()) {
      TW_TRY(Join(node, group->second));
      return false;  // nobody reads it any longer
    }
    const auto part = parts_.find(node.outputs[0]);
    if (part == parts_.end()) return false;
    const op::TensorType& type = TypeOf(node.outputs[0]);
    std::vector<int64_t> starts(type.shape.size(), 0);
    starts[starts.size() - 2] = part->second.begin;
    Define(node, "slice", {rows_.at(part->second.first_dense)},
           {{"starts", starts},
            {"sizes", type.sizes()},
            {"steps", std::vector<int64_t>(type.shape.size(), 1)}});
    return true;
  }

  // Layers that become one.
  struct Group {
    std::vector<ValueId> weights, biases;
    int64_t head = 0;  // elements of one
  };
  // Adds the layer of all weights, and its rows cut into heads.
  absl::Status Join(const Node& first, const Group& group) {
    const auto axis = static_cast<int64_t>(UncutWeights(first)->Dimension('N'));
    const std::string name = first.name + "_joined";
    TW_ASSIGN(const ValueId weight, Concat(name + "_weights", group.weights, axis));
    TW_ASSIGN(ValueId rows, Emit(name, "dense", {first.inputs[0], weight}, first.attrs));
    if (!group.biases.empty()) {
      TW_ASSIGN(const ValueId bias, Concat(name + "_biases", group.biases, 0));
      TW_ASSIGN(rows, Emit(name + "_biased", "add", {rows, bias}));
    }
    std::vector<op::Dim> shape = TypeOf(rows).shape;
    shape.back() = shape.back().value() / group.head;
    shape.emplace_back(group.head);
    TW_ASSIGN(rows_[first.outputs[0]],
              Emit(name + "_heads", kViewOp, {rows}, {{"shape", op::ShapeAttr(shape)}}));
    return absl::OkStatus();
  }

  absl::StatusOr<ValueId> Concat(const std::string& name, const std::vector<ValueId>& constants,
                                 int64_t axis) {
    std::vector<op::RefTensor> tensors;
    for (ValueId id : constants) {
      TW_ASSIGN(op::RefTensor tensor, ConstantTensor(g_, id));
      tensors.push_back(std::move(tensor));
    }
    TW_ASSIGN(const std::vector<op::RefTensor> joined,
              op::Reference(*op::FindOp("concat"), tensors, {{"axis", axis}}));
    return AddTensor(&g_, name, joined[0]);
  }

  const int64_t max_bytes_;
  std::vector<std::vector<int>> readers_;
  std::map<ValueId, Part> parts_;    // by the result of the reshape
  std::map<ValueId, Group> joined_;  // by the result of a group's first layer
  std::map<ValueId, ValueId> rows_;  // the same: the joined layer's heads
};

}  // namespace

absl::StatusOr<Graph> JoinProducts(Graph g, const GraphPassContext& ctx) {
  if (!ctx.join_products) return g;
  return ProductJoiner(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
