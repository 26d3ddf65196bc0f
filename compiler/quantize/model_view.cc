#include "compiler/quantize/model_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/strings.h"

namespace tilewright::quantize {

ModelView::ModelView(const pb::GraphProto& graph) : graph_(graph) {
  for (const pb::TensorProto& tensor : graph.initializer()) constants_[tensor.name()] = &tensor;
  for (const auto& input : graph.input()) {
    if (!constants_.contains(input.name())) inputs_.insert(input.name());
  }
  for (int n = 0; n < graph.node_size(); ++n) {
    const pb::NodeProto& node = graph.node(n);
    for (const std::string& output : node.output()) producers_.try_emplace(output, n);
    for (const std::string& name : graph::onnx::NamesRead(node)) ++num_reads_[name];
    for (const std::string& name : node.input()) {
      std::vector<int>& readers = readers_[name];
      if (readers.empty() || readers.back() != n) readers.push_back(n);
    }
    if (!Is(node, "Constant") || node.output_size() != 1) continue;
    const pb::AttributeProto* value = FindAttribute(node, "value");
    if (value != nullptr && value->has_t()) constants_[node.output(0)] = &value->t();
  }
  for (const auto& output : graph.output()) {
    outputs_.insert(output.name());
    ++num_reads_[output.name()];
  }
}

int ModelView::ProducerOf(const std::string& tensor) const {
  const auto found = producers_.find(tensor);
  return found == producers_.end() ? -1 : found->second;
}

const std::vector<int>& ModelView::ReadersOf(const std::string& tensor) const {
  static const auto* const none = new std::vector<int>;
  const auto found = readers_.find(tensor);
  return found == readers_.end() ? *none : found->second;
}

bool ModelView::HasOneReader(const std::string& tensor) const {
  const auto reads = num_reads_.find(tensor);
  return ReadersOf(tensor).size() == 1 && reads != num_reads_.end() && reads->second == 1;
}

const pb::TensorProto* ModelView::ConstantOf(const std::string& tensor) const {
  const auto found = constants_.find(tensor);
  return found == constants_.end() ? nullptr : found->second;
}

bool Is(const pb::NodeProto& node, std::string_view op) {
  return (node.domain().empty() || node.domain() == "ai.onnx") && node.op_type() == op;
}

std::string NodeName(const pb::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : node.op_type();
}

const pb::AttributeProto* FindAttribute(const pb::NodeProto& node, std::string_view name) {
  for (const pb::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t IntAttribute(const pb::NodeProto& node, std::string_view name, int64_t otherwise) {
  const pb::AttributeProto* found = FindAttribute(node, name);
  return found == nullptr ? otherwise : found->i();
}

double FloatAttribute(const pb::NodeProto& node, std::string_view name, double otherwise) {
  const pb::AttributeProto* found = FindAttribute(node, name);
  return found == nullptr ? otherwise : found->f();
}

void EraseAttribute(pb::NodeProto* node, std::string_view name) {
  auto& all = *node->mutable_attribute();
  const auto is_it = [&](const pb::AttributeProto& attribute) { return attribute.name() == name; };
  all.erase(std::remove_if(all.begin(), all.end(), is_it), all.end());
}

std::string Operand(const pb::NodeProto& node, int i) {
  return i < node.input_size() ? node.input(i) : "";
}

std::optional<std::vector<float>> FloatsOf(const pb::TensorProto& tensor) {
  if (tensor.data_type() != pb::TensorProto::FLOAT) return std::nullopt;
  const auto read = graph::onnx::ReadTensor(tensor, int64_t{graph::kMaxModelBytes});
  if (!read.ok()) return std::nullopt;
  std::vector<float> values(read->bytes.size() / sizeof(float));
  std::memcpy(values.data(), read->bytes.data(), values.size() * sizeof(float));
  const bool finite = std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  return finite ? std::optional(std::move(values)) : std::nullopt;
}

std::vector<int64_t> ShapeOf(const pb::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

pb::TensorProto FloatTensor(const std::string& name, const std::vector<int64_t>& shape,
                            const std::vector<float>& values) {
  pb::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(pb::TensorProto::FLOAT);
  for (const int64_t dim : shape) tensor.add_dims(dim);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

FreshNames::FreshNames(const pb::GraphProto& graph) {
  for (const auto& input : graph.input()) taken_.insert(input.name());
  for (const pb::TensorProto& tensor : graph.initializer()) taken_.insert(tensor.name());
  graph::onnx::ForEachNode(graph, [&](const pb::NodeProto& node) {
    taken_.insert(node.name());
    taken_.insert(node.output().begin(), node.output().end());
  });
}

std::string FreshNames::Take(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; !taken_.insert(name).second; ++i) name = support::StrCat(wanted, "_", i);
  return name;
}

void DropUnusedConstants(pb::GraphProto* graph) {
  std::set<std::string> read, unused;
  for (const pb::NodeProto& node : graph->node()) {
    for (const std::string& name : graph::onnx::NamesRead(node)) read.insert(name);
  }
  for (const auto& output : graph->output()) read.insert(output.name());
  for (const pb::TensorProto& tensor : graph->initializer()) {
    if (!read.contains(tensor.name())) unused.insert(tensor.name());
  }
  const auto drop = [&](const auto& named) { return unused.contains(named.name()); };
  auto& tensors = *graph->mutable_initializer();
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(), drop), tensors.end());
  auto& inputs = *graph->mutable_input();
  inputs.erase(std::remove_if(inputs.begin(), inputs.end(), drop), inputs.end());
  auto& nodes = *graph->mutable_node();
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(),
                             [&](const pb::NodeProto& node) {
                               return Is(node, "Constant") && node.output_size() == 1 &&
                                      !read.contains(node.output(0));
                             }),
              nodes.end());
}

}  // namespace tilewright::quantize
