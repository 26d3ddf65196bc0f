// Inside of the ONNX import, shared by its sources: the importer's state while it walks a
// model, and the helpers that operator conversions use. One Importer per model; not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_check.h"
#include "compiler/onnx/onnx_custom_ops.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_model.h"
#include "compiler/onnx/onnx_ranges.h"
#include "deploy/support/packed_integers.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::graph::onnx {

namespace pb = ::tilewright_onnx;

absl::Status Bad(std::string_view reason, std::string_view detail);  // graph.onnx.<reason>
inline constexpr int64_t kOldestOpset = 1, kNewestOpset = 28;
inline constexpr std::string_view kSymbolicShape = "graph.onnx.symbolic_shape";
// What a user does about an open size that the import does not take; ends an error's text.
inline constexpr std::string_view kGiveNumbers = "; give numbers instead of ranges: --shape NAME=N";
inline constexpr std::string_view kUnsupportedOperator = "graph.onnx.unsupported_operator";

// A tensor that stands in a file or an attribute. REQUIRES nothing: every field is checked. A
// dimension may be 0.
struct HostConstant {
  op::TensorType type;
  std::string bytes;
};
absl::StatusOr<HostConstant> ReadTensor(const pb::TensorProto& tensor, int64_t max_bytes);
// What a tensor's fields but its data say, and how many bytes of data that wants. Integers of less
// than a byte are held as bytes: operators give the same numbers.
struct StoredType {
  op::TensorType type;
  int64_t bytes = 0;
  const support::PackedInteger* packed = nullptr;
};
absl::StatusOr<StoredType> StoredTypeOf(const pb::TensorProto& tensor, int64_t max_bytes);
absl::Status CheckStored(const pb::TensorProto& tensor, const StoredType& stored, size_t found);
// Refuses other types than those of ElementTypes: graph.onnx.element_type.
absl::StatusOr<ir::DType> ElementType(int64_t onnx_type);
// The type whose elements hold those of this type: bytes for integers of less than a byte.
absl::StatusOr<ir::DType> HeldType(int64_t onnx_type);
struct ElementTypeRow {
  int onnx;
  ir::DType type;
};
std::span<const ElementTypeRow> ElementTypes();
std::string ElementTypeName(int64_t onnx_type);  // "float16"
// The number of elements that the shape says; -1 for a bad shape, or one of more than 2^34.
int64_t Elements(const pb::TensorProto& tensor);
// Whether the tensor's data is in another file, and the name of that file as the model states it.
bool IsExternal(const pb::TensorProto& tensor);
std::string ExternalFile(const pb::TensorProto& tensor);

// The model in these bytes (graph.onnx.not_onnx, .too_large).
absl::StatusOr<pb::ModelProto> ParseModel(std::string_view bytes, int64_t max_bytes);
// Names each size of an input that has no name, or the name "?" (Paddle), after the input and the
// axis ("image_2"), so that --shape can name it.
void NameUnknownSizes(pb::GraphProto& graph);
// An input that is a sequence becomes a tensor with a new first dimension, which has the tensors of
// the sequence; its type has the denotation kSequence. An optional becomes its element.
void ReadInputsAsTensors(pb::GraphProto& graph);
inline constexpr std::string_view kSequence = "tilewright.sequence";
inline bool IsDefaultDomain(const std::string& domain) {
  return domain.empty() || domain == "ai.onnx";
}
// A name that may come from hostile bytes, fit for a line of text.
std::string Printable(std::string_view text);
// The name of a dimension as the word that a variable is.
std::string SizeWord(const std::string& name);
// Calls `visit` for every node of the graph and of its subgraphs.
void ForEachNode(const pb::GraphProto& graph,
                 const std::function<void(const pb::NodeProto&)>& visit);
