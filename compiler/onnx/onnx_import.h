// ONNX models → graphs (README.md). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

// The largest file that a program reads as a model: protobuf takes no larger message.
inline constexpr uint64_t kMaxModelBytes = uint64_t{2} << 30;

struct ImportOptions {
  // --shape NAME=1x3x224x224: of an input, or of a named dimension (NAME=8). A size that one shape
  // settles holds wherever the model uses the dimension's name.
  std::map<std::string, std::vector<int64_t>> shapes;
  // --shape NAME=1..64: named dimensions that stay open, with their ranges. They may begin at 0.
  std::map<std::string, SizeRange> open;
  // --state PAST=PRESENT: inputs and the outputs that continue them (keep_state.h).
  std::map<std::string, std::string> states;
  bool known_states = false;  // --state known: those that exporters name as such, too
  int64_t max_bytes = int64_t{kMaxModelBytes};  // of the model and of any one tensor
  // Whether what runs the module runs loops of the graph (compiler/graph/loops.h). Else all are
  // unrolled: the model has to state how many trips there are.
  bool loops = true;
};
// ONNX bytes → graph. Unknown operators are all named (node, operator, opset); hostile bytes give
// errors (graph.onnx.*).
absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options = {});

}  // namespace tilewright::graph
