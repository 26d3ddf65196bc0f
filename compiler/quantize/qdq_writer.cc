#include "compiler/quantize/qdq_writer.h"

#include <algorithm>
#include <array>

#include "deploy/support/bytes.h"

namespace tilewright::quantize {
QdqWriter::QdqWriter(const QdqSource& source, const Ranges& ranges)
    : source_(source),
      model_(source.model),
      graph_(*model_.mutable_graph()),
      names_(source.model.graph()) {
  graph_.clear_node();
  Ranges of_shared;
  for (const auto& [tensor, shared] : source.shared) {
    Range& range = of_shared[shared];
    range = Union(range, ranges.at(tensor));
  }
  for (const auto& [tensor, shared] : source.shared) {
    affines_[tensor] = AffineOf(of_shared.at(shared), source.data);
    dequantized_[tensor] = names_.Take(tensor + "_dequantized");
  }
}

std::string QdqWriter::Result(const std::string& tensor) const {
  const auto found = dequantized_.find(tensor);
  return found == dequantized_.end() ? tensor : found->second;
}

pb::NodeProto* QdqWriter::AddNode(std::string_view op, const std::vector<std::string>& inputs,
                                  const std::string& output) {
  pb::NodeProto* node = graph_.add_node();
  node->set_op_type(std::string(op));
  node->set_name(names_.Take(output + "_" + std::string(op)));
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(output);
  return node;
}

std::string QdqWriter::AddScale(const std::string& base, const std::vector<float>& scales,
                                bool scalar) {
  const std::string name = names_.Take(base + "_scale");
  const auto count = static_cast<int64_t>(scales.size());
  *graph_.add_initializer() =
      FloatTensor(name, scalar ? std::vector<int64_t>{} : std::vector{count}, scales);
  return name;
}

// tensor -> integers -> `result`.
void QdqWriter::AddPair(const std::string& tensor, const Affine& affine,
                        const std::string& result) {
  const std::string scale = AddScale(tensor, {affine.scale}, true);
  pb::TensorProto* zero = graph_.add_initializer();
  zero->set_name(names_.Take(tensor + "_zero_point"));
  zero->set_data_type(affine.is_signed ? pb::TensorProto::INT8 : pb::TensorProto::UINT8);
  zero->set_raw_data(std::string(1, static_cast<char>(affine.zero_point)));
  const std::string name = zero->name(), integers = names_.Take(tensor + "_quantized");
  AddNode("QuantizeLinear", {tensor, scale, name}, integers);
  AddNode("DequantizeLinear", {integers, scale, name}, result);
}

// A constant of integers without zero points; returns what it is as floats.
std::string QdqWriter::AddDequantized(const std::string& base, int type, const std::string& bytes,
                                      const std::vector<int64_t>& shape,
                                      const std::vector<float>& scales, int64_t axis) {
  pb::TensorProto* integers = graph_.add_initializer();
  integers->set_name(names_.Take(base + "_quantized"));
  integers->set_data_type(type);
  for (const int64_t dim : shape) integers->add_dims(dim);
  integers->set_raw_data(bytes);
  const std::string name = integers->name(), scale = AddScale(base, scales, false);
  pb::TensorProto* zero = graph_.add_initializer();
  zero->set_name(names_.Take(base + "_zero_point"));
  zero->set_data_type(type);
  zero->add_dims(static_cast<int64_t>(scales.size()));
  const size_t bytes_each = type == pb::TensorProto::INT32 ? sizeof(int32_t) : 1;
  zero->set_raw_data(std::string(scales.size() * bytes_each, '\0'));
  const std::string zero_name = zero->name(), result = names_.Take(base + "_dequantized");
  pb::AttributeProto* attribute =
      AddNode("DequantizeLinear", {name, scale, zero_name}, result)->add_attribute();
  attribute->set_name("axis");
  attribute->set_type(pb::AttributeProto::INT);
  attribute->set_i(axis);
  return result;
}

QdqWriter::Parameters QdqWriter::AddParameters(const LayerNodes& layer) {
  const bool whole = IsInteger(layer.data);
  const LayerFloats floats{layer.weights, layer.shape, layer.axis, layer.bias};
  // Weights alone: the bias stays in float, and no scale of the data limits that of the weights.
  LayerFloats weights = floats;
  if (!whole) weights.bias = {};
  const LayerIntegers integers =
      QuantizeLayer(weights, whole ? affines_.at(layer.data).scale : 1.0F);
  const std::string base = layer.output + "_weights";
  Parameters made;
  made.weights = AddDequantized(base, pb::TensorProto::INT8, support::BytesOf(integers.weights),
                                layer.shape, integers.weight_scales, layer.axis);
  if (layer.bias.empty()) return made;
  const std::vector<int64_t> shape = {static_cast<int64_t>(layer.bias.size())};
  if (whole) {
    made.bias = AddDequantized(layer.output + "_bias", pb::TensorProto::INT32,
                               support::BytesOf(integers.bias), shape, integers.bias_scales, 0);
  } else {
    made.bias = names_.Take(layer.output + "_bias");
    *graph_.add_initializer() = FloatTensor(made.bias, shape, layer.bias);
  }
  return made;
}

// Of node `n` of the layer: gives it the quantised operands.
void QdqWriter::SetParameters(const LayerNodes& layer, int n, const Parameters& parameters,
                              pb::NodeProto* node) const {
  if (n == layer.bias_add) {
    const std::string& first = source_.model.graph().node(layer.node).output(0);
    node->set_input(source_.model.graph().node(n).input(0) == first ? 1 : 0, parameters.bias);
  }
  if (n != layer.node) return;
  node->set_input(1, parameters.weights);
  if (layer.bias_add < 0 && !parameters.bias.empty()) node->set_input(2, parameters.bias);
  for (const std::string_view factor : {"alpha", "beta"}) EraseAttribute(node, factor);
}

void QdqWriter::WriteQuantized() {
  const pb::GraphProto& from = source_.model.graph();
  std::map<int, const LayerNodes*> layer_of;
  for (const LayerNodes& layer : source_.layers) {
    for (const int n : {layer.node, layer.bias_add}) layer_of[n] = &layer;
  }
  const auto pair = [&](const std::string& tensor) {
    if (IsInteger(tensor)) AddPair(tensor, AffineOfTensor(tensor), dequantized_.at(tensor));
  };
  for (const auto& input : from.input()) pair(input.name());
  std::map<const LayerNodes*, Parameters> parameters;
  for (int n = 0; n < from.node_size(); ++n) {
    const auto layer = layer_of.find(n);
    const bool first = layer != layer_of.end() && !parameters.contains(layer->second);
    if (first) parameters[layer->second] = AddParameters(*layer->second);
    pb::NodeProto* node = graph_.add_node();
    *node = from.node(n);
    for (std::string& input : *node->mutable_input()) input = Result(input);
    if (layer != layer_of.end()) {
      SetParameters(*layer->second, n, parameters.at(layer->second), node);
    }
    for (const std::string& output : from.node(n).output()) pair(output);
  }
}

std::string QdqWriter::WriteAlone(const LayerNodes& layer) {
  const Parameters parameters = AddParameters(layer);
  std::string at = layer.output + "_alone_data", before;
  if (IsInteger(layer.data)) {
    at = names_.Take(at);
    AddPair(layer.data, AffineOfTensor(layer.data), at);
  } else {
    at = layer.data;
  }
  for (const int n : {layer.node, layer.bias_add, layer.rectifier}) {
    if (n < 0) continue;
    pb::NodeProto* node = graph_.add_node();
    *node = source_.model.graph().node(n);
    for (std::string& input : *node->mutable_input()) {
      if (input == (before.empty() ? layer.data : before)) input = at;
    }
    SetParameters(layer, n, parameters, node);
    before = node->output(0);
    at = names_.Take(before + "_alone");
    node->set_output(0, at);
    node->set_name(at);
  }
  if (!IsInteger(layer.output)) return at;
  const std::string result = names_.Take(at + "_dequantized");
  AddPair(at, AffineOfTensor(layer.output), result);
  return result;
}

std::vector<std::string> QdqWriter::WriteEachAlone() {
  *graph_.mutable_node() = source_.model.graph().node();
  std::vector<std::string> results;
  for (const LayerNodes& layer : source_.layers) results.push_back(WriteAlone(layer));
  return results;
}

void QdqWriter::AddOutput(const std::string& tensor) {
  const auto has_it = [&](const auto& values) {
    return std::any_of(values.begin(), values.end(),
                       [&](const auto& value) { return value.name() == tensor; });
  };
  if (has_it(graph_.output()) || has_it(graph_.input())) return;
  pb::ValueInfoProto* output = graph_.add_output();
  output->set_name(tensor);
  output->mutable_type()->mutable_tensor_type()->set_elem_type(pb::TensorProto::FLOAT);
}

std::string QdqWriter::Take() {
  DropUnusedConstants(&graph_);
  return model_.SerializeAsString();
}

}  // namespace tilewright::quantize
