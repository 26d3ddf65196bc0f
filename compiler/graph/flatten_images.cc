// A convolution in groups that sees single pixels (1x1, stride 1, no padding) has its lanes along
// the pixels, for those along channels would lie across groups. On an image of one long row they
// are whole vectors up to the last, where each row of a small image ends in a part of one. Both
// forms have the same bytes, so changing between them is a view. Elementwise operators follow the
// operand that is computed last, whose epilogue they become. Without groups lanes run along the
// channels, and the tiles of a plane divide better than those of a row: such convolutions stay,
// unless their channels fill no vector and rows are of an open length. Such rows are one also where
// channels of images are put together.
#include <algorithm>
#include <map>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

using Dims = std::vector<op::Dim>;

bool AllAre(const op::Attrs& attrs, std::string_view name, int64_t value) {
  const std::vector<int64_t> list = op::GetInts(attrs, name, {});
  return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v == value; });
}

// [n,c,h,w] → [n,c,1,h*w]
Dims AsRow(const Dims& shape) { return {shape[0], shape[1], 1, shape[2] * shape[3]}; }

class Flattener : public ForwardRewriter {
 public:
  Flattener(Graph g, int64_t channel_block)
      : ForwardRewriter(std::move(g), /*max_known_bytes=*/0), channel_block_(channel_block) {}

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    ++position_;
    for (ValueId id : node.outputs) computed_[id] = position_;
    if (node.op == kViewOp) computed_[node.outputs[0]] = computed_[node.inputs[0]];
    if (node.outputs.size() != 1 || !IsImage(node.outputs[0])) return false;
    const bool joins = JoinsChannels(node);
    if (node.op == "conv2d" ? !OfPixels(node) : !joins && !Follows(node)) return false;
    const op::TensorType image = TypeOf(node.outputs[0]);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const bool moves = node.op == "conv2d" ? i == 0 : joins || TypeOf(id).shape == image.shape;
      TW_ASSIGN(const ValueId input, moves ? Row(id) : absl::StatusOr<ValueId>(id));
      inputs.push_back(input);
    }
    TW_ASSIGN(const ValueId row, Emit(node.name + "_row", node.op, std::move(inputs), node.attrs));
    rows_[node.outputs[0]] = row;
    Define(node, kViewOp, {row}, {{"shape", op::ShapeAttr(image.shape)}});
    return true;
  }

  // Of several rows.
  bool IsImage(ValueId id) const {
    const Dims& shape = TypeOf(id).shape;
    return shape.size() == 4 && shape[2] != op::Dim(1);
  }

  bool OfPixels(const Node& node) const {
    const Dims& weight = TypeOf(node.inputs[1]).shape;
    const bool along_pixels =
        op::GetInt(node.attrs, "groups", 1) > 1 ||
        (!TypeOf(node.outputs[0]).shape[3].is_constant() && IsNarrow(weight[0]));
    return along_pixels && LiesPlain(node) && weight[2] == op::Dim(1) && weight[3] == op::Dim(1) &&
           AllAre(node.attrs, "strides", 1) && AllAre(node.attrs, "pads", 0);
  }

  // Channels of images, one after the other, whose rows are of an open length.
  bool JoinsChannels(const Node& node) const {
    if (node.op != "concat" || TypeOf(node.outputs[0]).shape[3].is_constant()) return false;
    const int64_t axis = op::GetInt(node.attrs, "axis", 0);
    return axis == 1 || axis == 1 - 4;
  }

  bool IsNarrow(const op::Dim& channels) const {
    return channels.is_constant() && channels.value() < channel_block_;
  }

  // Elementwise, and the last computed of its images is a row; all else is the same for all pixels.
  bool Follows(const Node& node) const {
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec == nullptr || !spec->elementwise()) return false;
    const Dims& image = TypeOf(node.outputs[0]).shape;
    ValueId last = -1;
    for (ValueId id : node.inputs) {
      const Dims& shape = TypeOf(id).shape;
      if (shape == image && !IsConstant(g_, id)) {
        if (last < 0 || PositionOf(id) > PositionOf(last)) last = id;
      } else if (!SameForPixels(shape)) {
        return false;
      }
    }
    return last >= 0 && rows_.count(last) > 0;
  }
  // Whether a tensor broadcasts along both dimensions of an image.
  static bool SameForPixels(const Dims& shape) {
    const size_t rank = shape.size();
    const op::Dim one = 1;
    return (rank < 1 || shape[rank - 1] == one) && (rank < 2 || shape[rank - 2] == one);
  }
  int PositionOf(ValueId id) const {
    const auto it = computed_.find(id);
    return it == computed_.end() ? 0 : it->second;  // an input of the graph
  }

  // The image as one row; made on first demand.
  absl::StatusOr<ValueId> Row(ValueId id) {
    for (const std::map<ValueId, ValueId>* known : {&rows_, &views_}) {
      const auto it = known->find(id);
      if (it != known->end()) return it->second;
    }
    TW_ASSIGN(const ValueId row, Emit(NameOf(id) + "_row", kViewOp, {id},
                                      {{"shape", op::ShapeAttr(AsRow(TypeOf(id).shape))}}));
    return views_[id] = row;
  }

  const int64_t channel_block_;
  int position_ = 0;
  std::map<ValueId, int> computed_;   // by value: the node that computes it, views looked through
  std::map<ValueId, ValueId> rows_;   // images that are computed as a row → the row
  std::map<ValueId, ValueId> views_;  // other images → their view as a row
};

}  // namespace

absl::StatusOr<Graph> FlattenImages(Graph g, const GraphPassContext& ctx) {
  return Flattener(std::move(g), ctx.channel_block).Run();
}

}  // namespace tilewright::graph
