// Post-training quantisation of ONNX models: float32 layers become int8 layers in QDQ form
// (QuantizeLinear and DequantizeLinear around what computes with integers), which the import of
// compiler/onnx and ONNX Runtime read. The library changes models; it runs none: who calls it
// runs the models that it makes, and says which ranges the tensors had.
//
//   FloatModel model = FloatModel::Read(onnx, options)
//   run model.WithTensors() on calibration data -> a Range for each of model.tensors()
//   model.Quantized(ranges), and for a report model.QuantizedWithLayers, model.EachLayerAlone
//
// Results depend on the arguments only: same arguments, same bytes. Const use is thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/quantize/parameters.h"
#include "compiler/quantize/ranges.h"
#include "deploy/support/status.h"

namespace tilewright::quantize {

struct QuantizeOptions {
  std::vector<std::string> keep = {};  // ONNX nodes that stay in float, by name or first output
  bool weights_only = false;           // data stays in float: no ranges
  ByteForm data = ByteForm::kUint8;
};

// A layer that computes with integers (weights_only: with integer weights).
struct QuantizedLayer {
  std::string node;       // its ONNX node: name, or first output where it has none
  std::string op;         // Conv, Gemm, MatMul
  double weights_db = 0;  // signal to noise of its weights
  int64_t num_weights = 0;
};
// One that stays in float, and why.
struct FloatLayer {
  std::string node, op, reason;
};

// An ONNX model with further outputs. names[i] is the output that has the i-th observed tensor, or
// the input that is it.
struct ObservedModel {
  std::string onnx;
  std::vector<std::string> names;
};

using Ranges = std::map<std::string, Range>;

class FloatModel {
 public:
  // Reads a float model, brings it to opset 13 if it has an older one, folds batch normalisations
  // into the convolutions before them, and decides what is quantised. REQUIRES: the model imports
  // (graph::ImportOnnx). INVALID_ARGUMENT: quantize.model.quantized, quantize.model.opset;
  // quantize.keep.unknown for a name in `keep` without a node; quantize.layers.none if no layer can
  // be quantised, with the reasons.
  static absl::StatusOr<FloatModel> Read(std::string_view onnx, const QuantizeOptions& options);
  FloatModel(FloatModel&&) noexcept;
  FloatModel& operator=(FloatModel&&) noexcept;
  ~FloatModel();

  // In the order of the model.
  const std::vector<QuantizedLayer>& layers() const;
  const std::vector<FloatLayer>& float_layers() const;
  // The tensors that become integers: each needs a range. Empty with weights_only. If more nodes
  // are kept, these are some of the same.
  const std::vector<std::string>& tensors() const;
  int num_folded_norms() const;

  // The float model (norms folded) with an output for each of tensors().
  ObservedModel WithTensors() const;
  // REQUIRES of the next three: `ranges` has all of tensors().
  std::string Quantized(const Ranges& ranges) const;
  // With an output for each of layers(): its result, dequantised if it is an integer.
  ObservedModel QuantizedWithLayers(const Ranges& ranges) const;
  // The float model with two outputs for each of layers(): its result, and what it would be if
  // this layer alone were quantised.
  ObservedModel EachLayerAlone(const Ranges& ranges) const;

 private:
  struct Impl;
  explicit FloatModel(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tilewright::quantize
