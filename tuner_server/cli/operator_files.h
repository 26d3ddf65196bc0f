// The files of --operators: definitions of custom operators, which join a model before anything
// reads it (compiler/onnx/custom_operators.h). Free functions without state; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/custom_operators.h"
#include "compiler/onnx/onnx_model.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

// Named after the last part of each path. not_found for a missing file, op.custom.limit for a
// large one.
absl::StatusOr<std::vector<graph::OperatorFile>> ReadOperatorFiles(
    const std::vector<std::string>& paths);
// The bytes of an ONNX file with its external data and the definitions of these files: what is sent
// to a server, or rewritten. Without `embed`, data in other files stays there.
absl::StatusOr<std::string> ReadModel(const std::string& model_path,
                                      const std::vector<std::string>& operator_paths,
                                      bool embed = true);

// The same, to import from: in memory once. `keep_going`: although external data is missing.
absl::StatusOr<graph::OnnxModel> OpenModel(const std::string& model_path,
                                           const std::vector<std::string>& operator_paths,
                                           bool keep_going = false);

}  // namespace tilewright::cli
