// ONNX model → graph: the model, its tensors and the order of its nodes. The operators are in
// onnx_ops.cc.
#include "compiler/onnx/onnx_import.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/graph/dead_checks.h"
#include "compiler/graph/keep_state.h"
#include "compiler/graph/loops.h"
#include "compiler/graph/symbolic_shapes.h"
#include "compiler/ir/numeric.h"
#include "compiler/onnx/onnx_conversions.h"
#include "compiler/onnx/onnx_importer.h"
#include "compiler/op/cast.h"
#include "compiler/op/empty.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using support::Quote;
using support::StrCat;

constexpr int64_t kMaxFolded = 1 << 15;  // elements of a constant that the import computes
constexpr size_t kMaxNamed = 20;         // unsupported operators that one error names

bool IsHalfFloat(ir::DType type) { return type.is_float() && type.bits == 16; }

}  // namespace

// A name that may come from hostile bytes, fit for a line of text.
std::string Printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 64)) out += c > ' ' && c <= '~' ? c : '?';
  return out;
}

std::string NodeLabel(const pb::NodeProto& node) {
  const std::string& name =
      !node.name().empty() || node.output_size() == 0 ? node.name() : node.output(0);
  return StrCat("node ", Quote(name), " (", OperatorLabel(node), ")");
}

std::string OperatorLabel(const pb::NodeProto& node) {
  const std::string domain =
      IsDefaultDomain(node.domain()) ? "" : StrCat(" of ", Printable(node.domain()));
  return Printable(node.op_type()) + domain;
}

absl::StatusOr<Graph> Importer::Run() {
  TW_TRY(CheckModel());
  TW_TRY(custom_.Read(model_));
  TW_TRY(ReadInitializers());
  TW_TRY(ReadInputs());
  TW_TRY(CheckOperators());
  TW_ASSIGN(const std::vector<int> order, Order());
  for (int position : order) {
    const absl::Status status = Convert(model_.graph().node(position));
    if (!status.ok()) return support::WithContext(status, StrCat("opset ", opset_));
  }
  TW_TRY(CheckClaimed());
  TW_TRY(ReadOutputs());
  TW_TRY(AddChecks());
  graph_.sources = std::make_shared<std::map<std::string, std::string>>(std::move(sources_));
  Graph graph = OrderLoops(Compact(DropDeadChecks(graph_)));
  if (IsSymbolic(graph)) return InferShapes(std::move(graph));
  TW_TRY(Verify(graph));
  return graph;
}

absl::Status Importer::CheckModel() {
  if (!model_.has_graph() || model_.graph().output_size() == 0) {
    return Bad("no_graph", "expected a model with a graph that has outputs, found none");
  }
  graph_.name = model_.graph().name();
  for (const auto& import : model_.opset_import()) {
    if (IsDefaultDomain(import.domain())) opset_ = import.version();
  }
  if (opset_ < kOldestOpset || opset_ > kNewestOpset) {
    return Bad("opset", StrCat("expected opset ", kOldestOpset, " to ", kNewestOpset,
                               " of the default domain, found ", opset_));
  }
  if (model_.graph().sparse_initializer_size() > 0) {
    return Bad("sparse", "expected dense initializers, found sparse ones");
  }
  return absl::OkStatus();
}

