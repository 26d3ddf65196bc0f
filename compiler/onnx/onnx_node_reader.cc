// Checked access of conversions to a node's operands and attributes.
#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;

absl::Status NodeReader::Error(std::string_view reason, std::string_view detail) const {
  return Bad(reason, StrCat(label_, ": ", detail));
}

absl::StatusOr<ValueId> NodeReader::Input(int i) {
  if (!HasInput(i)) {
    return Error("inputs", StrCat("expected input ", i, ", found ", num_inputs(), " inputs"));
  }
  return importer_.Lookup(node_.input(i));
}

absl::Status NodeReader::BindOutput(int i, ValueId id) {
  if (i >= node_.output_size() || node_.output(i).empty()) return absl::OkStatus();
  return importer_.Bind(node_.output(i), id);
}

bool NodeReader::IsDynamic(int i) {
  if (!HasInput(i)) return false;
  absl::StatusOr<ValueId> id = Input(i);
  return id.ok() && importer_.ValueOf(*id).constant == nullptr && !importer_.IsEmpty(*id) &&
         !importer_.IsDims(*id);
}

std::optional<std::vector<int64_t>> NodeReader::StatedShape(int output) const {
  if (!HasOutput(output)) return std::nullopt;
  return importer_.StatedShape(node_.output(output));
}

absl::StatusOr<std::vector<op::Dim>> NodeReader::InputDims(int i, std::string_view what) {
  TW_ASSIGN(ValueId id, Input(i));
  if (std::optional<std::vector<op::Dim>> dims = importer_.ConstantDims(id)) return *dims;
  TW_ASSIGN(const std::vector<int64_t> values, InputInts(i, what));  // says what is wrong
  return std::vector<op::Dim>(values.begin(), values.end());
}

absl::StatusOr<std::vector<int64_t>> NodeReader::InputInts(int i, std::string_view what) {
  TW_ASSIGN(ValueId id, Input(i));
  std::optional<std::vector<int64_t>> values = importer_.ConstantInts(id);
  if (!values && importer_.IsDims(id)) {
    return Error("open_size", StrCat("expected constant integers as ", what, ", found ",
                                     op::DimsText(*importer_.ConstantDims(id)),
                                     ", which depends on the sizes of inputs"));
  }
  if (!values) {
    return Error("dynamic", StrCat("expected constant integers as ", what, ", found ",
                                   support::Quote(importer_.ValueOf(id).name), ", ",
                                   op::ToText(importer_.TypeOf(id)),
                                   ", which is only known when the model runs"));
  }
  return *values;
}

const pb::AttributeProto* NodeReader::Find(std::string_view name) const {
  for (const pb::AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

absl::StatusOr<const pb::AttributeProto*> NodeReader::Typed(
    std::string_view name, pb::AttributeProto::AttributeType type) {
  const pb::AttributeProto* attribute = Find(name);
  // Old writers left the type out; the accessors then give the field's default.
  if (attribute != nullptr && attribute->has_type() && attribute->type() != type) {
    return Error("attribute", StrCat("expected attribute ", name, " of type ",
                                     pb::AttributeProto::AttributeType_Name(type), ", found ",
                                     pb::AttributeProto::AttributeType_Name(attribute->type())));
  }
  return attribute;
}

absl::StatusOr<int64_t> NodeReader::Int(std::string_view name, int64_t fallback) {
  TW_ASSIGN(const pb::AttributeProto* a, Typed(name, pb::AttributeProto::INT));
  return a == nullptr ? fallback : a->i();
}

absl::StatusOr<double> NodeReader::Float(std::string_view name, double fallback) {
  TW_ASSIGN(const pb::AttributeProto* a, Typed(name, pb::AttributeProto::FLOAT));
  return a == nullptr ? fallback : static_cast<double>(a->f());
}

absl::StatusOr<std::string> NodeReader::String(std::string_view name, std::string_view fallback) {
  TW_ASSIGN(const pb::AttributeProto* a, Typed(name, pb::AttributeProto::STRING));
  return a == nullptr ? std::string(fallback) : a->s();
}

absl::StatusOr<std::vector<int64_t>> NodeReader::Ints(std::string_view name,
                                                      std::vector<int64_t> fallback) {
  TW_ASSIGN(const pb::AttributeProto* a, Typed(name, pb::AttributeProto::INTS));
  if (a == nullptr) return fallback;
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

}  // namespace tilewright::graph::onnx
