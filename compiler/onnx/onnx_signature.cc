// The inputs and outputs of a model in the import: sizes given for dimensions, and the types that
// the model states.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "compiler/onnx/onnx_conversions.h"
#include "compiler/onnx/onnx_importer.h"
#include "compiler/op/empty.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::Quote;
using support::StrCat;

// Whether the size of this dimension is stated. Some exporters (Paddle) write -1 for one that is
// not.
bool IsFixed(const pb::TensorShapeProto::Dimension& dim) {
  return dim.has_dim_value() && dim.dim_value() >= 0;
}

// Whether the model states every size of its inputs.
bool InputsAreFixed(const pb::GraphProto& graph) {
  return std::all_of(graph.input().begin(), graph.input().end(), [](const auto& input) {
    const auto& shape = input.type().tensor_type().shape();
    return input.type().tensor_type().has_shape() &&
           std::all_of(shape.dim().begin(), shape.dim().end(), IsFixed);
  });
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

// Whether a result may have a dimension of this name: the model's own, or output and axis ("y_0").
bool MayBeFound(const pb::GraphProto& graph, const std::string& name) {
  for (const auto* values : {&graph.output(), &graph.value_info()}) {
    for (const pb::ValueInfoProto& value : *values) {
      for (const auto& dim : value.type().tensor_type().shape().dim()) {
        if (dim.dim_param() == name) return true;
      }
    }
  }
  const size_t end = name.find_last_not_of("0123456789");
  if (end == std::string::npos || end + 1 == name.size() || name[end] != '_') return false;
  bool found = false;
  ForEachNode(graph, [&](const pb::NodeProto& node) {
    for (const std::string& output : node.output()) found = found || output == name.substr(0, end);
  });
  return found;
}

// The type of the element in place of an optional.
void TakeOptional(pb::ValueInfoProto& value) {
  if (!value.type().has_optional_type()) return;
  const pb::TypeProto of = value.type().optional_type().elem_type();
  *value.mutable_type() = of;
}

}  // namespace

void ReadInputsAsTensors(pb::GraphProto& graph) {
  for (pb::ValueInfoProto& input : *graph.mutable_input()) {
    TakeOptional(input);
    if (!input.type().has_sequence_type()) continue;
    const pb::TypeProto of = input.type().sequence_type().elem_type();
    if (!of.has_tensor_type()) continue;
    input.mutable_type()->set_denotation(std::string(kSequence));
    auto& tensor = *input.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(of.tensor_type().elem_type());
    if (!of.tensor_type().has_shape()) continue;
    tensor.mutable_shape()->add_dim();
    tensor.mutable_shape()->MergeFrom(of.tensor_type().shape());
  }
}

void NameUnknownSizes(pb::GraphProto& graph) {
  std::set<std::string> taken;
  for (const pb::ValueInfoProto& input : graph.input()) {
    taken.insert(input.name());
    for (const auto& dim : input.type().tensor_type().shape().dim()) taken.insert(dim.dim_param());
  }
  for (pb::ValueInfoProto& input : *graph.mutable_input()) {
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape()) continue;
    auto& dims = *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim();
    for (int d = 0; d < dims.size(); ++d) {
      if (IsFixed(dims[d]) || (!dims[d].dim_param().empty() && dims[d].dim_param() != "?"))
        continue;
      std::string name = StrCat(input.name(), "_", d);
      while (!taken.insert(name).second) name += "_";
      dims[d].set_dim_param(name);
    }
  }
}

std::string DynamicInputText(const pb::ValueInfoProto& input) {
  const auto& tensor = input.type().tensor_type();
  if (!tensor.has_shape()) return Quote(input.name()) + " of unknown rank";
  std::vector<std::string> dims;
  for (const auto& dim : tensor.shape().dim()) {
    dims.push_back(IsFixed(dim) ? StrCat(dim.dim_value()) : Printable(dim.dim_param()));
  }
  return StrCat(Quote(input.name()), " [", support::Join(dims, ","), "]");
}

std::string ShapeFlags(const std::vector<const pb::ValueInfoProto*>& dynamic) {
  std::set<std::string> flags;
  for (const pb::ValueInfoProto* input : dynamic) {
    const auto& tensor = input->type().tensor_type();
    if (!tensor.has_shape()) flags.insert(input->name() + "=N...");
    for (const auto& dim : tensor.shape().dim()) {
      if (!IsFixed(dim)) flags.insert(dim.dim_param() + "=N");
    }
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
    if (range.min >= 0 && range.max >= std::max<int64_t>(1, range.min)) {
      if (named.count(name) > 0) continue;
      if (MayBeFound(model_.graph(), name)) {
        unclaimed_.insert(name);
        continue;
      }
    }
    return Bad("shape_override",
               StrCat("expected a dimension of an input and a range of sizes from 0 on, found ",
                      Quote(name), " in ", range.min, "..", range.max));
  }
  for (const auto& [name, shape] : options_.shapes) {
    if (inputs.count(name) > 0) continue;
    if (shape.size() == 1 && named.count(name) == 0 && MayBeFound(model_.graph(), name)) {
      unclaimed_.insert(name);
      continue;
    }
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
    return Bad("input_type", "expected a tensor or a sequence of tensors, found another type");
  }
  const auto& tensor = input.type().tensor_type();
  TW_ASSIGN(const ir::DType dtype, HeldType(tensor.elem_type()));
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
    if (!IsFixed(dim)) input_sizes_.insert_or_assign(dim.dim_param(), type.shape.back());
  }
  TW_TRY(op::CheckShape(type));
  if (type.fixed() && type.bytes() > options_.max_bytes) {
    return Bad("too_large",
               StrCat("expected at most ", options_.max_bytes, " bytes, found ", op::ToText(type)));
  }
  return type;
}