absl::Status Importer::ReadInitializers() {
  for (const pb::TensorProto& tensor : model_.graph().initializer()) {
    if (tensor.name().empty()) return Bad("initializer", "expected named initializers");
    if (!initializers_.emplace(tensor.name(), &tensor).second) {
      return Bad("duplicate",
                 StrCat("expected unique initializers, found ", Quote(tensor.name()), " twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status Importer::CheckOperators() {
  std::vector<std::string> unknown;
  ForEachNode(model_.graph(), [&](const pb::NodeProto& node) {
    if (RowOf(node) == nullptr) unknown.push_back(NodeLabel(node));
  });
  if (unknown.empty()) return absl::OkStatus();
  const size_t total = unknown.size();
  if (total > kMaxNamed) unknown.resize(kMaxNamed);
  return support::Unimplemented(
      kUnsupportedOperator,
      StrCat("expected supported operators, found ", total, " others at opset ", opset_, ": ",
             support::Join(unknown, ", "), total > kMaxNamed ? ", ..." : ""));
}

// Positions of the nodes so that producers come first. ONNX demands that order; files that break it
// are sorted, stable by position, and cycles are refused.
absl::StatusOr<std::vector<int>> Importer::Order() {
  const auto& nodes = model_.graph().node();
  std::map<std::string, int> producer;
  for (int n = 0; n < nodes.size(); ++n) {
    if (nodes[n].output_size() == 0) {
      return Bad("outputs", StrCat(NodeLabel(nodes[n]), ": expected outputs, found none"));
    }
    for (const std::string& name : nodes[n].output()) {
      if (name.empty()) continue;
      if (values_.count(name) > 0 || initializers_.count(name) > 0 ||
          !producer.emplace(name, n).second) {
        return Bad("duplicate", StrCat(NodeLabel(nodes[n]), ": expected a new output name, found ",
                                       Quote(name), " a second time"));
      }
    }
  }
  std::vector<int> missing(nodes.size(), 0);
  std::vector<std::vector<int>> readers(nodes.size());
  std::set<int> ready;
  for (int n = 0; n < nodes.size(); ++n) {
    for (const std::string& name : NamesRead(nodes[n])) {
      auto it = producer.find(name);
      if (it == producer.end()) continue;
      readers[it->second].push_back(n);
      ++missing[n];
    }
    if (missing[n] == 0) ready.insert(n);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int n = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(n);
    for (int reader : readers[n]) {
      if (--missing[reader] == 0) ready.insert(reader);
    }
  }
  if (static_cast<int>(order.size()) != nodes.size()) {
    const int n =
        static_cast<int>(std::find_if(missing.begin(), missing.end(), [](int m) { return m > 0; }) -
                         missing.begin());
    return Bad("cycle", StrCat("expected an acyclic graph, found ", NodeLabel(nodes[n]),
                               " on or behind a cycle"));
  }
  return order;
}

const Conversion* Importer::RowOf(const pb::NodeProto& node) const {
  static constexpr Conversion kCustom = {.onnx = "", .run = ImportCustom, .takes_open = true};
  if (custom_.Find(node) != nullptr) return &kCustom;
  return FindConversion(node.op_type(), node.domain());
}

const CustomOperator* Importer::FindCustom(const NodeReader& node) const {
  return custom_.Find(node.node());
}

absl::Status Importer::CheckEmpty(const Conversion& row, const pb::NodeProto& node) {
  for (int i = 0; i < node.input_size(); ++i) {
    auto it = values_.find(node.input(i));
    if (it == values_.end() || !IsEmpty(it->second) || TakesEmpty(row, i)) continue;
    return Bad("empty_tensor",
               StrCat(NodeLabel(node), ": expected at least one element, found none in ",
                      Quote(node.input(i)), ", ", op::ToText(TypeOf(it->second))));
  }
  return absl::OkStatus();
}

absl::Status Importer::Convert(const pb::NodeProto& node) {
  const size_t first = graph_.nodes.size();
  NodeReader reader(*this, node, NodeLabel(node));
  const Conversion* row = RowOf(node);
  if (row == nullptr) {
    return support::Unimplemented(kUnsupportedOperator,
                                  StrCat("expected a supported operator, found ", NodeLabel(node)));
  }
  TW_TRY(CheckTensors(*row, node));
  TW_TRY(CheckEmpty(*row, node));
  TW_TRY(CheckOpen(*row, node));
  absl::StatusOr<ValueId> result = row->run(reader);
  if (!result.ok()) {
    const std::string label = NodeLabel(node);
    if (support::Detail(result.status()).find(label) != std::string::npos) return result.status();
    return support::WithContext(result.status(), label);
  }
  GiveOutputName(*result, first, node.output(0));
  const std::string& source = node.name().empty() ? node.output(0) : node.name();
  // What a subgraph made has the source of its own node.
  for (size_t i = first; i < graph_.nodes.size(); ++i) {
    sources_.try_emplace(graph_.nodes[i].name, source);
  }
  // Further outputs (a dropout mask, batch statistics) have no meaning at inference; a model that
  // reads one gets `missing_input` there.
  if (node.output(0).empty()) return absl::OkStatus();
  TW_TRY(Bind(node.output(0), *result));
  MarkMoved(node);
  return absl::OkStatus();
}

void Importer::MarkMoved(const pb::NodeProto& node) {
  static constexpr std::string_view kMoves[] = {
      "Concat",   "DepthToSpace",    "Expand",    "Flatten", "Gather", "GatherElements",
      "GatherND", "Identity",        "Pad",       "Reshape", "Slice",  "ReverseSequence",
      "Scatter",  "ScatterElements", "ScatterND", "Squeeze", "Split",  "SpaceToDepth",
      "Tile",     "Transpose",       "Unsqueeze"};
  if (packed_.empty() || node.input_size() == 0 || !IsDefaultDomain(node.domain()) ||
      std::ranges::find(kMoves, std::string_view(node.op_type())) == std::end(kMoves)) {
    return;
  }
  const auto from = values_.find(node.input(0));
  for (const std::string& name : node.output()) {
    const auto to = values_.find(name);
    if (from == values_.end() || to == values_.end()) continue;
    MarkPacked(to->second, PackedTypeOf(from->second));
  }
}

absl::Status Importer::AddChecks() {
  for (const auto& [found, check] : expectations_) {
    if (const std::optional<std::vector<int64_t>> known = ConstantInts(found)) {
      if (std::vector<op::Dim>(known->begin(), known->end()) == check.expected) continue;
      return Bad("stated_shape",
                 StrCat(check.what, ": the model states the sizes ", op::DimsText(check.expected),
                        ", its operands make [", support::Join(*known, ","), "]"));
    }
    TW_ASSIGN(const ValueId id,
              Emit("identity", {found}, {}, StrCat(ValueOf(found).name, "_check")));
    graph_.outputs.push_back(id);
    graph_.checks.push_back(check);
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueId> Importer::Lookup(const std::string& name) {
  auto it = values_.find(name);
  if (it != values_.end()) return it->second;
  auto tensor = initializers_.find(name);
  if (tensor == initializers_.end()) {
    return Bad("missing_input",
               StrCat("expected an input, an initializer or a node's output named ", Quote(name),
                      ", found none"));
  }
  TW_ASSIGN(const ValueId id, TensorConstant(*tensor->second, name));
  values_[name] = id;
  return id;
}

absl::Status Importer::Bind(const std::string& name, ValueId id) {
  const auto known = values_.find(name);
  if (!scopes_.empty()) {
    // A subgraph may hide a name of the graphs around it.
    const std::optional<ValueId> old =
        known == values_.end() ? std::nullopt : std::optional<ValueId>(known->second);
    if (scopes_.back().before.try_emplace(name, old).second) {
      values_[name] = id;
      return absl::OkStatus();
    }
  }
  if (!values_.emplace(name, id).second) {
    return Bad("duplicate", StrCat("expected a new name, found ", Quote(name), " a second time"));
  }
  return absl::OkStatus();
}

void Importer::TakeName(ValueId id, const std::string& name) {
  for (Value& value : graph_.values) {
    if (value.name == name) std::swap(value.name, graph_.values[id].name);
  }
}

void Importer::GiveOutputName(ValueId id, size_t first_node, const std::string& name) {
  if (name.empty() || graph_.values[id].name == name || used_names_.count(name) > 0) return;
  for (size_t i = first_node; i < graph_.nodes.size(); ++i) {
    if (graph_.nodes[i].outputs[0] != id) continue;
    used_names_.emplace(name, 0);
    graph_.values[id].name = graph_.nodes[i].name = name;
  }
}

std::string Importer::FreshName(const std::string& name) {
  std::string candidate = name.empty() ? "value" : name;
  while (!used_names_.emplace(candidate, 0).second) {
    candidate = StrCat(name.empty() ? "value" : name, ".", ++used_names_[name]);
  }
  return candidate;
}

absl::StatusOr<ValueId> Importer::EmitInF32(std::string_view op_name, std::vector<ValueId> inputs,
                                            op::Attrs attrs, const std::string& name,
                                            ir::DType half) {
  for (ValueId& id : inputs) {
    const ir::DType type = TypeOf(id).dtype;
    if (!IsHalfFloat(type)) continue;
    if (type != half) {
      return Bad("element_type", StrCat("expected operands of one type, found ", ir::TypeName(half),
                                        " and ", ir::TypeName(type)));
    }
    TW_ASSIGN(id, Emit("cast", {id}, {{"dtype", ir::TypeName(ir::kF32)}}, StrCat(name, "_wide")));
  }
  TW_ASSIGN(const ValueId result,
            Emit(op_name, std::move(inputs), std::move(attrs), StrCat(name, "_f32")));
  if (TypeOf(result).dtype != ir::kF32) return result;
  return Emit("cast", {result},
              {{"dtype", ir::TypeName(half)}, {std::string(op::kImplied), int64_t{1}}}, name);
}

absl::StatusOr<ValueId> Importer::Emit(std::string_view op_name, std::vector<ValueId> inputs,
                                       op::Attrs attrs, const std::string& name) {
  const op::OpSpec* spec = op::FindOp(op_name);
  TW_CHECK(spec != nullptr) << op_name;
  if (std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return ContainerOf(id); })) {
    return Bad("type", "expected tensors, found a sequence or an optional");
  }
  if (std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return IsDims(id); })) {
    return EmitOfDims(*spec, inputs, attrs, name);
  }
  if (std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return IsEmpty(id); })) {
    return EmitOfEmpty(*spec, std::move(inputs), std::move(attrs), name);
  }
  const auto half = std::find_if(inputs.begin(), inputs.end(),
                                 [&](ValueId id) { return IsHalfFloat(TypeOf(id).dtype); });
  // Floats of 16 bits are moved and converted; all else computes in f32 and rounds its result.
  if (half != inputs.end() && spec->moves == 0 && !spec->alias && op_name != "cast") {
    return EmitInF32(op_name, std::move(inputs), std::move(attrs), name, TypeOf(*half).dtype);
  }
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) types.push_back(TypeOf(id));
  op::DimEqualities equal;  // graph::InferShapes settles them when all nodes are there
  TW_ASSIGN(std::vector<op::TensorType> results, op::InferTypes(*spec, types, attrs, &equal));
  TW_CHECK(results.size() == 1) << op_name;
  if (results[0].fixed() && results[0].bytes() > options_.max_bytes) {
    return Bad("too_large", StrCat("expected a result of at most ", options_.max_bytes,
                                   " bytes, found ", op::ToText(results[0])));
  }
  if (std::optional<ValueId> folded = Folded(*spec, inputs, attrs, results[0], name)) {
    return *folded;
  }
  return Append(op_name, std::move(inputs), std::move(attrs), std::move(results[0]), name);
}

