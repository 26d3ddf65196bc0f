// Which tensors become integers. Layers read integers. An operator between layers works on
// integers, too, if all its data does, and what it makes is read as integers in the end: then a
// network stays in integers from its first layer to its last. What only float operators read stays
// in float: results of the network, and what is behind a layer that stays in float.
#include <algorithm>
#include <functional>
#include <set>

#include "compiler/quantize/find_layers.h"

namespace tilewright::quantize {
namespace {

// Results are numbers of the operands: one scale and zero point for all.
bool Moves(const pb::NodeProto& node) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"Concat", "DepthToSpace", "Flatten", "Identity",
                                              "MaxPool", "Reshape", "Slice", "SpaceToDepth",
                                              "Squeeze", "Transpose", "Unsqueeze"},
      [&](std::string_view op) { return Is(node, op); });
}

bool Computes(const pb::NodeProto& node) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"Add", "AveragePool", "Clip", "GlobalAveragePool",
                                              "ReduceMean", "Relu"},
      [&](std::string_view op) { return Is(node, op); });
}

// An operator between layers, with the rectifier that alone reads its result.
struct Between {
  int node;
  std::vector<std::string> data;
  std::string output;
  bool moves;
};

class IntegerTensors {
 public:
  IntegerTensors(const ModelView& view, const std::vector<LayerNodes>& layers) : view_(view) {
    for (const LayerNodes& layer : layers) {
      sources_.insert(layer.output);
      wanted_.insert(layer.data);
      for (const int n : {layer.node, layer.bias_add, layer.rectifier}) taken_.insert(n);
    }
    // What layers read is an integer wherever it comes from.
    sources_.insert(wanted_.begin(), wanted_.end());
  }

  void AddCandidates(const std::vector<std::string>& keep) {
    for (int n = 0; n < view_.graph().node_size(); ++n) {
      const pb::NodeProto& node = view_.node(n);
      if ((!Moves(node) && !Computes(node)) || taken_.contains(n) || Keeps(keep, node)) continue;
      if (node.output_size() != 1 || node.input_size() == 0) continue;
      Between b{n, DataOf(node), node.output(0), Moves(node)};
      if (b.data.empty()) continue;
      const int rectifier = b.moves ? -1 : RectifierOf(view_, b.output);
      if (rectifier >= 0 && !Keeps(keep, view_.node(rectifier))) {
        b.output = view_.node(rectifier).output(0);
        taken_.insert(rectifier);
      }
      between_.push_back(std::move(b));
    }
    std::erase_if(between_, [&](const Between& b) { return taken_.contains(b.node); });
  }

  // Removes candidates until all data of each that is left comes from layers or from others, and
  // its result goes to one.
  void Settle() {
    for (bool changed = true; changed;) {
      std::set<std::string> sources = sources_, wanted = wanted_;
      for (const Between& b : between_) {
        sources.insert(b.output);
        wanted.insert(b.data.begin(), b.data.end());
      }
      changed = std::erase_if(between_, [&](const Between& b) {
                  return !wanted.contains(b.output) ||
                         !std::ranges::all_of(
                             b.data, [&](const auto& name) { return sources.contains(name); });
                }) > 0;
    }
  }

  // Each tensor with the first of those that share its scale.
  std::map<std::string, std::string> Shared() const {
    std::map<std::string, std::string> first;
    for (const std::string& name : wanted_) first[name] = name;
    for (const Between& b : between_) {
      for (const std::string& name : b.data) first.try_emplace(name, name);
    }
    const std::function<std::string(const std::string&)> find = [&](const std::string& name) {
      const std::string& next = first.at(name);
      return next == name ? name : find(next);
    };
    for (const Between& b : between_) {
      if (!b.moves) continue;
      for (const std::string& name : b.data) {
        const std::string from = find(name), to = find(b.output);
        first[std::max(from, to)] = std::min(from, to);
      }
    }
    for (auto& [name, shared] : first) shared = find(name);
    return first;
  }

 private:
  // The operands that are data; nothing if one of them is a constant and the operator only moves
  // data. An addition may have a constant, which stays in float.
  std::vector<std::string> DataOf(const pb::NodeProto& node) const {
    std::vector<std::string> data;
    const bool all = Is(node, "Concat") || Is(node, "Add");
    for (int i = 0; i < (all ? node.input_size() : 1); ++i) {
      if (view_.ConstantOf(node.input(i)) == nullptr) {
        data.push_back(node.input(i));
      } else if (Moves(node)) {
        return {};
      }
    }
    return data;
  }

  const ModelView& view_;
  std::set<std::string> sources_;  // made by layers, or read by them
  std::set<std::string> wanted_;   // read by layers
  std::set<int> taken_;            // nodes that are a part of another
  std::vector<Between> between_;
};

}  // namespace

std::map<std::string, std::string> FindIntegerTensors(const ModelView& view,
                                                      const std::vector<LayerNodes>& layers,
                                                      const std::vector<std::string>& keep) {
  IntegerTensors tensors(view, layers);
  tensors.AddCandidates(keep);
  tensors.Settle();
  return tensors.Shared();
}

}  // namespace tilewright::quantize
