// Rewrites of the graph before fusion: cleaning, constant folding, batch normalisation, biases,
// outputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/keep_state.h"
#include "compiler/graph/loops.h"
#include "compiler/graph/rewrite_util.h"
#include "compiler/graph/symbolic_shapes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

// ------------------------------------------------------------ batch norm

// y = x * scale[c] + shift[c]
struct Affine {
  std::vector<double> scale, shift;
};

absl::StatusOr<Affine> AffineOf(const Graph& g, const Node& norm) {
  std::vector<op::RefTensor> p;  // scale, bias, mean, variance
  for (int i = 1; i < 5; ++i) {
    TW_ASSIGN(op::RefTensor tensor, ConstantTensor(g, norm.inputs[i]));
    p.push_back(std::move(tensor));
  }
  const double epsilon = op::GetDouble(norm.attrs, "epsilon", 1e-5);
  Affine affine;
  for (size_t c = 0; c < p[0].values.size(); ++c) {
    const double scale = p[0].values[c] / std::sqrt(p[3].values[c] + epsilon);
    affine.scale.push_back(scale);
    affine.shift.push_back(p[1].values[c] - p[2].values[c] * scale);
  }
  return affine;
}

// The convolution with its weights scaled and its bias shifted; reads weights in layout OIHW.
absl::Status ScaleConv(Graph* g, Node* conv, const Affine& affine) {
  TW_ASSIGN(op::RefTensor weight, ConstantTensor(*g, conv->inputs[1]));
  const size_t per_channel = weight.values.size() / affine.scale.size();
  for (size_t i = 0; i < weight.values.size(); ++i) {
    weight.values[i] *= affine.scale[i / per_channel];
  }
  std::vector<double> bias = affine.shift;
  if (conv->inputs.size() > 2) {
    TW_ASSIGN(op::RefTensor old, ConstantTensor(*g, conv->inputs[2]));
    for (size_t c = 0; c < bias.size(); ++c) bias[c] += old.values[c] * affine.scale[c];
  }
  const op::TensorType bias_type{weight.type.dtype, {static_cast<int64_t>(bias.size())}};
  const std::string base = g->values[conv->inputs[1]].name;
  const op::TensorType weight_type = weight.type;
  conv->inputs.resize(2);
  conv->inputs[1] = AddRounded(g, base + "_scaled", weight_type, std::move(weight.values));
  conv->inputs.push_back(AddRounded(g, base + "_shift", bias_type, std::move(bias)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Graph> Clean(Graph g, const GraphPassContext&) {
  std::vector<ValueId> replacement(g.values.size());
  for (size_t id = 0; id < replacement.size(); ++id) replacement[id] = static_cast<ValueId>(id);
  const std::vector<int> producer = Producers(g);
  std::map<ValueId, ValueId> reshaped_from;  // result of a reshape → its operand
  for (Node& node : g.nodes) {
    for (ValueId& id : node.inputs) id = replacement[id];
    const ValueId in = node.inputs.empty() ? -1 : node.inputs[0];
    if (node.op == kViewOp) {
      auto it = reshaped_from.find(in);
      if (it != reshaped_from.end()) node.inputs[0] = it->second;
      reshaped_from[node.outputs[0]] = node.inputs[0];
    }
    const ValueId from = node.inputs.empty() ? -1 : node.inputs[0];
    const bool same = node.op == "identity" ||
                      (node.op == kViewOp && g.values[from].type == g.values[node.outputs[0]].type);
    if (!same) continue;
    const ValueId out = node.outputs[0];
    const std::set<ValueId> outputs = OutputSet(g);
    if (outputs.count(out) == 0) {
      replacement[out] = from;
      continue;
    }
    // The operand becomes the output, with its name, where a node computes it for this output
    // alone.
    if (producer[from] < 0 || outputs.count(from) > 0) continue;
    std::swap(g.values[from].name, g.values[out].name);
    std::replace(g.outputs.begin(), g.outputs.end(), out, from);
    replacement[out] = from;
  }
  return Compact(g);
}

absl::StatusOr<Graph> FoldConstants(Graph g, const GraphPassContext& ctx) {
  std::vector<Node> nodes = std::move(g.nodes);
  g.nodes.clear();
  for (Node& node : nodes) {
    const op::OpSpec* spec = op::FindOp(node.op);
    bool fold = spec != nullptr && !spec->control && !node.inputs.empty() && !IsOpen(node.attrs);
    std::vector<op::TensorType> types, results;
    for (ValueId id : node.inputs) {
      fold = fold && IsConstant(g, id);
      types.push_back(g.values[id].type);
    }
    for (ValueId id : node.outputs) {
      results.push_back(g.values[id].type);
      fold = fold && results.back().fixed() && results.back().bytes() <= ctx.fold_max_bytes;
    }
    if (!fold || op::Flops(*spec, types, results, node.attrs) > ctx.fold_max_flops) {
      g.nodes.push_back(std::move(node));
      continue;
    }
    std::vector<op::RefTensor> inputs;
    for (ValueId id : node.inputs) {
      TW_ASSIGN(op::RefTensor tensor, ConstantTensor(g, id));
      inputs.push_back(std::move(tensor));
    }
    absl::StatusOr<std::vector<op::RefTensor>> folded = op::Reference(*spec, inputs, node.attrs);
    if (absl::IsUnimplemented(folded.status())) {  // integers that a double does not hold
      g.nodes.push_back(std::move(node));
      continue;
    }
    TW_ASSIGN(const std::vector<op::RefTensor> values, std::move(folded));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      g.values[node.outputs[i]].constant = std::make_shared<ConstantData>(op::ToBytes(values[i]));
    }
  }
  return Compact(g);
}

absl::StatusOr<Graph> FoldBatchNorm(Graph g, const GraphPassContext&) {
  const std::vector<int> producer = Producers(g);
  const std::vector<std::vector<int>> readers = Readers(g);
  const std::set<ValueId> outputs = OutputSet(g);
  std::vector<Node> result;
  std::vector<int> position(g.nodes.size(), -1);  // of old nodes in `result`
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    bool constant = node.op == "batch_norm" && g.values[node.inputs[0]].type.shape[1].is_constant();
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      constant = constant && IsConstant(g, node.inputs[i]);
    }
    if (!constant) {
      position[n] = static_cast<int>(result.size());
      result.push_back(node);
      continue;
    }
    TW_ASSIGN(const Affine affine, AffineOf(g, node));
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const int before = producer[x];
    Node* conv = before >= 0 && position[before] >= 0 ? &result[position[before]] : nullptr;
    const bool into_conv =
        conv != nullptr && conv->op == "conv2d" && conv->outputs[0] == x &&
        readers[x].size() == 1 && outputs.count(x) == 0 && IsConstant(g, conv->inputs[1]) &&
        (conv->inputs.size() == 2 || IsConstant(g, conv->inputs[2])) && LiesPlain(*conv);
    if (into_conv) {
      TW_TRY(ScaleConv(&g, conv, affine));
      conv->outputs[0] = y;
      continue;
    }
    const op::TensorType type = g.values[x].type;
    const op::TensorType parameter{type.dtype, ChannelShape(type.size(1), type.shape.size())};
    const std::string base = g.values[y].name;
    const ValueId scaled = AddValue(&g, base + "_scaled", type);
    const ValueId scale = AddRounded(&g, base + "_scale", parameter, affine.scale);
    const ValueId shift = AddRounded(&g, base + "_shift", parameter, affine.shift);
    result.push_back(MakeNode(node.name + "_scale", "mul", {x, scale}, scaled));
    result.push_back(MakeNode(node.name, "add", {scaled, shift}, y));
  }
  g.nodes = std::move(result);
  return Compact(g);
}