absl::StatusOr<ValueId> Importer::EmitControl(std::string_view op_name, std::vector<ValueId> inputs,
                                              op::Attrs attrs, const std::string& name) {
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) types.push_back(TypeOf(id));
  op::DimEqualities equal;  // as in Emit
  TW_ASSIGN(std::vector<op::TensorType> results,
            op::InferTypes(*op::FindOp(op_name), types, attrs, &equal));
  if (results[0].fixed() && results[0].bytes() > options_.max_bytes) {
    return Bad("too_large", StrCat("expected a result of at most ", options_.max_bytes,
                                   " bytes, found ", op::ToText(results[0])));
  }
  return Append(op_name, std::move(inputs), std::move(attrs), std::move(results[0]), name);
}

ValueId Importer::Append(std::string_view op_name, std::vector<ValueId> inputs, op::Attrs attrs,
                         op::TensorType type, const std::string& name) {
  Value value;
  value.name = FreshName(name);
  value.type = std::move(type);
  Node node;
  node.name = value.name;
  node.op = std::string(op_name);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  graph_.values.push_back(std::move(value));
  const ValueId id = static_cast<ValueId>(graph_.values.size()) - 1;
  node.outputs = {id};
  graph_.nodes.push_back(std::move(node));
  return id;
}

// What follows from the types alone: a constant.
absl::StatusOr<ValueId> Importer::EmitOfEmpty(const op::OpSpec& spec, std::vector<ValueId> inputs,
                                              op::Attrs attrs, const std::string& name) {
  if (spec.name == "concat") {
    std::vector<ValueId> parts;
    for (ValueId id : inputs) {
      if (!IsEmpty(id)) parts.push_back(id);
    }
    if (!parts.empty()) return Emit(spec.name, std::move(parts), std::move(attrs), name);
  }
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) types.push_back(TypeOf(id));
  TW_ASSIGN(op::RefTensor result, op::ResultOfEmpty(spec, types, attrs));
  if (result.values.empty()) return Constant(name, result.type, "");
  std::vector<int64_t> shape = std::exchange(result.type, {result.type.dtype, {}}).sizes();
  const ValueId element = Constant(StrCat(name, "_element"), result.type, op::ToBytes(result));
  return Emit("expand", {element}, {{"shape", std::move(shape)}}, name);
}

