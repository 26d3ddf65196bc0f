// Writes the graphs that quantisation makes. Inside of compiler/quantize. One writer per graph; not
// thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/quantize/find_layers.h"
#include "compiler/quantize/parameters.h"

namespace tilewright::quantize {

// What a writer needs to know; it must outlive the writer.
struct QdqSource {
  const pb::ModelProto& model;  // in float, norms folded
  const std::vector<LayerNodes>& layers;
  const std::map<std::string, std::string>& shared;  // FindIntegerTensors; empty: weights only
  ByteForm data;
};

class QdqWriter {
 public:
  QdqWriter(const QdqSource& source, const Ranges& ranges);

  // Writes the whole network, quantised.
  void WriteQuantized();
  // Writes the network in float, and next to it each layer alone as it is when quantised. Returns
  // the names of what these compute, in the order of the layers.
  std::vector<std::string> WriteEachAlone();
  // What the network has at this place: the dequantised tensor where it becomes integers.
  std::string Result(const std::string& tensor) const;
  // Of a tensor that is no input and no output yet.
  void AddOutput(const std::string& tensor);
  // The model; the writer is empty then.
  std::string Take();

 private:
  // The operands of a quantised layer; `bias` is empty if it has none.
  struct Parameters {
    std::string weights, bias;
  };

  Affine AffineOfTensor(const std::string& tensor) const { return affines_.at(tensor); }
  bool IsInteger(const std::string& tensor) const { return affines_.contains(tensor); }
  pb::NodeProto* AddNode(std::string_view op, const std::vector<std::string>& inputs,
                         const std::string& output);
  void AddPair(const std::string& tensor, const Affine& affine, const std::string& result);
  std::string AddScale(const std::string& base, const std::vector<float>& scales, bool scalar);
  std::string AddDequantized(const std::string& base, int type, const std::string& bytes,
                             const std::vector<int64_t>& shape, const std::vector<float>& scales,
                             int64_t axis);
  Parameters AddParameters(const LayerNodes& layer);
  void SetParameters(const LayerNodes& layer, int n, const Parameters& parameters,
                     pb::NodeProto* node) const;
  std::string WriteAlone(const LayerNodes& layer);

  const QdqSource& source_;
  pb::ModelProto model_;
  pb::GraphProto& graph_;
  FreshNames names_;
  std::map<std::string, Affine> affines_;           // of the tensors that become integers
  std::map<std::string, std::string> dequantized_;  // their names afterwards
};

}  // namespace tilewright::quantize