absl::StatusOr<Graph> SplitBias(Graph g, const GraphPassContext&) {
  std::vector<Node> result;
  std::vector<Node> nodes = std::move(g.nodes);
  for (Node& node : nodes) {
    if ((node.op != "conv2d" && node.op != "conv2d_transpose") || node.inputs.size() < 3 ||
        !g.values[node.outputs[0]].type.shape[1].is_constant()) {
      result.push_back(std::move(node));
      continue;
    }
    const ValueId bias = node.inputs[2], y = node.outputs[0];
    const op::TensorType type = g.values[y].type;
    const op::TensorType wide{type.dtype, ChannelShape(type.size(1), type.shape.size())};
    const std::string base = g.values[bias].name;
    ValueId addend;
    if (IsConstant(g, bias)) {
      addend = AddValue(&g, base + "_wide", wide);
      g.values[addend].constant = g.values[bias].constant;
    } else {
      addend = AddValue(&g, base + "_wide", wide);
      result.push_back(MakeNode(node.name + "_bias", std::string(kViewOp), {bias}, addend,
                                {{"shape", op::ShapeAttr(wide.shape)}}));
    }
    const ValueId sum = AddValue(&g, g.values[y].name + "_product", type);
    const std::string name = node.name;
    node.inputs.resize(2);
    node.outputs[0] = sum;
    result.push_back(std::move(node));
    result.push_back(MakeNode(name + "_add", "add", {sum, addend}, y));
  }
  g.nodes = std::move(result);
  return Compact(g);
}

