#include "compiler/quantize/find_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "deploy/support/strings.h"

namespace tilewright::quantize {
namespace {

using support::StrCat;

// What keeps a layer in float; empty if nothing does.
using Reason = std::string;

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t dim : shape) product *= dim;
  return product;
}

// One layer under inspection.
class LayerReader {
 public:
  LayerReader(const ModelView& view, int n) : view_(view), node_(view.node(n)) {
    layer_.node = n;
    layer_.data = Operand(node_, 0);
    layer_.output = node_.output_size() > 0 ? node_.output(0) : "";
  }

  Reason Read() {
    Reason reason = Weights();
    if (reason.empty()) reason = Form();
    if (reason.empty()) reason = Bias();
    if (!reason.empty()) return reason;
    if (Is(node_, "MatMul")) TakeBiasAdd();
    layer_.rectifier = RectifierOf(view_, layer_.output);
    if (layer_.rectifier >= 0) layer_.output = view_.node(layer_.rectifier).output(0);
    return "";
  }
  LayerNodes Take() { return std::move(layer_); }

 private:
  Reason Weights() {
    if (layer_.data.empty() || view_.ConstantOf(layer_.data) != nullptr) {
      return "its first operand is a constant";
    }
    const pb::TensorProto* tensor = view_.ConstantOf(Operand(node_, 1));
    if (tensor == nullptr) return "its weights are not a constant";
    layer_.shape = ShapeOf(*tensor);
    auto values = FloatsOf(*tensor);
    if (!values) return "its weights are not finite float32 numbers";
    layer_.weights = *std::move(values);
    return Product(layer_.shape) == 0 ? "it has no weights" : "";
  }

  // The axis of the output channels, and Gemm's factor, which becomes a part of the weights.
  Reason Form() {
    const size_t rank = layer_.shape.size();
    if (Is(node_, "Conv")) {
      return rank == 3 || rank == 4 ? ""
                                    : StrCat("no kernel of integers for a convolution in ",
                                             rank < 2 ? 0 : rank - 2, " dimensions");
    }
    if (rank != 2) return StrCat("its weights have ", rank, " dimensions instead of 2");
    layer_.axis = IntAttribute(node_, "transB", 0) != 0 ? 0 : 1;
    if (IntAttribute(node_, "transA", 0) != 0) return "it transposes its data";
    const double alpha = FloatAttribute(node_, "alpha", 1);
    for (float& w : layer_.weights) w = static_cast<float>(w * alpha);
    return "";
  }

  Reason Bias() {
    const std::string name = Is(node_, "MatMul") ? "" : Operand(node_, 2);
    if (name.empty()) return "";
    const pb::TensorProto* tensor = view_.ConstantOf(name);
    if (tensor == nullptr) return "its bias is not a constant";
    auto values = FloatsOf(*tensor);
    if (!values || !IsOnePerChannel(ShapeOf(*tensor))) {
      return "its bias is not one finite float32 number for each output";
    }
    const double beta = Is(node_, "Gemm") ? FloatAttribute(node_, "beta", 1) : 1;
    for (float v : *values) layer_.bias.push_back(static_cast<float>(v * beta));
    return "";
  }

  bool IsOnePerChannel(const std::vector<int64_t>& shape) const {
    const int64_t channels = layer_.shape[static_cast<size_t>(layer_.axis)];
    return !shape.empty() && shape.back() == channels && Product(shape) == channels;
  }

  void TakeBiasAdd() {
    if (!view_.HasOneReader(layer_.output)) return;
    const int n = view_.ReadersOf(layer_.output)[0];
    const pb::NodeProto& add = view_.node(n);
    if (!Is(add, "Add") || add.input_size() != 2) return;
    const std::string& other = add.input(add.input(0) == layer_.output ? 1 : 0);
    const pb::TensorProto* tensor = view_.ConstantOf(other);
    if (tensor == nullptr || !IsOnePerChannel(ShapeOf(*tensor))) return;
    auto values = FloatsOf(*tensor);
    if (!values) return;
    layer_.bias = *std::move(values);
    layer_.bias_add = n;
    layer_.output = add.output(0);
  }

  const ModelView& view_;
  const pb::NodeProto& node_;
  LayerNodes layer_;
};

// Operators with weights that have no kernels of integers.
bool IsOtherLayer(const pb::NodeProto& node) {
  return Is(node, "ConvTranspose") || Is(node, "LSTM") || Is(node, "GRU") || Is(node, "RNN");
}

}  // namespace

bool Keeps(const std::vector<std::string>& keep, const pb::NodeProto& node) {
  return std::ranges::any_of(keep, [&](const std::string& name) {
    return name == node.name() || (node.output_size() > 0 && name == node.output(0));
  });
}

int RectifierOf(const ModelView& view, const std::string& tensor) {
  if (!view.HasOneReader(tensor)) return -1;
  const int n = view.ReadersOf(tensor)[0];
  const pb::NodeProto& node = view.node(n);
  return (Is(node, "Relu") || Is(node, "Clip")) && node.input(0) == tensor ? n : -1;
}

FoundLayers FindLayers(const ModelView& view, const std::vector<std::string>& keep) {
  FoundLayers found;
  for (int n = 0; n < view.graph().node_size(); ++n) {
    const pb::NodeProto& node = view.node(n);
    const auto stays = [&](Reason reason) {
      found.floats.push_back({NodeName(node), node.op_type(), std::move(reason)});
    };
    if (IsOtherLayer(node)) {
      stays("no kernel of integers for this operator");
      continue;
    }
    if (!Is(node, "Conv") && !Is(node, "Gemm") && !Is(node, "MatMul")) continue;
    if (Keeps(keep, node)) {
      stays("--keep");
      continue;
    }
    LayerReader reader(view, n);
    if (Reason reason = reader.Read(); !reason.empty()) {
      stays(std::move(reason));
      continue;
    }
    found.layers.push_back(reader.Take());
  }
  return found;
}

}  // namespace tilewright::quantize