// The names that a node reads: its inputs, and what its subgraphs read of the graphs around them.
std::vector<std::string> NamesRead(const pb::NodeProto& node);
// What a subgraph reads that it does not name itself.
std::vector<std::string> NamesReadAround(const pb::GraphProto& graph);
// How people find a node: its name, or its first output where it has none; with OperatorLabel.
std::string NodeLabel(const pb::NodeProto& node);
// "Einsum", or "QLinearMul of com.microsoft" where the operator is not ONNX's own.
std::string OperatorLabel(const pb::NodeProto& node);
// The --shape flags that these inputs need, with N for each number that the user chooses:
// "--shape batch=N --shape image_2=N".
std::string ShapeFlags(const std::vector<const pb::ValueInfoProto*>& dynamic);
// "\"image\" [batch,3,image_2]"
std::string DynamicInputText(const pb::ValueInfoProto& input);

// One node under conversion.
class NodeReader;
struct Conversion;

// A subgraph under conversion: the names that it bound, with what they meant before.
struct BodyScope {
  const pb::GraphProto* graph = nullptr;
  std::map<std::string, std::optional<ValueId>> before;
};

// What a value of a sequence or optional type has. It is no tensor: no node of a graph reads it.
struct Container {
  bool nothing = false;             // an optional without an element
  std::vector<ValueId> items = {};  // the tensors of a sequence
  // The same along a first dimension, if that is a value; without `items` the length is open.
  ValueId rows = -1;
  // A state in a trip of a loop that a run ends: these are appended, what is before is not known.
  bool appended = false;
  // Of each item whether it is, bool[], where only a run tells: what one way of an If appends.
  std::vector<ValueId> there = {};
};

// The data of large initializers, which their messages have no more.
using Weights = std::map<const pb::TensorProto*, std::shared_ptr<const ConstantData>>;

class Importer {
 public:
  Importer(const OnnxModel& model, const ImportOptions& options);
  absl::StatusOr<Graph> Run();
  // Goes on after errors and adds them to `check`. Tensors in `no_data` have a type but no values.
  // What depends on a value of unknown type is counted, not checked.
  void Check(const std::set<std::string>& no_data, ImportCheck* check);

