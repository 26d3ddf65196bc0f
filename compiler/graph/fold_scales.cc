// Multiplications by constants go into the constant weights beside them: behind a linear operator
// into its output channels (through an addition of a constant, whose addend is scaled too), in
// front of it into its input channels.
#include <algorithm>
#include <optional>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;
using Doubles = std::vector<double>;

// Where the channels of a linear operator's weights lie: the channel of the weight with flat index
// i is i / stride % size (+ what the group adds).
struct Channels {
  int64_t groups = 1;
  int64_t out_axis = 0, in_axis = 1;
  bool out_grouped = false;  // out_axis holds the channels of one group (transposed convolution)
  int64_t data_axis = 1;     // of the channels in the activations; -1 = the last
};

std::optional<Channels> ChannelsOf(const Node& node) {
  Channels c;
  c.groups = op::GetInt(node.attrs, "groups", 1);
  if (node.op == "conv2d") {
    return LiesPlain(node) ? std::optional(c) : std::nullopt;
  }
  if (node.op == "conv2d_transpose") {
    if (!LiesPlain(node)) return std::nullopt;
    c.out_axis = 1;
    c.in_axis = 0;
    c.out_grouped = true;
    return c;
  }
  if (node.op != "dense") return std::nullopt;
  const std::optional<op::Layout> weights = UncutWeights(node);
  if (!weights) return std::nullopt;
  c.out_axis = static_cast<int64_t>(weights->Dimension('N'));
  c.in_axis = static_cast<int64_t>(weights->Dimension('K'));
  c.data_axis = -1;
  return c;
}

class Folder {
 public:
  explicit Folder(Graph g) : g_(std::move(g)), outputs_(OutputSet(g_)) { Index(); }

