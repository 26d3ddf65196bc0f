// ONNX model → graph: the model, its tensors and the order of its nodes. The operators are in
// onnx_ops.cc.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <climits>
#include <set>
#include <utility>

#include "compiler/graph/onnx_importer.h"
#include "compiler/ir/numeric.h"
#include "compiler/op/empty.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using support::Quote;
using support::StrCat;

constexpr int64_t kMaxFolded = 1 << 14;  // elements of a constant that the import computes
constexpr size_t kMaxNamed = 20;         // unsupported operators that one error names

bool IsHalfFloat(ir::DType type) { return type.is_float() && type.bits == 16; }
bool IsDefaultDomain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

// A name that may come from hostile bytes, fit for a line of text.
std::string Printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 64)) out += c > ' ' && c <= '~' ? c : '?';
  return out;
}

// Whether the size of this dimension is stated. Some exporters (Paddle) write -1 for one that is
// not.
bool IsFixed(const pb::TensorShapeProto::Dimension& dim) {
  return dim.has_dim_value() && dim.dim_value() >= 0;
}

// Some exporters (Paddle) name each size they do not know "?": two of these are not one size.
void ForgetUnknownSizes(pb::GraphProto& graph) {
  for (pb::ValueInfoProto& input : *graph.mutable_input()) {
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape()) continue;
    for (auto& dim : *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
      if (dim.dim_param() == "?") dim.clear_dim_param();
    }
  }
}

// Whether the model states every size of its inputs.
bool InputsAreFixed(const pb::GraphProto& graph) {
  return std::all_of(graph.input().begin(), graph.input().end(), [](const auto& input) {
    const auto& shape = input.type().tensor_type().shape();
    return input.type().tensor_type().has_shape() &&
           std::all_of(shape.dim().begin(), shape.dim().end(), IsFixed);
  });
}

}  // namespace

std::string NodeLabel(const pb::NodeProto& node) {
  const std::string& name =
      !node.name().empty() || node.output_size() == 0 ? node.name() : node.output(0);
  return StrCat("node ", Quote(name), " (", Printable(node.op_type()), ")");
}

std::string OperatorLabel(const pb::NodeProto& node) {
  const std::string domain =
      IsDefaultDomain(node.domain()) ? "" : StrCat(" of ", Printable(node.domain()));
  return Printable(node.op_type()) + domain;
}

std::string DynamicInputText(const pb::ValueInfoProto& input) {
  const auto& tensor = input.type().tensor_type();
  if (!tensor.has_shape()) return Quote(input.name()) + " of unknown rank";
  std::vector<std::string> dims;
  for (const auto& dim : tensor.shape().dim()) {
    dims.push_back(IsFixed(dim)              ? StrCat(dim.dim_value())
                   : dim.dim_param().empty() ? "?"
                                             : Printable(dim.dim_param()));
  }
  return StrCat(Quote(input.name()), " [", support::Join(dims, ","), "]");
}

std::string ShapeFlags(const std::vector<const pb::ValueInfoProto*>& dynamic) {
  std::set<std::string> flags;
  for (const pb::ValueInfoProto* input : dynamic) {
    const auto& dims = input->type().tensor_type().shape().dim();
    const bool all_named = !dims.empty() && std::all_of(dims.begin(), dims.end(), [](auto& dim) {
      return IsFixed(dim) || !dim.dim_param().empty();
    });
    std::vector<std::string> sizes;
    for (const auto& dim : dims) {
      if (all_named && !IsFixed(dim)) flags.insert(dim.dim_param() + "=N");
      sizes.push_back(IsFixed(dim) ? StrCat(dim.dim_value()) : "N");
    }
    if (all_named) continue;
    flags.insert(StrCat(input->name(), "=", sizes.empty() ? "N..." : support::Join(sizes, "x")));
  }
  std::string text;
  for (const std::string& flag : flags) {
    const bool plain = flag.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789_.:/=-") == std::string::npos;
    text += StrCat(text.empty() ? "" : " ", "--shape ", plain ? flag : "'" + flag + "'");
  }
  return text;
}