  // For conversions. Emit infers the types and appends the node; results are named by the caller.
  // If all operands are small constants, the result is a constant: shapes that a model computes
  // are known at import.
  absl::StatusOr<ValueId> Emit(std::string_view op, std::vector<ValueId> inputs, op::Attrs attrs,
                               const std::string& name);
  // Appends a node of a row that computes nothing (OpSpec::control), whatever its operands are.
  absl::StatusOr<ValueId> EmitControl(std::string_view op, std::vector<ValueId> inputs,
                                      op::Attrs attrs, const std::string& name);
  // A number that no other loop of the graph has.
  int64_t NewLoop() { return loops_++; }
  // The variables of sizes so far.
  const std::map<std::string, SizeRange>& size_ranges() const { return graph_.size_ranges; }
  ValueId Constant(const std::string& name, op::TensorType type, std::string bytes);
  ValueId Constant(const std::string& name, op::TensorType type,
                   std::shared_ptr<const ConstantData> data);
  // The constant of a tensor of the model. Inside a subgraph each tensor is one value, however
  // often the subgraph runs.
  absl::StatusOr<ValueId> TensorConstant(const pb::TensorProto& tensor, const std::string& name);
  // Converts the nodes of a subgraph, whose inputs are these values; returns its outputs. It sees
  // the names of the graphs around it. What it binds is forgotten when it ends. Errors:
  // graph.onnx.too_large if subgraphs make more nodes than a model may have of them, or constants
  // of more bytes than a model may have. Results need no such limit: they share the arena.
  // `around`: what some names of the graphs around it are in it.
  absl::StatusOr<std::vector<ValueId>> ImportBody(
      const pb::GraphProto& body, const std::vector<ValueId>& inputs,
      const std::map<std::string, ValueId>& around = {});
  // The value of a name of the graph, or of the initializer of this name.
  absl::StatusOr<ValueId> Lookup(const std::string& name);
  const op::TensorType& TypeOf(ValueId id) const { return graph_.values[id].type; }
  const Value& ValueOf(ValueId id) const { return graph_.values[id]; }
  // The integers of a constant; nullopt when it is not known at import.
  std::optional<std::vector<int64_t>> ConstantInts(ValueId id) const;
  std::optional<double> ConstantScalar(ValueId id) const;
  // Of the elements of a small constant.
  std::optional<NumberRange> RangeOfConstant(ValueId id) const;
  // The shape that the model itself states for a value, or for the result of a chain of elementwise
  // operators that begins with it; nullopt unless all of it is fixed.
  std::optional<std::vector<int64_t>> StatedShape(const std::string& name) const;
  // Names of values of the shape of this one: itself, and what element-wise operators make of it
  // and of scalars.
  std::vector<std::string> OfSameShape(const std::string& name) const;
  bool IsScalar(const std::string& name) const;
  // A size of an output of the node that only a run finds: the number or the input's dimension that
  // the model states, or a variable from 0 to `most`, whose range --shape may narrow. Where nobody
  // knows the largest size it is `presumed`, and graph.onnx.size_bound without that. Who asks for
  // it expects it of what the run finds.
  absl::StatusOr<op::Dim> FoundSize(const std::string& value, int64_t axis,
                                    std::optional<int64_t> most,
                                    std::optional<int64_t> presumed = std::nullopt);
  // A variable for a size that each trip of a loop finds, whose range --shape gives by this name.
  absl::StatusOr<op::Dim> NewSize(const std::string& name, std::optional<int64_t> presumed);
  // The largest dimension of the model's inputs and outputs; nullopt if it does not state them all.
  std::optional<int64_t> LargestEnd() const;
  // A value without elements: an input or a constant. No node reads or makes one; Emit gives a
  // constant instead, and conversions use it as a list.
  bool IsEmpty(ValueId id) const { return TypeOf(id).fixed() && TypeOf(id).elements() == 0; }
  // Integers that are expressions over size variables: what Shape says of open dimensions, and what
  // is computed from it. Such a value is no tensor: no node of a graph reads it.
  ValueId AddDims(const std::string& name, op::TensorType type, std::vector<op::Dim> dims);
  bool IsDims(ValueId id) const { return dims_.count(id) > 0; }
  // A number that the expression does not exceed (or not go below) in the ranges of its variables;
  // nullopt where none is known.
  std::optional<int64_t> Bound(const op::Dim& dim, bool largest) const;
  // Whether one of its variables is a size that may be 0, such as that of what a run finds.
  bool MayBeNothing(const op::Dim& dim) const;
  // A number that no element of an integer tensor exceeds, whatever the inputs are: such as 300 for
  // min(n, 300). nullopt where none is known.
  std::optional<int64_t> LargestElement(ValueId id) const;
  // One number of a list that a run makes, such as [1, h] for an h that it finds: where it comes
  // from, and what it is; nullopt where that is not known at import.
  struct Element {
    ValueId of = -1;
    int64_t index = 0;
  };
  Element ElementOf(ValueId list, int64_t i) const;
  // How many trips a loop makes at most that goes on while `going` holds behind a trip, because it
  // counts: one of the values that a trip turns into the next is `value` + a number, and has to
  // stay below another. nullopt where nothing is known.
  struct Counter {
    ValueId init = -1, value = -1, next = -1;
  };
  std::optional<int64_t> MostTrips(ValueId going, const std::vector<Counter>& values) const;
  // What is repeated along dimensions of 1 to make this value; the value itself where nothing is.
  ValueId BeforeExpand(ValueId id) const;
  std::optional<op::Dim> KnownElement(ValueId list, int64_t i) const;
  // The elements of such a value, or of a constant; nullopt where they are not known at import.
  std::optional<std::vector<op::Dim>> ConstantDims(ValueId id) const;
  // The same as a tensor that the module computes; other values themselves.
  absl::StatusOr<ValueId> DataOf(ValueId id);
  // Notes that a value of bytes has the numbers of a smaller type, or none where that is null.
  void MarkPacked(ValueId id, const support::PackedInteger* type);
  const support::PackedInteger* PackedTypeOf(ValueId id) const;
  // A value that stands for a sequence or for an optional without an element.
  ValueId AddContainer(Container container);
  // Null unless the value stands for one.
  const Container* ContainerOf(ValueId id) const;
  // Refuses runs in which `found`, i64 numbers in one dimension, are not `expected`: sizes that the
  // model states and only data settles.
  struct Expectation {
    ValueId found;
    SizeCheck check;
  };
  void Expect(Expectation expectation) { expectations_.push_back(std::move(expectation)); }
  // Whether nobody has asked this of the same text yet: for checks that many nodes would repeat.
  bool CheckOnce(const std::string& what) { return checked_.insert(what).second; }
  // All so far, those of subgraphs included: an If relaxes what its own ways expect.
  std::vector<Expectation>& expectations() { return expectations_; }
  // What the import has noted so far. Taken back is what it noted since: of a subgraph that was
  // imported to see what it makes.
  struct Noted {
    std::vector<Expectation> expectations;
    std::set<std::string> checked;
  };
  Noted noted() const { return {expectations_, checked_}; }
  void TakeBack(Noted noted) {
    expectations_ = std::move(noted.expectations);
    checked_ = std::move(noted.checked);
  }
  // What ImportBody has made, for its limits.
  struct BodyWork {
    int64_t nodes = 0;  // converted
    int64_t bytes = 0;  // of constants
  };
  BodyWork body_work() const { return body_work_; }
  // Goes back to a number from before; only where the work is known to end all the same.
  void set_body_work(const BodyWork& work) { body_work_ = work; }
  size_t num_nodes() const { return graph_.nodes.size(); }
  const Node& NodeAt(size_t n) const { return graph_.nodes[n]; }
  bool in_subgraph() const { return !scopes_.empty(); }
  int64_t opset() const { return opset_; }
  const CustomOperator* FindCustom(const NodeReader& node) const;
  int64_t max_bytes() const { return options_.max_bytes; }
  bool has_loops() const { return options_.loops; }
  // Whether inputs become state, which is appended to.
  bool keeps_state() const { return options_.known_states || !options_.states.empty(); }

