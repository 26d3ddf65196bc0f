// An ONNX model as its file says it, with the data that lies in other files. Weights are held once:
// all graphs that are imported from a model share them. Immutable and cheap to copy; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/onnx/custom_operators.h"
#include "compiler/onnx/onnx_check.h"
#include "compiler/onnx/onnx_import.h"

namespace tilewright::graph {

// The most bytes that the data of a model in other files may have: what a module may have.
inline constexpr int64_t kMaxExternalBytes = int64_t{8} << 30;

class OnnxModel {
 public:
  struct OpenOptions {
    std::vector<OperatorFile> operators;  // join the model's own
    // Reads the data that the model keeps in other files of its folder. Only for models that
    // whoever runs this program has named: others would have it read files for them.
    bool external_data = false;
    // Opens a model although some of that data is not there; CheckOnnx says what and why.
    bool keep_going = false;
    int64_t max_bytes = int64_t{kMaxModelBytes};  // of the model's own file
  };

  // Errors of both: graph.onnx.not_onnx, .too_large; op.custom.* of the operators. What is wrong
  // with external data is an error too, in Open: graph.onnx.external_data, .tensor_data.
  static absl::StatusOr<OnnxModel> Parse(std::string_view bytes,
                                         int64_t max_bytes = int64_t{kMaxModelBytes});
  // Reads the file piece by piece: the model is in memory once.
  static absl::StatusOr<OnnxModel> Open(const std::string& path, const OpenOptions& options);

  // Of everything that was read, in hexadecimal, and its size.
  const std::string& digest() const;
  int64_t bytes() const;

  // Inside of the import.
  struct Parsed;
  const Parsed& parsed() const { return *parsed_; }

 private:
  explicit OnnxModel(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

// As the functions that take bytes.
absl::StatusOr<Graph> ImportOnnx(const OnnxModel& model, const ImportOptions& options = {});
absl::StatusOr<ImportCheck> CheckOnnx(const OnnxModel& model, const ImportOptions& options = {});

// Brings the data that the model of this path keeps in other files into the model's bytes. Bytes of
// a model without such data stay as they are. graph.onnx.too_large if one file cannot hold it all.
absl::Status EmbedExternalData(const std::string& model_path, std::string* bytes);

}  // namespace tilewright::graph
