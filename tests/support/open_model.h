// Makes the sizes of a model's inputs open: what tests of any model try a second time.
#pragma once

#include <set>
#include <string>

#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::tests {

// Every size of at least 2 but those in `fixed` becomes a variable, equal sizes the same one, with
// a range around it. Types that the model states for other values go away. Returns what the
// variables were.
inline op::Sizes OpenModel(tilewright_onnx::ModelProto* model, graph::ImportOptions* options,
                           const std::set<int64_t>& fixed = {}) {
  std::set<std::string> weights;
  for (const auto& tensor : model->graph().initializer()) weights.insert(tensor.name());
  op::Sizes sizes;
  for (auto& input : *model->mutable_graph()->mutable_input()) {
    // Of a sequence, how many tensors it has.
    if (input.type().has_sequence_type()) options->open[input.name() + "_0"] = {1, 4};
    if (weights.contains(input.name()) || !input.type().has_tensor_type()) continue;
    for (auto& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
      const int64_t size = dim.dim_value();
      constexpr int64_t kMost = int64_t{1} << 24;
      if (size < 2 || size > kMost || fixed.contains(size)) continue;
      const std::string name = "N" + std::to_string(size);
      dim.set_dim_param(name);
      options->open[name] = {1, 4 * size};
      sizes[name] = size;
    }
  }
  model->mutable_graph()->clear_value_info();
  for (auto& output : *model->mutable_graph()->mutable_output()) {
    if (!output.type().has_tensor_type()) continue;
    output.mutable_type()->mutable_tensor_type()->clear_shape();
  }
  return sizes;
}

}  // namespace tilewright::tests