namespace {

// Frees the name of a value, which gets another one.
std::string TakeNameOf(Graph* g, ValueId id) {
  const std::string old = g->values[id].name;
  std::string& name = g->values[id].name;
  name = old + "_source";
  while (std::count_if(g->values.begin(), g->values.end(),
                       [&](const Value& v) { return v.name == name; }) > 1) {
    name += "_";
  }
  return old;
}

}  // namespace

namespace {

// A value that a loop carries may become another one that it carries: a copy is taken first.
Graph CopyWhatLoopsSwap(Graph g) {
  const std::vector<Storage> storage = StorageOf(g);
  std::vector<Node> nodes = std::move(g.nodes);
  g.nodes.clear();
  for (Node& node : nodes) {
    const auto carried =
        static_cast<size_t>(node.op == kLoopEndOp ? op::GetInt(node.attrs, "carried", 0) : 0);
    for (size_t i = 0; i < carried; ++i) {
      const ValueId next = node.inputs[i], root = storage[next].root;
      const auto values = node.inputs.begin() + static_cast<std::ptrdiff_t>(carried);
      if (root == node.inputs[carried + i]) continue;
      if (std::find(values, values + static_cast<std::ptrdiff_t>(carried), root) ==
          values + static_cast<std::ptrdiff_t>(carried)) {
        continue;
      }
      const op::TensorType type = g.values[next].type;
      const ValueId copy = AddValue(&g, StrCat(g.values[next].name, "_next"), type);
      g.nodes.push_back(MakeNode(g.values[copy].name, "identity", {next}, copy));
      node.inputs[i] = copy;
    }
    g.nodes.push_back(std::move(node));
  }
  return g;
}

}  // namespace

absl::StatusOr<Graph> MaterializeOutputs(Graph g, const GraphPassContext& ctx) {
  g = CopyWhatLoopsSwap(std::move(g));
  const std::vector<int> producer = Producers(g);
  const std::vector<Storage> storage = StorageOf(g);
  std::set<ValueId> claimed;
  const auto made_by_kernel = [&](ValueId root) {
    return producer[root] >= 0 && !IsLoopNode(g.nodes[static_cast<size_t>(producer[root])]);
  };
  for (ValueId& out : g.outputs) {
    const ValueId root = storage[out].root;
    const op::TensorType type = g.values[out].type;
    const bool empty =
        type.fixed() && type.elements() == 0;  // no kernel writes it: a constant is as good
    if (empty && g.values[out].constant != nullptr) continue;
    if (made_by_kernel(root) && claimed.insert(root).second) continue;
    const std::string name = TakeNameOf(&g, out);
    if (empty) {
      out = AddConstant(&g, name, type, "");
      continue;
    }
    const ValueId copy = AddValue(&g, name, type);
    g.nodes.push_back(MakeNode(name, "identity", {out}, copy));
    out = copy;
  }
  // New entries of a state are written where the list is, and nowhere else.
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (!IsAppend(g.nodes[n])) continue;
    const ValueId entries = g.nodes[n].inputs[1], root = storage[entries].root;
    if (made_by_kernel(root) && !IsAppend(g.nodes[producer[root]]) && claimed.insert(root).second) {
      continue;
    }
    const ValueId copy = AddValue(&g, g.values[entries].name, g.values[entries].type);
    const Node move = MakeNode(g.values[copy].name, "identity", {entries}, copy);
    g.nodes[n].inputs[1] = copy;
    g.nodes.insert(g.nodes.begin() + static_cast<std::ptrdiff_t>(n), move);
    return MaterializeOutputs(Compact(g), ctx);
  }
  return Compact(g);
}

}  // namespace tilewright::graph
