#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/quantize/find_layers.h"

namespace tilewright::quantize {
namespace {

// What the normalisation does to each channel: factor * x + shift.
struct Norm {
  std::vector<double> factor, shift;
};

std::optional<Norm> NormOf(const ModelView& view, const pb::NodeProto& node, size_t channels) {
  std::vector<std::vector<float>> parameters;  // gamma, beta, mean, variance
  for (int i = 1; i <= 4; ++i) {
    const pb::TensorProto* constant = view.ConstantOf(Operand(node, i));
    auto values = constant != nullptr ? FloatsOf(*constant) : std::nullopt;
    if (!values || values->size() != channels) return std::nullopt;
    parameters.push_back(*std::move(values));
  }
  const double epsilon = FloatAttribute(node, "epsilon", 1e-5);
  Norm norm;
  for (size_t c = 0; c < channels; ++c) {
    const double factor = parameters[0][c] / std::sqrt(parameters[3][c] + epsilon);
    if (!std::isfinite(factor)) return std::nullopt;
    norm.factor.push_back(factor);
    norm.shift.push_back(parameters[1][c] - factor * parameters[2][c]);
  }
  return norm;
}

// A convolution and the normalisation of its result.
struct Fold {
  int conv, norm;
  std::vector<int64_t> shape;  // of the weights
  std::vector<float> weights, bias;
};

std::optional<Fold> FoldOf(const ModelView& view, int n) {
  const pb::NodeProto& norm = view.node(n);
  if (!Is(norm, "BatchNormalization") || IntAttribute(norm, "training_mode", 0) != 0 ||
      norm.output_size() != 1) {
    return std::nullopt;
  }
  const int producer = view.ProducerOf(Operand(norm, 0));
  if (producer < 0 || !Is(view.node(producer), "Conv") || !view.HasOneReader(norm.input(0))) {
    return std::nullopt;
  }
  const pb::NodeProto& conv = view.node(producer);
  const pb::TensorProto* weights = view.ConstantOf(Operand(conv, 1));
  const pb::TensorProto* bias = view.ConstantOf(Operand(conv, 2));
  if (weights == nullptr || weights->dims_size() < 3) return std::nullopt;
  auto values = FloatsOf(*weights);
  const auto channels = static_cast<size_t>(weights->dims(0));
  const auto change = NormOf(view, norm, channels);
  auto old_bias = bias != nullptr ? FloatsOf(*bias) : std::nullopt;
  const bool has_bias = !Operand(conv, 2).empty();
  if (!values || !change || channels == 0 || (has_bias && !old_bias)) return std::nullopt;
  Fold fold{producer, n, ShapeOf(*weights), *std::move(values), {}};
  const size_t run = fold.weights.size() / channels;
  for (size_t i = 0; i < fold.weights.size(); ++i) {
    fold.weights[i] = static_cast<float>(fold.weights[i] * change->factor[i / run]);
  }
  for (size_t c = 0; c < channels; ++c) {
    const double before = has_bias ? (*old_bias)[c] : 0;
    fold.bias.push_back(static_cast<float>(change->factor[c] * before + change->shift[c]));
  }
  return fold;
}

}  // namespace

int FoldNorms(pb::GraphProto* graph) {
  std::vector<Fold> folds;
  {
    const ModelView view(*graph);
    for (int n = 0; n < graph->node_size(); ++n) {
      if (auto fold = FoldOf(view, n)) folds.push_back(*std::move(fold));
    }
  }
  FreshNames names(*graph);
  std::vector<bool> gone(static_cast<size_t>(graph->node_size()), false);
  for (const Fold& fold : folds) {
    pb::NodeProto& conv = *graph->mutable_node(fold.conv);
    const std::string result = graph->node(fold.norm).output(0);
    const std::string weights = names.Take(result + "_folded_weights");
    const std::string bias = names.Take(result + "_folded_bias");
    *graph->add_initializer() = FloatTensor(weights, fold.shape, fold.weights);
    *graph->add_initializer() =
        FloatTensor(bias, {static_cast<int64_t>(fold.bias.size())}, fold.bias);
    while (conv.input_size() < 3) conv.add_input("");
    conv.set_input(1, weights);
    conv.set_input(2, bias);
    conv.set_output(0, result);
    gone[static_cast<size_t>(fold.norm)] = true;
  }
  pb::GraphProto kept;
  for (int n = 0; n < graph->node_size(); ++n) {
    if (!gone[static_cast<size_t>(n)]) *kept.add_node() = std::move(*graph->mutable_node(n));
  }
  graph->mutable_node()->Swap(kept.mutable_node());
  DropUnusedConstants(graph);
  return static_cast<int>(folds.size());
}

}  // namespace tilewright::quantize