 private:
  friend class NodeReader;
  // The graph, or the subgraph, whose nodes are converted.
  const pb::GraphProto& Scope() const;
  absl::StatusOr<op::Dim> SizeOfRange(const std::string& name,
                                      const std::optional<SizeRange>& range);
  std::optional<SizeRange> RangeGiven(const std::string& own, const std::string& name,
                                      std::optional<int64_t> most);
  absl::Status CheckModel();
  absl::Status ReadInitializers();
  absl::Status BindSizes(const std::string& name, int64_t size, std::string_view origin);
  absl::Status ReadSizes();
  absl::StatusOr<op::TensorType> InputType(const pb::ValueInfoProto& input);
  absl::Status AddInput(const pb::ValueInfoProto& input, op::TensorType type);
  // Makes the name that of the sequence that has the rows of a tensor.
  absl::Status BindSequence(const std::string& name, ValueId rows);
  absl::Status ReadInputs();
  absl::Status CheckOperators();
  void CheckInputs(ImportCheck* check);
  void CheckNodes(ImportCheck* check);
  bool AddStandIn(const std::string& name, const pb::TypeProto& type);
  absl::StatusOr<std::vector<int>> Order();
  absl::Status Convert(const pb::NodeProto& node);
  absl::Status CheckStatedType(const pb::ValueInfoProto& output, ValueId id) const;
  // Marks what a node that only moves elements made of such a value.
  void MarkMoved(const pb::NodeProto& node);
  // Of a sequence: one for each tensor, named NAME.0 and so on; all along a first dimension, named
  // NAME, where only a run tells how many there are.
  absl::Status ReadOutputs();
  absl::Status AddOutput(const pb::ValueInfoProto& output, ValueId id,
                         std::set<std::string>* names);
  absl::Status AddChecks();
  const Node* MakerOf(ValueId id) const;  // null for inputs and constants
  ValueId Append(std::string_view op, std::vector<ValueId> inputs, op::Attrs attrs,
                 op::TensorType type, const std::string& name);
  absl::StatusOr<ValueId> EmitOfEmpty(const op::OpSpec& spec, std::vector<ValueId> inputs,
                                      op::Attrs attrs, const std::string& name);
  // The row of the node's operator, the model's own ones first; null where there is none.
  const Conversion* RowOf(const pb::NodeProto& node) const;
  absl::Status CheckEmpty(const Conversion& row, const pb::NodeProto& node);
  absl::Status CheckOpen(const Conversion& row, const pb::NodeProto& node);
  // The variable of an open dimension of this name; nullopt unless it stays open.
  std::optional<op::Dim> OpenSize(const std::string& name);
  op::Dim AddSize(std::string word, const SizeRange& range);
  // graph.onnx.shape_override names a size that --shape gives and nothing has.
  absl::Status CheckClaimed() const;
  absl::StatusOr<ValueId> EmitOfDims(const op::OpSpec& spec, std::vector<ValueId> inputs,
                                     const op::Attrs& attrs, const std::string& name);
  // The row's result as expressions; nullopt where it is none.
  absl::StatusOr<std::optional<ValueId>> DimsOf(const op::OpSpec& spec,
                                                const std::vector<ValueId>& inputs,
                                                const op::Attrs& attrs, const std::string& name);
  absl::Status CheckTensors(const Conversion& row, const pb::NodeProto& node);
  absl::Status BindBody(const pb::GraphProto& body, const std::vector<ValueId>& inputs);
  absl::StatusOr<ValueId> EmitInF32(std::string_view op, std::vector<ValueId> inputs,
                                    op::Attrs attrs, const std::string& name, ir::DType half);
  absl::Status Bind(const std::string& name, ValueId id);
  // Names a value after the ONNX output if one of the nodes from `first_node` on makes it.
  void GiveOutputName(ValueId id, size_t first_node, const std::string& name);
  std::string FreshName(const std::string& name);
  // The operator's result if its operands are small constants and the numbers are exact.
  std::optional<ValueId> Folded(const op::OpSpec& spec, const std::vector<ValueId>& inputs,
                                const op::Attrs& attrs, const op::TensorType& type,
                                const std::string& name);
  // Gives the value this name; a value that an import step happened to call so gets the old one.
  void TakeName(ValueId id, const std::string& name);