  absl::StatusOr<Graph> Run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].op != "mul" || dead_[n]) continue;
      TW_ASSIGN(bool folded, Behind(n));
      if (!folded) TW_TRY(InFront(n).status());
    }
    Graph result = g_;
    result.nodes.clear();
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (!dead_[n]) result.nodes.push_back(std::move(g_.nodes[n]));
    }
    return Compact(result);
  }

 private:
  void Index() {
    producer_ = Producers(g_);
    readers_ = Readers(g_);
    dead_.assign(g_.nodes.size(), false);
  }
  // The node that computes `id` for one reader alone; -1 else.
  int OwnProducer(ValueId id) const {
    if (outputs_.count(id) > 0 || readers_[id].size() != 1) return -1;
    return producer_[id];
  }
  // 16-bit floats would round what they are multiplied with.
  bool IsHalf(ValueId id) const {
    const ir::DType type = g_.values[id].type.dtype;
    return type.is_float() && type.bits == 16;
  }
  bool Linear(int n) const {
    if (n < 0 || dead_[n]) return false;
    const Node& node = g_.nodes[n];
    return ChannelsOf(node) && IsConstant(g_, node.inputs[1]) && !IsHalf(node.inputs[1]) &&
           (node.inputs.size() < 3 || IsConstant(g_, node.inputs[2]));
  }
  // Factor per channel along `axis` of `data` when `id` is a constant that has one value per
  // channel.
  absl::StatusOr<std::optional<Doubles>> PerChannel(ValueId id, const op::TensorType& data,
                                                    int64_t axis) const {
    if (!IsConstant(g_, id)) return std::optional<Doubles>();
    TW_ASSIGN(const op::RefTensor tensor, ConstantTensor(g_, id));
    return graph::PerChannel(tensor, data.shape, axis);
  }

  // The weights of a linear node, each times the factor of its output (or input) channel.
  absl::Status ScaleWeights(Node* node, const Doubles& factor, bool output) {
    const Channels c = *ChannelsOf(*node);
    const ValueId old = node->inputs[1];
    TW_ASSIGN(op::RefTensor w, ConstantTensor(g_, old));
    auto along = [&](int64_t axis, int64_t flat) {
      int64_t stride = 1;
      for (size_t d = w.type.shape.size(); d-- > static_cast<size_t>(axis) + 1;) {
        stride *= w.type.size(d);
      }
      return flat / stride % w.type.size(axis);
    };
    const int64_t axis = output ? c.out_axis : c.in_axis;
    const int64_t other = output ? c.in_axis : c.out_axis;
    const bool grouped = c.groups > 1 && (output == c.out_grouped);
    for (size_t i = 0; i < w.values.size(); ++i) {
      int64_t channel = along(axis, static_cast<int64_t>(i));
      // The axis counts within a group; which group, the other axis tells.
      if (grouped) {
        const int64_t per_group = w.type.size(other) / c.groups;
        channel += along(other, static_cast<int64_t>(i)) / per_group * w.type.size(axis);
      }
      w.values[i] *= factor[channel];
    }
    const std::string base = g_.values[old].name;
    node->inputs[1] = AddRounded(&g_, base + "_scaled", w.type, std::move(w.values));
    if (output && node->inputs.size() > 2) {
      TW_ASSIGN(op::RefTensor bias, ConstantTensor(g_, node->inputs[2]));
      for (size_t i = 0; i < bias.values.size(); ++i) bias.values[i] *= factor[i];
      const std::string name = g_.values[node->inputs[2]].name;
      node->inputs[2] = AddRounded(&g_, name + "_scaled", bias.type, std::move(bias.values));
    }
    return absl::OkStatus();
  }

  // linear → [add constant →] mul
  absl::StatusOr<bool> Behind(size_t n) {
    const Node mul = g_.nodes[n];
    const op::TensorType type = g_.values[mul.outputs[0]].type;
    int sum = -1, linear = OwnProducer(mul.inputs[0]);
    if (linear >= 0 && !dead_[linear] && g_.nodes[linear].op == "add") {
      sum = linear;
      if (!IsConstant(g_, g_.nodes[sum].inputs[1])) return false;
      linear = OwnProducer(g_.nodes[sum].inputs[0]);
    }
    if (!Linear(linear) || g_.values[g_.nodes[linear].outputs[0]].type != type) return false;
    const int64_t axis = ChannelsOf(g_.nodes[linear])->data_axis;
    TW_ASSIGN(auto factor, PerChannel(mul.inputs[1], type, axis));
    if (!factor) return false;
    int last = linear;
    if (sum >= 0) {
      const ValueId addend = g_.nodes[sum].inputs[1];
      TW_ASSIGN(auto shift, PerChannel(addend, type, axis));
      if (!shift) return false;
      for (size_t c = 0; c < shift->size(); ++c) (*shift)[c] *= (*factor)[c];
      const size_t rank = type.shape.size();
      op::TensorType wide{type.dtype, {static_cast<int64_t>(shift->size())}};
      if (axis > 0) wide = {wide.dtype, ChannelShape(wide.size(0), rank)};
      g_.nodes[sum].inputs[1] =
          AddRounded(&g_, g_.values[addend].name + "_scaled", wide, *std::move(shift));
      last = sum;
    }
    TW_TRY(ScaleWeights(&g_.nodes[linear], *factor, true));
    g_.nodes[last].outputs[0] = mul.outputs[0];
    dead_[n] = true;
    Reindex();
    return true;
  }

  // mul → linear; padding is zero before and after.
  absl::StatusOr<bool> InFront(size_t n) {
    const Node mul = g_.nodes[n];
    const ValueId out = mul.outputs[0];
    if (outputs_.count(out) > 0 || readers_[out].size() != 1) return false;
    const int linear = readers_[out][0];
    if (!Linear(linear) || g_.nodes[linear].inputs[0] != out) return false;
    const op::TensorType& type = g_.values[out].type;
    if (g_.values[mul.inputs[0]].type != type) return false;
    TW_ASSIGN(auto factor,
              PerChannel(mul.inputs[1], type, ChannelsOf(g_.nodes[linear])->data_axis));
    if (!factor) return false;
    TW_TRY(ScaleWeights(&g_.nodes[linear], *factor, false));
    g_.nodes[linear].inputs[0] = mul.inputs[0];
    dead_[n] = true;
    Reindex();
    return true;
  }

  void Reindex() {
    producer_.assign(g_.values.size(), -1);
    readers_.assign(g_.values.size(), {});
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (dead_[n]) continue;
      for (ValueId id : g_.nodes[n].outputs) producer_[id] = static_cast<int>(n);
      for (ValueId id : g_.nodes[n].inputs) readers_[id].push_back(static_cast<int>(n));
    }
  }

  Graph g_;
  const std::set<ValueId> outputs_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> readers_;
  std::vector<bool> dead_;
};

}  // namespace

absl::StatusOr<Graph> FoldScales(Graph g, const GraphPassContext&) {
  return Folder(std::move(g)).Run();
}

}  // namespace tilewright::graph
