// The import that goes on after errors. A value whose type an error hides is unknown: nodes that
// read it are counted, not converted. Where the model states the type itself, a value of that type
// without numbers stands in for it, so that what follows is checked, too.
#include "compiler/onnx/onnx_check.h"

#include <algorithm>

#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using support::Quote;
using support::StrCat;

// Tensors of so many elements are data. Smaller ones may be shapes or axes, whose numbers decide
// about types: nothing can stand in for those.
constexpr int64_t kMaxShaping = 32;

void Add(ImportCheck* check, std::string slug, std::string what, std::string detail,
         std::string where) {
  for (ImportProblem& known : check->problems) {
    if (known.slug != slug || known.what != what || known.detail != detail) continue;
    if (!where.empty()) known.where.push_back(std::move(where));
    return;
  }
  ImportProblem problem{std::move(slug), std::move(what), std::move(detail), {}};
  if (!where.empty()) problem.where.push_back(std::move(where));
  check->problems.push_back(std::move(problem));
}

// An error of one place, which its text may name once more.
void AddError(ImportCheck* check, const absl::Status& status, const std::string& what,
              const std::string& where, const std::string& label) {
  if (status.ok()) return;
  std::string detail = support::Detail(status);
  if (!label.empty() && detail.starts_with(label + ": ")) detail.erase(0, label.size() + 2);
  Add(check, support::Slug(status), what, std::move(detail), where);
}

// What nodes and outputs read. The import never looks at other initializers.
std::set<std::string> UsedNames(const pb::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& node : graph.node()) {
    for (std::string& name : NamesRead(node)) names.insert(std::move(name));
  }
  for (const auto& output : graph.output()) names.insert(output.name());
  return names;
}

// Notes tensors whose data is in other files, by file.
void CheckExternalData(const OnnxModel::Parsed& model, const std::set<std::string>& used,
                       ImportCheck* check, std::set<std::string>* no_data) {
  const std::map<const pb::TensorProto*, absl::Status> why(model.not_loaded.begin(),
                                                           model.not_loaded.end());
  for (const pb::TensorProto& tensor : model.proto.graph().initializer()) {
    if (!IsExternal(tensor) || used.count(tensor.name()) == 0) continue;
    const std::string file = ExternalFile(tensor), name = Quote(tensor.name());
    const auto known = why.find(&tensor);
    if (known != why.end()) {
      AddError(check, known->second, file, name, StrCat("tensor ", name));
    } else {
      Add(check, "graph.onnx.external_data", file,
          "expected the data inside the model file, found it in another", name);
    }
    no_data->insert(tensor.name());
  }
}

}  // namespace

bool Importer::AddStandIn(const std::string& name, const pb::TypeProto& stated) {
  const auto& tensor = stated.tensor_type();
  const absl::StatusOr<ir::DType> dtype = HeldType(tensor.elem_type());
  if (!stated.has_tensor_type() || !tensor.has_shape() || !dtype.ok()) return false;
  op::TensorType type{*dtype, {}};
  for (const auto& dim : tensor.shape().dim()) type.shape.push_back(dim.dim_value());
  const bool fits = op::CheckType(type).ok() && type.bytes() <= options_.max_bytes;
  // Small integers may be a shape.
  if (!fits || (!type.dtype.is_float() && type.elements() <= kMaxShaping)) return false;
  Value value;
  value.name = FreshName(name);
  value.type = std::move(type);
  graph_.values.push_back(std::move(value));
  return Bind(name, static_cast<ValueId>(graph_.values.size()) - 1).ok();
}

void Importer::CheckInputs(ImportCheck* check) {
  AddError(check, ReadSizes(), "--shape", "", "");
  std::vector<const pb::ValueInfoProto*> dynamic;
  for (const pb::ValueInfoProto& input : model_.graph().input()) {
    if (initializers_.count(input.name()) > 0) continue;
    absl::StatusOr<op::TensorType> type = InputType(input);
    if (support::Slug(type.status()) == kSymbolicShape) {
      dynamic.push_back(&input);
    } else if (!type.ok()) {
      const bool element = support::Slug(type.status()).starts_with("graph.onnx.element_type");
      AddError(check, type.status(),
               element ? ElementTypeName(input.type().tensor_type().elem_type()) : "input",
               Quote(input.name()), "");
    }
    if (type.ok() && AddInput(input, *std::move(type)).ok()) continue;
    unknown_.insert(input.name());
  }
  const std::string flags = ShapeFlags(dynamic);
  for (const pb::ValueInfoProto* input : dynamic) {
    Add(check, std::string(kSymbolicShape), flags, "expected inputs of fixed shape",
        DynamicInputText(*input));
  }
}

