#include "compiler/graph/blocked_forms.h"

#include <cmath>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"

namespace tilewright::graph {

using Dims = std::vector<op::Dim>;
using Ints = std::vector<int64_t>;

absl::StatusOr<ValueId> BlockedForms::Emit(const std::string& name, std::string_view op_name,
                                           std::vector<ValueId> inputs, op::Attrs attrs) {
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) types.push_back(g_.values[id].type);
  op::DimEqualities equal;  // hold at the sizes that the graph is used at
  TW_ASSIGN(auto results, op::InferTypes(*op::FindOp(op_name), types, attrs, &equal));
  const ValueId out = AddValue(&g_, name, results[0]);
  g_.nodes.push_back(
      MakeNode(name, std::string(op_name), std::move(inputs), out, std::move(attrs)));
  return out;
}

absl::StatusOr<ValueId> BlockedForms::View(const std::string& name, ValueId id, const Dims& shape) {
  return Emit(name, kViewOp, {id}, {{"shape", op::ShapeAttr(shape)}});
}

// An image with so many channels: zeros behind its own.
absl::StatusOr<ValueId> BlockedForms::WithChannels(ValueId id, int64_t channels) {
  const int64_t more = channels - ShapeOf(id)[1].value();
  return Emit(g_.values[id].name + "_filled", "pad", {id},
              {{"pads", Ints{0, 0, 0, 0, 0, more, 0, 0}}});
}

absl::StatusOr<ValueId> BlockedForms::Pack(ValueId id) {
  auto it = blocked_.find(id);
  if (it != blocked_.end()) return it->second;
  const std::string name = g_.values[id].name;
  ValueId filled = id;
  if (!Divides(ShapeOf(id)[1].value())) {
    TW_ASSIGN(filled, WithChannels(id, Filled(ShapeOf(id)[1].value())));
  }
  const Dims s = ShapeOf(filled);
  if (IsPixel(s)) {  // the same bytes
    TW_ASSIGN(const ValueId view,
              View(name + "_blocked", filled, {s[0], s[1].value() / block_, 1, 1, block_}));
    return blocked_[id] = view;
  }
  TW_ASSIGN(const ValueId split,
            View(name + "_split", filled, {s[0], s[1].value() / block_, block_, s[2], s[3]}));
  TW_ASSIGN(const ValueId packed,
            Emit(name + "_blocked", "transpose", {split}, {{"perm", Ints{0, 1, 3, 4, 2}}}));
  return blocked_[id] = packed;
}

absl::StatusOr<ValueId> BlockedForms::AsSingleChannels(ValueId id) {
  Dims s = ShapeOf(id);
  s.push_back(1);
  return View(g_.values[id].name + "_channels", id, s);
}

absl::StatusOr<ValueId> BlockedForms::PackWhole(ValueId id) {
  auto it = whole_.find(id);
  if (it != whole_.end()) return it->second;
  TW_TRY(Plain(id));
  const std::string name = g_.values[id].name;
  const Dims s = ShapeOf(id);
  int64_t channels = s[1].value();
  ValueId filled = id;
  if (channels % op::kDot != 0) {
    channels += op::kDot - channels % op::kDot;
    TW_ASSIGN(filled, WithChannels(id, channels));
  }
  TW_ASSIGN(const ValueId moved,
            Emit(name + "_last", "transpose", {filled}, {{"perm", Ints{0, 2, 3, 1}}}));
  TW_ASSIGN(const ValueId whole, View(name + "_whole", moved, {s[0], 1, s[2], s[3], channels}));
  return whole_[id] = whole;
}

absl::StatusOr<std::optional<double>> BlockedForms::FillOf(ValueId id) const {
  std::optional<double> none;
  if (IsConstant(g_, id)) {
    TW_ASSIGN(const op::RefTensor all, ConstantTensor(g_, id));
    return all.values.empty() ? none : all.values.back();
  }
  const Dims& shape = ShapeOf(id);
  if (shape.size() != 4 || shape[1] == op::Dim(1)) return none;
  const auto known = fills_.find(id);
  return known == fills_.end() ? 0.0 : known->second;
}

absl::StatusOr<bool> BlockedForms::FillsFinite(const Node& node) {
  const op::TensorType& result = g_.values[node.outputs[0]].type;
  if (Divides(result.shape[1].value()) || result.dtype.code != ir::TypeCode::kFloat) return true;
  std::vector<op::RefTensor> inputs;
  for (ValueId id : node.inputs) {
    TW_ASSIGN(const std::optional<double> fill, FillOf(id));
    if (!fill) return false;
    inputs.push_back({{g_.values[id].type.dtype, {}}, {*fill}});
  }
  TW_ASSIGN(const auto fill, op::Reference(*op::FindOp(node.op), inputs, node.attrs));
  fills_[node.outputs[0]] = fill[0].values[0];
  return std::isfinite(fill[0].values[0]);
}

void BlockedForms::KeepFill(const Node& node) {
  const auto fill = fills_.find(node.inputs[0]);
  if (fill != fills_.end()) fills_[node.outputs[0]] = fill->second;
}

absl::Status BlockedForms::Plain(ValueId id) {
  if (plain_.erase(id) == 0) return absl::OkStatus();
  ValueId moved = blocked_.at(id);
  if (!IsPixel(ShapeOf(id))) {
    TW_ASSIGN(moved, Emit(g_.values[id].name + "_unblocked", "transpose", {moved},
                          {{"perm", Ints{0, 1, 4, 2, 3}}}));
  }
  return WithoutFilled(id, moved);
}

absl::Status BlockedForms::WithoutFilled(ValueId id, ValueId ordered) {
  const std::string name = g_.values[id].name;
  const Dims own = ShapeOf(id);
  const int64_t channels = own[1].value();
  const auto define = [&](std::string_view op_name, ValueId from, op::Attrs attrs) {
    g_.nodes.push_back(MakeNode(name, std::string(op_name), {from}, id, std::move(attrs)));
    return absl::OkStatus();
  };
  if (Divides(channels)) return define(kViewOp, ordered, {{"shape", op::ShapeAttr(own)}});
  Dims all = own;
  all[1] = Filled(channels);
  TW_ASSIGN(const ValueId filled, View(name + "_all", ordered, all));
  const size_t rank = own.size();
  return define(
      "slice", filled,
      {{"starts", Ints(rank, 0)}, {"sizes", op::ShapeAttr(own)}, {"steps", Ints(rank, 1)}});
}

}  // namespace tilewright::graph
