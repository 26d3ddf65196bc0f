// Tensors of an ONNX model whose data is in other files. Inside of the import.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/support/hash.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::graph::onnx {

struct ExternalData {
  int64_t tensors = 0, bytes = 0;  // that were read
  // Of the others, in the order of the model: INVALID_ARGUMENT graph.onnx.external_data,
  // .tensor_data, .too_large, with the names of tensor and file.
  std::vector<std::pair<const tilewright_onnx::TensorProto*, absl::Status>> errors;
};

// Reads that data into the model. A tensor's file is named relative to `folder`, the folder of
// `model_path`, and must lie in it, or where the model's own file lies if that is a link (caches of
// downloads keep both so): models are not trusted. The data joins `digest` if that is not null.
ExternalData LoadExternalData(const std::string& model_path, tilewright_onnx::ModelProto* model,
                              support::Sha256* digest);

}  // namespace tilewright::graph::onnx
