// What `tilewright quantize` says about the model that it wrote. Values only.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "compiler/quantize/quantize.h"
#include "compiler/quantize/signal_noise.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct LayerReport {
  quantize::QuantizedLayer layer;
  quantize::SignalNoise alone;    // this layer alone quantised
  quantize::SignalNoise network;  // all of them
};

// One output of the model, of float32.
struct OutputReport {
  std::string name;
  int64_t row = 0;  // length of the rows whose largest number counts; 0: they mean nothing
  quantize::SignalNoise noise;
  int64_t rows = 0, same_largest = 0;

  void Add(std::span<const float> exact, std::span<const float> rounded);
};

class QuantizeReport {
 public:
  std::string model, output, ranges;
  size_t bytes_before = 0, bytes_after = 0, samples = 0;
  int folded_norms = 0;
  bool compared = false;  // with the float model, on the samples
  std::vector<LayerReport> layers;
  std::vector<quantize::FloatLayer> float_layers;
  std::vector<OutputReport> outputs;
  std::vector<OutputReport> outputs_if_kept;  // with Suggestions() in float, too

  void AddLayer(const quantize::QuantizedLayer& layer) { layers.push_back({layer, {}, {}}); }
  void AddOutput(const std::string& name, const std::vector<int64_t>& shape);
  // The layers that lose so much more than the others that keeping them in float may be worth its
  // time, worst first.
  std::vector<std::string> Suggestions() const;
  void Show(OutputFormat format) const;

 private:
  nlohmann::json Document() const;
  std::vector<const LayerReport*> WorstFirst() const;
  double Decibels(const LayerReport& layer) const;
};

}  // namespace tilewright::cli
