#include "tuner_server/cli/operator_files.h"

#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_model.h"
#include "compiler/op/custom_text.h"
#include "deploy/support/file.h"
#include "deploy/support/printable.h"

namespace tilewright::cli {

absl::StatusOr<std::vector<graph::OperatorFile>> ReadOperatorFiles(
    const std::vector<std::string>& paths) {
  std::vector<graph::OperatorFile> files;
  for (const std::string& path : paths) {
    // One byte more than a text may have: then its own error says so.
    TW_ASSIGN(std::string text, support::ReadFile(path, op::custom::kMaxText + 1));
    files.push_back({support::Printable(support::BaseName(path)), std::move(text)});
  }
  return files;
}

absl::StatusOr<std::string> ReadModel(const std::string& model_path,
                                      const std::vector<std::string>& operator_paths, bool embed) {
  TW_ASSIGN(const std::vector<graph::OperatorFile> files, ReadOperatorFiles(operator_paths));
  TW_ASSIGN(std::string bytes, support::ReadFile(model_path, graph::kMaxModelBytes));
  if (embed) TW_TRY(graph::EmbedExternalData(model_path, &bytes));
  for (const graph::OperatorFile& file : files) TW_TRY(graph::AddOperators(file, &bytes));
  return bytes;
}

absl::StatusOr<graph::OnnxModel> OpenModel(const std::string& model_path,
                                           const std::vector<std::string>& operator_paths,
                                           bool keep_going) {
  graph::OnnxModel::OpenOptions options;
  options.external_data = true;
  options.keep_going = keep_going;
  TW_ASSIGN(options.operators, ReadOperatorFiles(operator_paths));
  return graph::OnnxModel::Open(model_path, options);
}

}  // namespace tilewright::cli