absl::StatusOr<Graph> Importer::Run() {
  TW_TRY(CheckModel());
  TW_TRY(ReadInitializers());
  TW_TRY(ReadInputs());
  TW_TRY(CheckOperators());
  TW_ASSIGN(const std::vector<int> order, Order());
  for (int position : order) TW_TRY(Convert(model_.graph().node(position)));
  TW_TRY(ReadOutputs());
  TW_TRY(AddChecks());
  graph_.sources = std::make_shared<std::map<std::string, std::string>>(std::move(sources_));
  Graph graph = Compact(graph_);
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

// A dimension with a name has one size everywhere: what a given shape says of it holds for all.
absl::Status Importer::BindSizes(const std::string& name, int64_t size, std::string_view origin) {
  auto [it, fresh] = sizes_.try_emplace(name, size, origin);
  if (fresh || it->second.first == size) return absl::OkStatus();
  return Bad("size_conflict",
             StrCat("expected one size of dimension ", Quote(name), ", found ", it->second.first,
                    " from ", it->second.second, " and ", size, " from ", origin));
}

absl::Status Importer::ReadSizes() {
  std::set<std::string> inputs, named;
  for (const pb::ValueInfoProto& input : model_.graph().input()) {
    if (initializers_.count(input.name()) > 0) continue;
    inputs.insert(input.name());
    const auto& dims = input.type().tensor_type().shape().dim();
    for (const auto& dim : dims) {
      if (!dim.dim_param().empty()) named.insert(dim.dim_param());
    }
    auto given = options_.shapes.find(input.name());
    if (given == options_.shapes.end()) continue;
    const size_t rank = std::min<size_t>(given->second.size(), static_cast<size_t>(dims.size()));
    for (size_t d = 0; d < rank; ++d) {
      const std::string& name = dims[static_cast<int>(d)].dim_param();
      if (name.empty()) continue;
      TW_TRY(BindSizes(name, given->second[d], StrCat("the shape of ", Quote(input.name()))));
    }
  }
  for (const auto& [name, range] : options_.open) {
    if (named.count(name) > 0 && range.min >= 1 && range.max >= range.min) continue;
    return Bad("shape_override",
               StrCat("expected a dimension of an input and a range of sizes from 1 on, found ",
                      Quote(name), " in ", range.min, "..", range.max));
  }
  for (const auto& [name, shape] : options_.shapes) {
    if (inputs.count(name) > 0) continue;
    if (named.count(name) == 0 || shape.size() != 1) {
      return Bad(
          "shape_override",
          StrCat("expected the names of inputs, or of one dimension of them, found ", Quote(name)));
    }
    TW_TRY(BindSizes(name, shape[0], "the size given for it"));
  }
  return absl::OkStatus();
}

// The type of an input: its own fixed dimensions, then the shape given for it, then the sizes
// known.
absl::StatusOr<op::TensorType> Importer::InputType(const pb::ValueInfoProto& input) {
  if (!input.type().has_tensor_type()) {
    return Bad("input_type", "expected a tensor, found another type");
  }
  const auto& tensor = input.type().tensor_type();
  TW_ASSIGN(const ir::DType dtype, ElementType(tensor.elem_type()));
  op::TensorType type{dtype, {}};
  auto given = options_.shapes.find(input.name());
  const bool has_given = given != options_.shapes.end();
  if (has_given) type = {type.dtype, given->second};
  if (has_given && tensor.has_shape() &&
      static_cast<int>(given->second.size()) != tensor.shape().dim_size()) {
    return Bad("shape_override", StrCat("expected ", tensor.shape().dim_size(),
                                        " dimensions, found ", given->second.size()));
  }
  if (!has_given && !tensor.has_shape()) return Bad("symbolic_shape", DynamicInputText(input));
  for (int d = 0; d < tensor.shape().dim_size(); ++d) {
    const auto& dim = tensor.shape().dim(d);
    if (has_given) {
      if (!IsFixed(dim) || dim.dim_value() == type.size(d)) continue;
      return Bad("shape_override", StrCat("expected dimension ", d, " to be ", dim.dim_value(),
                                          " as in the model, found ", type.size(d)));
    }
    auto known = sizes_.find(dim.dim_param());
    if (IsFixed(dim)) {
      type.shape.push_back(dim.dim_value());
    } else if (const std::optional<op::Dim> open = OpenSize(dim.dim_param())) {
      type.shape.push_back(*open);
    } else if (!dim.dim_param().empty() && known != sizes_.end()) {
      type.shape.push_back(known->second.first);
    } else {
      return Bad("symbolic_shape", DynamicInputText(input));
    }
  }
  TW_TRY(op::CheckShape(type));
  if (type.fixed() && type.bytes() > options_.max_bytes) {
    return Bad("too_large",
               StrCat("expected at most ", options_.max_bytes, " bytes, found ", op::ToText(type)));
  }
  return type;
}

absl::Status Importer::AddInput(const pb::ValueInfoProto& input, op::TensorType type) {
  Value value;
  value.name = FreshName(input.name());
  value.type = std::move(type);
  graph_.values.push_back(std::move(value));
  const ValueId id = static_cast<ValueId>(graph_.values.size()) - 1;
  TW_TRY(Bind(input.name(), id));
  graph_.inputs.push_back(id);
  return absl::OkStatus();
}

absl::Status Importer::ReadInputs() {
  TW_TRY(ReadSizes());
  std::vector<const pb::ValueInfoProto*> dynamic;
  std::vector<std::string> texts;
  for (const pb::ValueInfoProto& input : model_.graph().input()) {
    if (initializers_.count(input.name()) > 0) continue;  // a default value: bound to it
    absl::StatusOr<op::TensorType> type = InputType(input);
    if (support::Slug(type.status()) == kSymbolicShape) {
      dynamic.push_back(&input);
      texts.push_back(DynamicInputText(input));
      continue;
    }
    if (!type.ok()) {
      return support::WithContext(type.status(), StrCat("input ", Quote(input.name())));
    }
    TW_TRY(AddInput(input, *std::move(type)));
  }
  if (dynamic.empty()) return absl::OkStatus();
  return Bad("symbolic_shape",
             StrCat("expected inputs of fixed shape, found ", dynamic.size(),
                    dynamic.size() == 1 ? " other: " : " others: ", support::Join(texts, ", "),
                    "; give a number for each N: ", ShapeFlags(dynamic)));
}

absl::Status Importer::CheckOperators() {
  std::vector<std::string> unknown;
  ForEachNode(model_.graph(), [&](const pb::NodeProto& node) {
    if (FindConversion(node.op_type(), node.domain()) != nullptr) return;
    const std::string domain =
        IsDefaultDomain(node.domain()) ? "" : StrCat(" of ", Printable(node.domain()));
    unknown.push_back(StrCat(NodeLabel(node), domain));
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
  const Conversion* row = FindConversion(node.op_type(), node.domain());
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
  return Bind(node.output(0), *result);
}

// The type that the model states for an output. Where the model leaves sizes of its inputs open, the
// sizes of its outputs are often those of the run that exported it, and say nothing of this one.
absl::Status Importer::CheckStatedType(const pb::ValueInfoProto& output,
                                       const op::TensorType& type) const {
  if (!output.type().has_tensor_type()) return absl::OkStatus();
  const auto& stated = output.type().tensor_type();
  TW_ASSIGN(const ir::DType dtype, ElementType(stated.elem_type()));
  bool same = dtype == type.dtype;
  if (stated.has_shape()) {
    same = same && stated.shape().dim_size() == static_cast<int>(type.shape.size());
    const bool sizes_count = same && InputsAreFixed(model_.graph());
    for (int d = 0; sizes_count && d < stated.shape().dim_size(); ++d) {
      const auto& dim = stated.shape().dim(d);
      same = same && (!IsFixed(dim) || type.shape[d] == dim.dim_value());
    }
  }
  if (same) return absl::OkStatus();
  return Bad("output_type",
             StrCat("output ", Quote(output.name()),
                    ": expected the type that the model states, found ", op::ToText(type)));
}

absl::Status Importer::ReadOutputs() {
  std::set<std::string> names;
  for (const pb::ValueInfoProto& output : model_.graph().output()) {
    const std::string what = StrCat("output ", Quote(output.name()));
    if (!names.insert(output.name()).second) {
      return Bad("duplicate", StrCat("expected unique outputs, found ", what, " twice"));
    }
    TW_ASSIGN(ValueId id, Lookup(output.name()));
    if (ContainerOf(id) != nullptr) {
      return Bad("output_type",
                 StrCat(what, ": expected a tensor, found a sequence or an optional"));
    }
    if (IsDims(id)) {
      return support::Unimplemented(
          "graph.onnx.open_size",
          StrCat(what, ": expected data, found sizes of inputs, ", op::DimsText(dims_.at(id)),
                 "; give numbers instead of ranges: --shape NAME=N"));
    }
    const op::TensorType type = TypeOf(id);
    TW_TRY(CheckStatedType(output, type));
    // The graph's outputs carry the model's names and are values of their own.
    if (graph_.values[id].name != output.name()) {
      TW_ASSIGN(id, Emit("identity", {id}, {}, output.name()));
    }
    TakeName(id, output.name());
    graph_.outputs.push_back(id);
  }
  return absl::OkStatus();
}

absl::Status Importer::AddChecks() {
  for (const auto& [found, check] : expectations_) {
    if (const std::optional<std::vector<int64_t>> known = ConstantInts(found)) {
      if (*known == check.expected) continue;
      return Bad("stated_shape", StrCat(check.what, ": the model states the sizes [",
                                        support::Join(check.expected, ","),
                                        "], its operands make [", support::Join(*known, ","), "]"));
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
  const auto cast = [&](ValueId id, ir::DType type, const std::string& result) {
    return Emit("cast", {id}, {{"dtype", ir::TypeName(type)}}, result);
  };
  for (ValueId& id : inputs) {
    const ir::DType type = TypeOf(id).dtype;
    if (!IsHalfFloat(type)) continue;
    if (type != half) {
      return Bad("element_type", StrCat("expected operands of one type, found ", ir::TypeName(half),
                                        " and ", ir::TypeName(type)));
    }
    TW_ASSIGN(id, cast(id, ir::kF32, StrCat(name, "_wide")));
  }
  TW_ASSIGN(const ValueId result,
            Emit(op_name, std::move(inputs), std::move(attrs), StrCat(name, "_f32")));
  if (TypeOf(result).dtype != ir::kF32) return result;
  return cast(result, half, name);
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
  if (half != inputs.end() && spec->moves == 0 && op_name != "cast") {
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
  Value value;
  value.name = FreshName(name);
  value.type = std::move(results[0]);
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
  // The passes want quantised constants as they are.
  if (spec.name == "quantize" || spec.name == "dequantize" || !type.fixed()) return std::nullopt;
  if (type.elements() > kMaxFolded) return std::nullopt;
  // References compute in double: integers beyond 2^53 only survive where they are moved.
  constexpr double kExact = int64_t{1} << 53;
  std::vector<op::TensorType> types;
  for (ValueId id : inputs) {
    if (ValueOf(id).constant == nullptr) return std::nullopt;
    types.push_back(TypeOf(id));
  }
  const bool moves = op::Flops(spec, types, {&type, 1}, attrs) == 0;
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

namespace {

// Operators of one operand, or of another that counts for its type only, that keep its shape.
bool KeepsShape(const pb::NodeProto& node) {
  constexpr std::string_view kOps[] = {"Abs", "Cast",       "CastLike", "Exp",  "Identity",
                                       "Log", "Reciprocal", "Relu",     "Sqrt", "Softmax"};
  return std::find(std::begin(kOps), std::end(kOps), node.op_type()) != std::end(kOps);
}

std::optional<std::vector<int64_t>> ShapeIn(const pb::GraphProto& graph, const std::string& name) {
  for (const auto* values : {&graph.output(), &graph.value_info()}) {
    for (const pb::ValueInfoProto& value : *values) {
      if (value.name() != name || !value.type().tensor_type().has_shape()) continue;
      std::vector<int64_t> shape;
      for (const auto& dim : value.type().tensor_type().shape().dim()) {
        if (!IsFixed(dim)) return std::nullopt;
        shape.push_back(dim.dim_value());
      }
      return shape;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<int64_t>> Importer::StatedShape(const std::string& name) const {
  constexpr int kMaxChain = 8;
  const pb::GraphProto& graph = scopes_.empty() ? model_.graph() : *scopes_.back().graph;
  std::string at = name;
  for (int step = 0; step < kMaxChain; ++step) {
    std::optional<std::vector<int64_t>> shape = ShapeIn(graph, at);
    if (shape) return shape;
    const auto next =
        std::find_if(graph.node().begin(), graph.node().end(), [&](const pb::NodeProto& node) {
          return node.input_size() > 0 && node.input(0) == at && node.output_size() > 0 &&
                 IsDefaultDomain(node.domain()) && KeepsShape(node);
        });
    if (next == graph.node().end()) return std::nullopt;
    at = next->output(0);
  }
  return std::nullopt;
}

ValueId Importer::Constant(const std::string& name, op::TensorType type, std::string_view bytes) {
  Value value;
  value.name = FreshName(name);
  value.type = std::move(type);
  auto data = std::make_shared<ConstantData>();
  data->bytes.assign(bytes.begin(), bytes.end());
  value.constant = std::move(data);
  graph_.values.push_back(std::move(value));
  if (!scopes_.empty()) body_bytes_ += static_cast<int64_t>(bytes.size());
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

absl::StatusOr<pb::ModelProto> ParseModel(std::string_view bytes, const ImportOptions& options) {
  const int64_t limit = std::min<int64_t>(options.max_bytes, INT_MAX);
  if (static_cast<int64_t>(bytes.size()) > limit) {
    return Bad("too_large",
               StrCat("expected a model of at most ", limit, " bytes, found ", bytes.size()));
  }
  pb::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(INT_MAX);
  if (bytes.empty() || !model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return Bad("not_onnx", StrCat("expected an ONNX model, found ", bytes.size(),
                                  " bytes that are none or a part of one"));
  }
  if (model.has_graph()) ForgetUnknownSizes(*model.mutable_graph());
  return model;
}

}  // namespace onnx

absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  TW_ASSIGN(const onnx::pb::ModelProto model, onnx::ParseModel(bytes, options));
  return onnx::Importer(model, options).Run();
}

}  // namespace tilewright::graph
