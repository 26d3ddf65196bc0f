// The graph IR: operators on named tensors in topological order. A value is produced once (an
// input, a constant or a node output). A fused node (op "fused") carries a sub-graph: that
// sub-graph's canonical text is a *task*. Value semantics: copy freely (constants are shared).
// Const use is thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/op/op.h"

namespace tilewright::graph {

using ValueId = int;

// The bytes of a constant: row-major, little endian.
class ConstantData {
 public:
  explicit ConstantData(std::string bytes)
      : size_(static_cast<int64_t>(bytes.size())), bytes_(std::move(bytes)) {}
  // So many bytes that `make` makes when somebody asks for them first. Of a graph that is only
  // compared with another one, packed weights are never made.
  ConstantData(int64_t size, std::function<std::string()> make)
      : size_(size), make_(std::move(make)) {}
  int64_t size() const { return size_; }
  std::string_view view() const;

 private:
  const int64_t size_;
  mutable std::once_flag made_;
  mutable std::function<std::string()> make_;
  mutable std::string bytes_;
};
struct Value {
  std::string name;  // unique
  op::TensorType type;
  std::shared_ptr<const ConstantData> constant = nullptr;  // null unless a constant
  // In the body of a fused node: an input that the module binds to a constant. Tasks are
  // independent of the weights' values; constants of one element stay in the body, where they
  // become literals.
  bool weight = false;
  // Of a weight: no cache holds it from one call of the network to the next (mark_cold_weights).
  bool cold = false;
};
struct Graph;
struct Node {
  std::string name;
  std::string op;  // row of op.h, or "fused"
  op::Attrs attrs;
  std::vector<ValueId> inputs, outputs;
  std::shared_ptr<const Graph> body =
      nullptr;  // "fused" only: its inputs and outputs are this node's
};
// Sizes of results whose shape depends on data: numbers that the model states, or expressions over
// size variables. A run that finds others has no result. A variable that no input has is what the
// run finds (found_sizes.h).
struct SizeCheck {
  std::vector<op::Dim> expected;
  std::string what;  // for people: the ONNX node; no part of equality
};
// The sizes that a size variable may have, both ends included. A variable is at least 1. A size
// that may be 0, such as the length of an empty cache, is a variable minus 1: `size` is its name.
struct SizeRange {
  int64_t min = 1, max = 1;
  std::string size = {};
  bool operator==(const SizeRange&) const = default;
};
// Two expressions that are equal at all sizes that the graph is for.
struct SizeEquality {
  op::Dim left, right;
  std::string what;  // the node that demands it
};
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;               // topological order
  std::vector<ValueId> inputs, outputs;  // constants are not inputs
  // Of the last outputs, in order: each is an i64 vector of the sizes found. They are outputs for
  // every pass, and none for who runs the graph.
  std::vector<SizeCheck> checks = {};
  // Of size variables; no part of the text and of equality.
  std::map<std::string, SizeRange> size_ranges = {};
  // What operators demand of size variables and only some sizes give; InferShapes sets it.
  std::vector<SizeEquality> equal_sizes = {};
  // Of an imported model: by the name of a node, the name of the ONNX node that it was made from.
  // RunGraphPasses keeps it; it is no part of the text and of equality.
  std::shared_ptr<const std::map<std::string, std::string>> sources = nullptr;
};

inline constexpr std::string_view kFusedOp = "fused";
inline constexpr std::string_view kViewOp = "reshape";  // in a fused graph: an alias, not a kernel
// Attribute of a slice that is one run of its operand's bytes, and of a concat whose operands are
// one run after the other: it shares storage, and no kernel computes it (view_moves).
inline constexpr std::string_view kViewAttr = "view";

// Appends a value (the name gets a suffix where it is taken); returns its id.
ValueId AddValue(Graph* graph, std::string name, op::TensorType type);
ValueId AddConstant(Graph* graph, std::string name, op::TensorType type, std::string bytes);
// One whose bytes are made when somebody asks for them.
ValueId AddConstant(Graph* graph, std::string name, op::TensorType type,
                    std::function<std::string()> make);
// Nodes that read each value; a node that reads it twice stands twice. Graph outputs are no
// readers.
std::vector<std::vector<int>> Readers(const Graph& graph);
// Whether no kernel computes the node's result: it shares the storage of its operands.
bool IsView(const Node& node);
// Whether it is a view whose operands are written to their places in its result.
bool IsJoin(const Node& node);
// The value that a value shares its storage with, and the byte in it where the value begins. A
// value without views is its own root.
struct Storage {
  ValueId root = -1;
  op::Dim offset = 0;
  bool operator==(const Storage&) const = default;
};
std::vector<Storage> StorageOf(const Graph& graph);
// The names of the ONNX nodes whose work a node does, in order, each once. What passes made has the
// source of what it was made from: they name it after that ("conv1_b" after "conv1").
std::vector<std::string> SourcesOf(const Graph& graph, const Node& node);
// Removes unreachable nodes and values that nothing uses; renumbers.
Graph Compact(const Graph& graph);

// Text form: Print and ParseGraph are inverse (print∘parse = id on printed text). Constants above
// 64 bytes stand as digests ("sha256:…"); ParseGraph takes their bytes from `constants` by digest.
// Grammar in README.md. Hostile text gives an error with its line (graph.text.*).
std::string Print(const Graph& graph);
absl::StatusOr<Graph> ParseGraph(
    std::string_view text,
    const std::map<std::string, std::shared_ptr<const ConstantData>>& constants = {});
// The same without names: equal for graphs that are structurally equal.
std::string CanonicalText(const Graph& graph);

// Well formed: ids in range, every value defined once and before its use, unique names, known
// operators, types as the operators' rules say, fused bodies that match their nodes
// (graph.verify.*).
absl::Status Verify(const Graph& graph);
bool StructuralEqual(const Graph& a, const Graph& b);  // up to names
uint64_t StructuralHash(const Graph& graph);
// Runs every node by op::Reference: the executable definition of the graph IR. The results are
// those of the outputs that are no checks. graph.interp.stated_shape if a check finds other sizes.
// graph.interp.symbolic for open sizes of inputs that `sizes` has not; sizes that a run finds
// (found_sizes.h) are found, graph.interp.found_size where one is out of its range.
absl::StatusOr<std::vector<op::RefTensor>> Interpret(const Graph& graph,
                                                     const std::vector<op::RefTensor>& inputs,
                                                     const op::Sizes& sizes = {});
// The graph with the results of all kernels outside of loops among its outputs, after those that it
// has: each storage once, under the name of the node's result. Slices and concats that were views
// are kernels in it, since every output has storage of its own.
Graph ShowValues(Graph graph);
double Flops(const Graph& graph);

// Graphs with size variables have text, verifier, shape inference and equality; everything else
// works on what Specialize makes of them.
bool IsSymbolic(const Graph& graph);
std::set<std::string> SizeVariables(const Graph& graph);
// The largest size of each variable that has a range.
op::Sizes MaximaOf(const Graph& graph);
// Dimensions of all results from the inputs'. Where operators demand that a variable equals another
// dimension, that takes its place everywhere (graph.shape.* where no sizes fit).
absl::StatusOr<Graph> InferShapes(Graph graph);
// The graph at these sizes: fixed shapes, checked by the operators' own rules. Sizes that a run
// finds (found_sizes.h) may stay open. graph.shape.size where another one is missing, unknown or
// below 1; graph.shape.unequal where operators demand equal sizes.
absl::StatusOr<Graph> Specialize(const Graph& graph, const op::Sizes& sizes);

}  // namespace tilewright::graph
