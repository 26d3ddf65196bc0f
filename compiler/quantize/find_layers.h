// What of an ONNX graph becomes integers. Inside of compiler/quantize. Values only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/quantize/model_view.h"
#include "compiler/quantize/quantize.h"

namespace tilewright::quantize {

// Batch normalisations with constant parameters go into the weights of the convolution before them,
// which alone reads its result. Returns how many did.
int FoldNorms(pb::GraphProto* graph);

// A layer with what is computed together with it: nothing between these nodes is rounded.
struct LayerNodes {
  int node = -1;       // Conv, Gemm or MatMul
  int bias_add = -1;   // the Add of a constant after a MatMul
  int rectifier = -1;  // the Relu or Clip at the end
  std::string data;    // the operand that is no constant
  std::vector<float> weights;
  std::vector<int64_t> shape;  // of the weights
  int64_t axis = 0;            // of the output channels in them
  std::vector<float> bias;     // a number for each output channel, or none
  std::string output;          // of the last of these nodes
};

struct FoundLayers {
  std::vector<LayerNodes> layers;
  std::vector<FloatLayer> floats;
};
// `keep`: names as in QuantizeOptions.
FoundLayers FindLayers(const ModelView& view, const std::vector<std::string>& keep);

// The tensors that become integers: what layers read, and the operands and results of operators
// between layers that work on integers, too. Each has the name of the tensor that it shares scale
// and zero point with, its own if there is no other.
std::map<std::string, std::string> FindIntegerTensors(const ModelView& view,
                                                      const std::vector<LayerNodes>& layers,
                                                      const std::vector<std::string>& keep);

// Whether `keep` has this node.
bool Keeps(const std::vector<std::string>& keep, const pb::NodeProto& node);
// The Relu or Clip that alone reads `tensor`; -1 if there is none.
int RectifierOf(const ModelView& view, const std::string& tensor);

}  // namespace tilewright::quantize