  const pb::ModelProto& model_;
  const Weights& weights_;
  const ImportOptions& options_;
  Graph graph_;
  std::map<std::string, ValueId> values_;                         // ONNX name → value
  std::map<std::string, const pb::TensorProto*> initializers_;    // read when first used
  std::map<std::string, int> used_names_;                         // names of graph_.values
  std::map<std::string, std::pair<int64_t, std::string>> sizes_;  // dimension name → size, origin
  std::map<std::string, std::string> sources_;                    // Graph::sources
  int64_t loops_ = 0;
  BodyWork body_work_;
  std::vector<BodyScope> scopes_;                           // innermost last
  std::map<const pb::TensorProto*, ValueId> body_tensors_;  // TensorConstant
  std::map<ValueId, Container> containers_;
  std::map<ValueId, const support::PackedInteger*> packed_;
  std::map<ValueId, std::vector<op::Dim>> dims_;              // by AddDims
  std::map<ValueId, ValueId> data_of_dims_;                   // by DataOf
  std::map<std::string, op::Dim> input_sizes_, found_sizes_;  // by name
  std::set<std::string> size_words_;                          // of variables
  std::set<std::string> unclaimed_, claimed_;  // sizes given that no input has; those of results
  std::vector<Expectation> expectations_;
  std::set<std::string> checked_;  // CheckOnce
  int64_t opset_ = 0;
  CustomOperators custom_;
  std::set<std::string> unknown_;  // ONNX names of values whose type an error hides; of Check
};