std::optional<ValueId> Importer::Folded(const op::OpSpec& spec, const std::vector<ValueId>& inputs,
                                        const op::Attrs& attrs, const op::TensorType& type,
                                        const std::string& name) {
  // Constants are a model's shapes and scales. What costs more is computed when the module runs,
  // whatever a definition of the model's own says.
  constexpr double kMaxFoldedFlops = 1e8;
  // The passes want quantised constants as they are.
  if (spec.name == "quantize" || spec.name == "dequantize") return std::nullopt;
  if (!type.fixed() || IsOpen(attrs) || type.elements() > kMaxFolded) return std::nullopt;
  // References compute in double: integers beyond 2^53 only survive where they are moved.
  constexpr double kExact = int64_t{1} << 53;
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) {
    if (ValueOf(id).constant == nullptr) return std::nullopt;
    types.push_back(TypeOf(id));
  }
  const double flops = op::Flops(spec, types, {&type, 1}, attrs);
  if (flops > kMaxFoldedFlops) return std::nullopt;
  const bool moves = flops == 0;
  auto exact = [&](const op::RefTensor& tensor) {
    return tensor.type.dtype.is_float() || tensor.type.dtype.bits < 64 || moves ||
           std::all_of(
               tensor.values.begin(), tensor.values.end(),
               [](double v) { return v >= -kExact && v <= kExact; });
  };
  std::vector<op::RefTensor> operands;
  for (ValueId id : inputs) {
    const Value& value = graph_.values[id];
    if (value.constant == nullptr || value.type.elements() > kMaxFolded) return std::nullopt;
    absl::StatusOr<op::RefTensor> operand = op::FromBytes(value.type, value.constant->view());
    // An integer that a double does not hold would change on its way.
    if (!operand.ok() || !exact(*operand) || op::ToBytes(*operand) != value.constant->view()) {
      return std::nullopt;
    }
    operands.push_back(*std::move(operand));
  }
  absl::StatusOr<std::vector<op::RefTensor>> results = op::Reference(spec, operands, attrs);
  if (!results.ok() || !exact((*results)[0])) return std::nullopt;
  return Constant(name, type, op::ToBytes((*results)[0]));
}

