// The files of --operators: definitions of custom operators, which join a model before anything
// reads it (compiler/graph/custom_operators.h). Free functions without state; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/custom_operators.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

// Named after the last part of each path. not_found for a missing file, op.custom.limit for a
// large one.
absl::StatusOr<std::vector<graph::OperatorFile>> ReadOperatorFiles(
    const std::vector<std::string>& paths);
// The bytes of an ONNX file with the definitions of these files.
absl::StatusOr<std::string> ReadModel(const std::string& model_path,
                                      const std::vector<std::string>& operator_paths);

}  // namespace tilewright::cli