void Importer::CheckNodes(ImportCheck* check) {
  const auto order = Order();
  if (!order.ok()) return AddError(check, order.status(), "graph", "", "");
  std::map<std::string, const pb::TypeProto*> stated;
  for (const auto& value : model_.graph().value_info()) stated[value.name()] = &value.type();
  for (const int position : *order) {
    const pb::NodeProto& node = model_.graph().node(position);
    const std::vector<std::string> reads = NamesRead(node);
    const bool known = std::none_of(reads.begin(), reads.end(),
                                    [&](auto& name) { return unknown_.count(name) > 0; });
    const bool supported = RowOf(node) != nullptr;
    if (supported && !known) ++check->unchecked_nodes;
    if (supported && known) {
      const absl::Status status = Convert(node);
      if (status.ok()) continue;
      AddError(check, status, OperatorLabel(node), NodeLabel(node), NodeLabel(node));
    }
    for (const std::string& name : node.output()) {
      if (name.empty() || values_.count(name) > 0) continue;
      const auto type = stated.find(name);
      if (type == stated.end() || !AddStandIn(name, *type->second)) unknown_.insert(name);
    }
  }
}

void Importer::Check(const std::set<std::string>& no_data, ImportCheck* check) {
  const absl::Status model = CheckModel();
  check->opset = opset_;
  if (!model.ok()) {
    AddError(check, model, "opset", "", "");
    if (support::Slug(model) != "graph.onnx.opset") return;
  }
  AddError(check, custom_.Read(model_), "operators", "", "");
  ForEachNode(model_.graph(), [&](const pb::NodeProto& node) {
    ++check->operators[OperatorLabel(node)];
    if (const CustomOperator* custom = custom_.Find(node)) {
      check->custom[OperatorLabel(node)] = custom->file;
    }
    if (RowOf(node) != nullptr) return;
    Add(check, std::string(kUnsupportedOperator), OperatorLabel(node), "", NodeLabel(node));
  });
  if (const absl::Status read = ReadInitializers(); !read.ok()) {
    return AddError(check, read, "tensor", "", "");
  }
  CheckInputs(check);
  for (const std::string& name : no_data) {
    const pb::TensorProto& tensor = *initializers_.at(name);
    pb::TypeProto type;
    type.mutable_tensor_type()->set_elem_type(tensor.data_type());
    auto* shape = type.mutable_tensor_type()->mutable_shape();
    for (const int64_t dim : tensor.dims()) shape->add_dim()->set_dim_value(dim);
    if (Elements(tensor) <= kMaxShaping || !AddStandIn(name, type)) unknown_.insert(name);
  }
  CheckNodes(check);
  const auto& outputs = model_.graph().output();
  if (std::any_of(outputs.begin(), outputs.end(),
                  [&](auto& output) { return unknown_.count(output.name()) > 0; })) {
    return;
  }
  if (check->problems.empty()) AddError(check, CheckClaimed(), "--shape", "", "");
  AddError(check, ReadOutputs(), "outputs", "", "");
  if (check->problems.empty()) AddError(check, Verify(Compact(graph_)), "graph", "", "");
}

}  // namespace onnx

absl::StatusOr<ImportCheck> CheckOnnx(std::string_view bytes, const ImportOptions& options) {
  TW_ASSIGN(const OnnxModel model, OnnxModel::Parse(bytes, options.max_bytes));
  return CheckOnnx(model, options);
}

absl::StatusOr<ImportCheck> CheckOnnx(const OnnxModel& model, const ImportOptions& options) {
  const onnx::pb::ModelProto& proto = model.parsed().proto;
  if (!proto.has_graph()) return onnx::Bad("no_graph", "expected a model with a graph, found none");
  ImportCheck check;
  std::set<std::string> no_data;
  const std::set<std::string> used = onnx::UsedNames(proto.graph());
  onnx::CheckExternalData(model.parsed(), used, &check, &no_data);
  onnx::Importer(model, options).Check(no_data, &check);
  return check;
}

}  // namespace tilewright::graph
