// The graph IR: operators on named tensors in topological order. A value is produced once (an input, a constant or a node
// output). A fused node (op "fused") carries a sub-graph: that sub-graph's canonical text is a *task*. Value semantics:
// copy freely (constants are shared).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/op.h"

namespace tilewright::graph {

using ValueId = int;

struct ConstantData {
  std::vector<uint8_t> bytes;              // row-major, little endian
};
struct Value {
  std::string name;                        // unique
  op::TensorType type;
  std::shared_ptr<const ConstantData> constant;  // null unless a constant
};
struct Graph;
struct Node {
  std::string name;
  std::string op;                          // row of op.h, or "fused"
  op::Attrs attrs;
  std::vector<ValueId> inputs, outputs;
  std::shared_ptr<const Graph> body;       // "fused" only
};
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;                 // topological order
  std::vector<ValueId> inputs, outputs;    // constants are not inputs
};

// Text form with constants elided to digests (or inline when small); round trip with a constant table.
std::string Print(const Graph& graph);
absl::StatusOr<Graph> ParseGraph(std::string_view text, const std::map<std::string, std::shared_ptr<const ConstantData>>& constants = {});
absl::Status Verify(const Graph& graph);
bool StructuralEqual(const Graph& a, const Graph& b);    // up to names
uint64_t StructuralHash(const Graph& graph);
// Runs every node by op/reference: the executable definition of the graph IR.
absl::StatusOr<std::vector<op::RefTensor>> Interpret(const Graph& graph, const std::vector<op::RefTensor>& inputs);

struct ImportOptions {
  std::map<std::string, std::vector<int64_t>> shapes;    // --shape NAME=1x3x224x224
  int64_t max_bytes = int64_t{2} << 30;
};
// ONNX bytes → graph. Unknown operators are all named (node, operator, opset); hostile bytes give errors (graph.onnx.*).
absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options = {});

}  // namespace tilewright::graph
