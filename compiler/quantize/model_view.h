// Who makes and who reads each tensor of an ONNX graph. Inside of compiler/quantize. A view holds
// pointers into the graph: the graph must not change while it is used.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright_onnx.pb.h"

namespace tilewright::quantize {

namespace pb = ::tilewright_onnx;

class ModelView {
 public:
  explicit ModelView(const pb::GraphProto& graph);

  const pb::GraphProto& graph() const { return graph_; }
  const pb::NodeProto& node(int n) const { return graph_.node(n); }
  // The node that makes this tensor; -1 for inputs, initializers and unknown names.
  int ProducerOf(const std::string& tensor) const;
  // Nodes that read it as an operand, each once.
  const std::vector<int>& ReadersOf(const std::string& tensor) const;
  // Whether all that reads it is one operand of one node.
  bool HasOneReader(const std::string& tensor) const;
  // The value of an initializer or of a Constant node; null for other tensors.
  const pb::TensorProto* ConstantOf(const std::string& tensor) const;
  bool IsInput(const std::string& tensor) const { return inputs_.contains(tensor); }
  bool IsOutput(const std::string& tensor) const { return outputs_.contains(tensor); }

 private:
  const pb::GraphProto& graph_;
  std::map<std::string, int> producers_;
  std::map<std::string, std::vector<int>> readers_;
  std::map<std::string, int> num_reads_;  // operands, subgraphs and outputs
  std::map<std::string, const pb::TensorProto*> constants_;
  std::set<std::string> inputs_, outputs_;  // inputs: without initializers
};

// ONNX's own operator of this name.
bool Is(const pb::NodeProto& node, std::string_view op);
// Name of the node, or its first output where it has none.
std::string NodeName(const pb::NodeProto& node);
const pb::AttributeProto* FindAttribute(const pb::NodeProto& node, std::string_view name);
int64_t IntAttribute(const pb::NodeProto& node, std::string_view name, int64_t otherwise);
double FloatAttribute(const pb::NodeProto& node, std::string_view name, double otherwise);
void EraseAttribute(pb::NodeProto* node, std::string_view name);
// Operand `i`; empty if the node has none.
std::string Operand(const pb::NodeProto& node, int i);

// Numbers of a float32 tensor; nullopt for another type, data in other files, bad shapes, and
// numbers that are not finite.
std::optional<std::vector<float>> FloatsOf(const pb::TensorProto& tensor);
std::vector<int64_t> ShapeOf(const pb::TensorProto& tensor);
// A float32 tensor of `values`.
pb::TensorProto FloatTensor(const std::string& name, const std::vector<int64_t>& shape,
                            const std::vector<float>& values);
// Names that nothing in a graph has yet.
class FreshNames {
 public:
  explicit FreshNames(const pb::GraphProto& graph);
  // `wanted`, or the first of wanted_2, wanted_3 ... that is free. It is taken from then on.
  std::string Take(const std::string& wanted);

 private:
  std::set<std::string> taken_;
};
// Removes initializers (and inputs of the same name) and Constant nodes that nothing reads.
void DropUnusedConstants(pb::GraphProto* graph);

}  // namespace tilewright::quantize
