#include <algorithm>
#include <set>
#include <utility>

#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_importer.h"
#include "compiler/quantize/find_layers.h"
#include "compiler/quantize/qdq_writer.h"
#include "compiler/quantize/quantize.h"
#include "compiler/quantize/raise_opset.h"
#include "compiler/quantize/signal_noise.h"
#include "deploy/support/strings.h"

namespace tilewright::quantize {
namespace {

using support::StrCat;

absl::Status CheckForm(const pb::ModelProto& model) {
  for (const pb::NodeProto& node : model.graph().node()) {
    const std::string& op = node.op_type();
    if (op != "DequantizeLinear" && op != "QuantizeLinear" && !op.starts_with("QLinear") &&
        op != "ConvInteger" && op != "MatMulInteger") {
      continue;
    }
    return support::InvalidArgument(
        "quantize.model.quantized",
        StrCat("expected a float model, found ", op, " (node ", NodeName(node), ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckKept(const pb::GraphProto& graph, const std::vector<std::string>& keep) {
  for (const std::string& name : keep) {
    if (std::any_of(graph.node().begin(), graph.node().end(),
                    [&](const pb::NodeProto& node) { return Keeps({name}, node); })) {
      continue;
    }
    std::vector<std::string> layers;
    for (const pb::NodeProto& node : graph.node()) {
      if (Is(node, "Conv") || Is(node, "Gemm") || Is(node, "MatMul")) {
        layers.push_back(NodeName(node));
      }
    }
    return support::InvalidArgument("quantize.keep.unknown",
                                    StrCat("the model has no node ", support::Quote(name),
                                           "; its layers are ", support::Join(layers, ", ")));
  }
  return absl::OkStatus();
}

absl::Status NoLayers(const std::vector<FloatLayer>& floats) {
  std::vector<std::string> reasons;
  for (const FloatLayer& layer : floats) reasons.push_back(StrCat(layer.node, ": ", layer.reason));
  return support::InvalidArgument(
      "quantize.layers.none",
      StrCat("expected a layer (Conv, Gemm, MatMul) that can be quantised, found none; ",
             reasons.empty() ? "the model has no layers" : support::Join(reasons, "; ")));
}

double WeightNoise(const LayerNodes& layer) {
  const LayerFloats floats{layer.weights, layer.shape, layer.axis, {}};
  SignalNoise noise;
  noise.Add(layer.weights, WeightsOf(QuantizeLayer(floats, 1), floats));
  return noise.decibels();
}

}  // namespace

struct FloatModel::Impl {
  pb::ModelProto model;
  int num_folded_norms = 0;
  std::vector<LayerNodes> nodes;
  std::vector<QuantizedLayer> layers;
  std::vector<FloatLayer> floats;
  std::map<std::string, std::string> shared;
  std::vector<std::string> tensors;
  ByteForm data = ByteForm::kUint8;

  QdqSource source() const { return {model, nodes, shared, data}; }
};

FloatModel::FloatModel(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
FloatModel::FloatModel(FloatModel&&) noexcept = default;
FloatModel& FloatModel::operator=(FloatModel&&) noexcept = default;
FloatModel::~FloatModel() = default;

absl::StatusOr<FloatModel> FloatModel::Read(std::string_view onnx, const QuantizeOptions& options) {
  auto impl = std::make_unique<Impl>();
  TW_ASSIGN(impl->model, graph::onnx::ParseModel(onnx, int64_t{graph::kMaxModelBytes}));
  TW_TRY(CheckForm(impl->model));
  TW_TRY(CheckKept(impl->model.graph(), options.keep));
  TW_TRY(RaiseOpset(&impl->model));
  impl->num_folded_norms = FoldNorms(impl->model.mutable_graph());
  const ModelView view(impl->model.graph());
  FoundLayers found = FindLayers(view, options.keep);
  if (found.layers.empty()) return NoLayers(found.floats);
  impl->nodes = std::move(found.layers);
  impl->floats = std::move(found.floats);
  for (const LayerNodes& layer : impl->nodes) {
    const pb::NodeProto& node = view.node(layer.node);
    impl->layers.push_back({NodeName(node), node.op_type(), WeightNoise(layer),
                            static_cast<int64_t>(layer.weights.size())});
  }
  impl->data = options.data;
  if (!options.weights_only) impl->shared = FindIntegerTensors(view, impl->nodes, options.keep);
  for (const auto& [tensor, shared] : impl->shared) impl->tensors.push_back(tensor);
  return FloatModel(std::move(impl));
}

const std::vector<QuantizedLayer>& FloatModel::layers() const { return impl_->layers; }
const std::vector<FloatLayer>& FloatModel::float_layers() const { return impl_->floats; }
const std::vector<std::string>& FloatModel::tensors() const { return impl_->tensors; }
int FloatModel::num_folded_norms() const { return impl_->num_folded_norms; }

ObservedModel FloatModel::WithTensors() const {
  const std::vector<LayerNodes> no_layers;
  const std::map<std::string, std::string> no_tensors;
  const QdqSource source{impl_->model, no_layers, no_tensors, ByteForm::kUint8};
  QdqWriter writer(source, {});
  writer.WriteQuantized();
  for (const std::string& tensor : impl_->tensors) writer.AddOutput(tensor);
  return {writer.Take(), impl_->tensors};
}

std::string FloatModel::Quantized(const Ranges& ranges) const {
  const QdqSource source = impl_->source();
  QdqWriter writer(source, ranges);
  writer.WriteQuantized();
  return writer.Take();
}

ObservedModel FloatModel::QuantizedWithLayers(const Ranges& ranges) const {
  const QdqSource source = impl_->source();
  QdqWriter writer(source, ranges);
  writer.WriteQuantized();
  ObservedModel result;
  for (const LayerNodes& layer : impl_->nodes) {
    result.names.push_back(writer.Result(layer.output));
    writer.AddOutput(result.names.back());
  }
  result.onnx = writer.Take();
  return result;
}

ObservedModel FloatModel::EachLayerAlone(const Ranges& ranges) const {
  const QdqSource source = impl_->source();
  QdqWriter writer(source, ranges);
  const std::vector<std::string> alone = writer.WriteEachAlone();
  ObservedModel result;
  for (size_t i = 0; i < alone.size(); ++i) {
    for (const std::string& name : {impl_->nodes[i].output, alone[i]}) {
      result.names.push_back(name);
      writer.AddOutput(name);
    }
  }
  result.onnx = writer.Take();
  return result;
}

}  // namespace tilewright::quantize