absl::Status Importer::BindSequence(const std::string& name, ValueId rows) {
  pb::NodeProto split;
  split.set_op_type("SplitToSequence");
  split.add_input(StrCat("the tensors of ", name));
  split.add_output(name);
  pb::AttributeProto& keepdims = *split.add_attribute();
  keepdims.set_name("keepdims");
  keepdims.set_type(pb::AttributeProto::INT);
  keepdims.set_i(0);
  TW_TRY(Bind(split.input(0), rows));
  return Convert(split);
}

absl::Status Importer::AddInput(const pb::ValueInfoProto& input, op::TensorType type) {
  Value value;
  value.name = FreshName(input.name());
  value.type = std::move(type);
  graph_.values.push_back(std::move(value));
  const ValueId id = static_cast<ValueId>(graph_.values.size()) - 1;
  TW_TRY(input.type().denotation() == kSequence ? BindSequence(input.name(), id)
                                                : Bind(input.name(), id));
  MarkPacked(id, support::FindPackedInteger(input.type().tensor_type().elem_type()));
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

// The type that the model states for an output. Where the model leaves sizes of its inputs open,
// the sizes of its outputs are often those of the run that exported it: they say nothing of this.
absl::Status Importer::CheckStatedType(const pb::ValueInfoProto& output, ValueId id) const {
  if (!output.type().has_tensor_type()) return absl::OkStatus();
  const auto& stated = output.type().tensor_type();
  TW_ASSIGN(const ir::DType dtype, HeldType(stated.elem_type()));
  const op::TensorType& type = TypeOf(id);
  bool same =
      dtype == type.dtype && support::FindPackedInteger(stated.elem_type()) == PackedTypeOf(id);
  // Exporters invent names for dimensions that they do not know, with a rank that may be wrong.
  const bool invented = std::ranges::none_of(stated.shape().dim(), [&](const auto& dim) {
    return IsFixed(dim) || input_sizes_.contains(dim.dim_param());
  });
  if (stated.has_shape() && (!invented || stated.shape().dim().empty())) {
    same = same && stated.shape().dim_size() == static_cast<int>(type.shape.size());
    const bool sizes_count = same && InputsAreFixed(model_.graph());
    for (int d = 0; sizes_count && d < stated.shape().dim_size(); ++d) {
      const auto& dim = stated.shape().dim(d);
      // A size that a run finds was another one in the run that exported the model.
      const bool counts = IsFixed(dim) && type.shape[d].is_constant();
      same = same && (!counts || type.shape[d] == dim.dim_value());
    }
  }
  if (same) return absl::OkStatus();
  return Bad("output_type",
             StrCat("output ", Quote(output.name()),
                    ": expected the type that the model states, found ", op::ToText(type)));
}

absl::Status Importer::ReadOutputs() {
  std::set<std::string> names;
  for (pb::ValueInfoProto output : model_.graph().output()) {
    TW_ASSIGN(ValueId id, Lookup(output.name()));
    TakeOptional(output);
    const Container* container = ContainerOf(id);
    if (container == nullptr) {
      TW_TRY(AddOutput(output, id, &names));
      continue;
    }
    const Container sequence = *container;
    if (sequence.nothing || !output.type().has_sequence_type()) {
      return Bad("output_type", StrCat("output ", Quote(output.name()),
                                       ": expected a tensor or a sequence, found another type"));
    }
    const pb::TypeProto part = output.type().sequence_type().elem_type();
    const std::string name = output.name();
    if (sequence.items.empty() && sequence.rows >= 0) {
      output.clear_type();
      TW_TRY(AddOutput(output, sequence.rows, &names));
      continue;
    }
    *output.mutable_type() = part;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      output.set_name(StrCat(name, ".", i));
      TW_TRY(AddOutput(output, sequence.items[i], &names));
    }
  }
  return absl::OkStatus();
}

// The graph's outputs carry the model's names and are values of their own.
absl::Status Importer::AddOutput(const pb::ValueInfoProto& output, ValueId id,
                                 std::set<std::string>* names) {
  if (!names->insert(output.name()).second) {
    return Bad("duplicate",
               StrCat("expected unique outputs, found output ", Quote(output.name()), " twice"));
  }
  TW_ASSIGN(id, DataOf(id));
  TW_TRY(CheckStatedType(output, id));
  if (graph_.values[id].name != output.name()) {
    TW_ASSIGN(id, Emit("identity", {id}, {}, output.name()));
  }
  TakeName(id, output.name());
  graph_.outputs.push_back(id);
  return absl::OkStatus();
}

const pb::GraphProto& Importer::Scope() const {
  return scopes_.empty() ? model_.graph() : *scopes_.back().graph;
}

std::optional<std::vector<int64_t>> Importer::StatedShape(const std::string& name) const {
  for (const std::string& same : OfSameShape(name)) {
    if (std::optional<std::vector<int64_t>> shape = ShapeIn(Scope(), same)) return shape;
  }
  return std::nullopt;
}

}  // namespace tilewright::graph::onnx