// What a conversion sees of its node: checked access to operands and attributes.
class NodeReader {
 public:
  NodeReader(Importer& importer, const pb::NodeProto& node, std::string label)
      : importer_(importer), node_(node), label_(std::move(label)) {}

  Importer& importer() { return importer_; }
  const std::string& label() const { return label_; }
  int num_inputs() const { return node_.input_size(); }
  bool HasInput(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  absl::StatusOr<ValueId> Input(int i);
  absl::StatusOr<std::vector<int64_t>> InputInts(int i, std::string_view what);
  // The same for numbers that may be expressions over size variables.
  absl::StatusOr<std::vector<op::Dim>> InputDims(int i, std::string_view what);
  absl::StatusOr<int64_t> Int(std::string_view name, int64_t fallback);
  absl::StatusOr<double> Float(std::string_view name, double fallback);
  absl::StatusOr<std::string> String(std::string_view name, std::string_view fallback);
  absl::StatusOr<std::vector<int64_t>> Ints(std::string_view name, std::vector<int64_t> fallback);
  const pb::AttributeProto* Find(std::string_view name) const;
  const auto& attributes() const { return node_.attribute(); }
  const pb::NodeProto& node() const { return node_; }
  const std::string& op_type() const { return node_.op_type(); }
  const std::string& domain() const { return node_.domain(); }
  int num_outputs() const { return node_.output_size(); }
  bool HasOutput(int i) const { return i < node_.output_size() && !node_.output(i).empty(); }
  // Whether the numbers of this input are only known when the model runs.
  bool IsDynamic(int i);
  // What the model states about an output, see Importer::StatedShape.
  std::optional<std::vector<int64_t>> StatedShape(int output = 0) const;
  // Empty where the node has no such output, or gives it no name.
  std::string output_name(int i = 0) const { return HasOutput(i) ? node_.output(i) : ""; }
  // Names the value of an output after the first; nothing where the model does not ask for it.
  absl::Status BindOutput(int i, ValueId id);
  // The error of this node: graph.onnx.<reason>: <node and operator>: <detail>.
  absl::Status Error(std::string_view reason, std::string_view detail) const;

 private:
  absl::StatusOr<const pb::AttributeProto*> Typed(std::string_view name,
                                                  pb::AttributeProto::AttributeType type);
  Importer& importer_;
  const pb::NodeProto& node_;
  const std::string label_;
};

inline constexpr uint32_t kAnyInput = ~0u;

// One conversion: appends nodes and returns the value of the node's first output.
struct Conversion {
  std::string_view onnx;
  absl::StatusOr<ValueId> (*run)(NodeReader& node);
  std::string_view limits = "";  // for people: what of the operator is refused
  // Inputs that may have no elements, a bit each; the highest bit is for all inputs from 31 on. For
  // them the conversion divides by no dimension and looks at no first element.
  uint32_t takes_empty = 0;
  bool takes_containers = false;  // whether inputs may be sequences and optionals
  bool takes_open = false;        // whether dimensions of inputs may be size variables
};
// Whether input `i` may have no elements.
bool TakesEmpty(const Conversion& row, int i);
// Null where the operator of that domain ("" is ONNX's own) has none.
const Conversion* FindConversion(std::string_view onnx_op, std::string_view domain);
OnnxSupport Supported();

}  // namespace tilewright::graph::onnx

namespace tilewright::graph {

struct OnnxModel::Parsed {
  onnx::pb::ModelProto proto;
  onnx::Weights weights;
  // Tensors whose data in other files was asked for and is not there.
  std::vector<std::pair<const onnx::pb::TensorProto*, absl::Status>> not_loaded;
  std::string digest;
  int64_t bytes = 0;
};

}  // namespace tilewright::graph