ValueId Importer::Constant(const std::string& name, op::TensorType type, std::string bytes) {
  return Constant(name, std::move(type), std::make_shared<ConstantData>(std::move(bytes)));
}

ValueId Importer::Constant(const std::string& name, op::TensorType type,
                           std::shared_ptr<const ConstantData> data) {
  if (!scopes_.empty()) body_work_.bytes += data->size();
  Value value;
  value.name = FreshName(name);
  value.type = std::move(type);
  value.constant = std::move(data);
  graph_.values.push_back(std::move(value));
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

std::optional<std::vector<int64_t>> Importer::ConstantInts(ValueId id) const {
  const Value& value = graph_.values[id];
  if (!value.type.dtype.is_int()) return std::nullopt;
  if (IsEmpty(id)) return std::vector<int64_t>{};
  if (value.constant == nullptr) return std::nullopt;
  absl::StatusOr<op::RefTensor> tensor = op::FromBytes(value.type, value.constant->view());
  if (!tensor.ok()) return std::nullopt;
  return op::IntegersOf(*tensor);
}

std::optional<double> Importer::ConstantScalar(ValueId id) const {
  const Value& value = graph_.values[id];
  if (value.constant == nullptr || value.type.elements() != 1) return std::nullopt;
  absl::StatusOr<op::RefTensor> tensor = op::FromBytes(value.type, value.constant->view());
  if (!tensor.ok()) return std::nullopt;
  return tensor->values[0];
}

Importer::Importer(const OnnxModel& model, const ImportOptions& options)
    : model_(model.parsed().proto), weights_(model.parsed().weights), options_(options) {}

}  // namespace onnx

absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  TW_ASSIGN(const OnnxModel model, OnnxModel::Parse(bytes, options.max_bytes));
  return ImportOnnx(model, options);
}

absl::StatusOr<Graph> ImportOnnx(const OnnxModel& model, const ImportOptions& options) {
  TW_ASSIGN(Graph graph, onnx::Importer(model, options).Run());
  std::map<std::string, std::string> states = options.states;
  if (options.known_states) {
    states.merge(KnownStates(graph));
    if (states.empty()) {
      return support::InvalidArgument(
          "graph.state.name",
          "expected inputs and outputs named as exporters name a cache (past_key_values.0.key and "
          "present.0.key), found none; give the pairs: --state PAST=PRESENT");
    }
  }
  if (states.empty()) return graph;
  return KeepState(std::move(graph), states);
}

}  // namespace tilewright::graph
