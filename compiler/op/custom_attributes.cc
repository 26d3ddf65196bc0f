// A node's attributes take the place of their names in a definition.
#include <map>
#include <utility>

#include "compiler/op/custom_text.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op::custom {
namespace {

using support::Quote;
using support::StrCat;

absl::Status Wrong(std::string_view detail) { return OpError("custom", "attribute", detail); }

bool HasKind(const AttrValue& value, AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt:
      return std::holds_alternative<int64_t>(value);
    case AttributeKind::kFloat:
      return std::holds_alternative<double>(value);
    case AttributeKind::kInts:
      return std::holds_alternative<std::vector<int64_t>>(value);
    case AttributeKind::kFloats:
      return std::holds_alternative<std::vector<double>>(value);
    default:
      return std::holds_alternative<std::string>(value);
  }
}
bool IsShort(const AttrValue& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (requires { v.size(); }) return v.size() <= kMaxAttribute;
        return true;
      },
      value);
}

class Substitution {
 public:
  explicit Substitution(std::map<std::string, AttrValue> values) : values_(std::move(values)) {}

  absl::Status InList(std::vector<NodeRef>* nodes) const {
    for (NodeRef& node : *nodes) {
      TW_ASSIGN(node, In(node));
    }
    return absl::OkStatus();
  }
  absl::Status InAxes(std::vector<Axis>* axes) const {
    for (Axis& axis : *axes) {
      if (axis.extent == nullptr) continue;
      TW_ASSIGN(axis.extent, In(axis.extent));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<NodeRef> In(const NodeRef& node) const {
    const auto attribute = values_.find(node->name);
    if (attribute != values_.end() && node->kind == NodeKind::kName) {
      return Scalar(node->name, attribute->second);
    }
    if (attribute != values_.end() && node->kind == NodeKind::kAccess) {
      return Item(node, attribute->second);
    }
    Node copy = *node;
    TW_TRY(InList(&copy.args));
    TW_TRY(InAxes(&copy.axes));
    const bool texts = copy.kind == NodeKind::kOperation && copy.args.size() == 2 &&
                       copy.args[0]->kind == NodeKind::kText &&
                       copy.args[1]->kind == NodeKind::kText;
    if (texts && (copy.name == "==" || copy.name == "!=")) {
      const bool same = copy.args[0]->name == copy.args[1]->name;
      return std::make_shared<const Node>(
          Node{.kind = NodeKind::kBool, .integer = same == (copy.name == "==")});
    }
    return std::make_shared<const Node>(std::move(copy));
  }

 private:
  static absl::StatusOr<NodeRef> Scalar(const std::string& name, const AttrValue& value) {
    if (const auto* i = std::get_if<int64_t>(&value)) return IntNode(*i);
    if (const auto* d = std::get_if<double>(&value)) return FloatNode(*d);
    if (const auto* s = std::get_if<std::string>(&value)) {
      return std::make_shared<const Node>(Node{.kind = NodeKind::kText, .name = *s});
    }
    return Wrong(
        StrCat("expected a number of the list ", name, ", such as ", name, "[0], found the list"));
  }
  absl::StatusOr<NodeRef> Item(const NodeRef& access, const AttrValue& value) const {
    const auto* integers = std::get_if<std::vector<int64_t>>(&value);
    const auto* numbers = std::get_if<std::vector<double>>(&value);
    const size_t size = integers != nullptr  ? integers->size()
                        : numbers != nullptr ? numbers->size()
                                             : 0;
    const bool literal =
        access->args.size() == 1 && !access->leading && access->args[0]->kind == NodeKind::kInt;
    if (!literal || access->args[0]->integer >= static_cast<int64_t>(size)) {
      return Wrong(StrCat("expected a number below ", size, " as the position in attribute ",
                          access->name, ", found ", Quote(Print(access), 60)));
    }
    const auto at = static_cast<size_t>(access->args[0]->integer);
    return integers != nullptr ? IntNode((*integers)[at]) : FloatNode((*numbers)[at]);
  }

  const std::map<std::string, AttrValue> values_;
};

}  // namespace

absl::StatusOr<Definition> SetAttributes(Definition d, const Attrs& given) {
  std::map<std::string, AttrValue> values;
  std::vector<std::string> stated;
  for (const Attribute& attribute : d.attributes) {
    stated.push_back(attribute.name);
    const auto found = given.find(attribute.name);
    if (found == given.end() && !attribute.fallback) {
      return Wrong(StrCat("expected attribute ", attribute.name, ", found none"));
    }
    AttrValue value = found == given.end() ? *attribute.fallback : found->second;
    if (!HasKind(value, attribute.kind) || !IsShort(value)) {
      return Wrong(StrCat("expected attribute ", attribute.name, " as ",
                          AttributeKindText(attribute.kind), " of at most ", kMaxAttribute,
                          " items, found another"));
    }
    values.emplace(attribute.name, std::move(value));
  }
  for (const auto& [name, value] : given) {
    if (values.count(name) > 0) continue;
    return Wrong(StrCat("expected the attributes [", support::Join(stated, ", "), "], found ",
                        Quote(name, 60)));
  }
  const Substitution substitution(std::move(values));
  for (std::vector<Operand>* operands : {&d.operands, &d.results}) {
    for (Operand& operand : *operands) TW_TRY(substitution.InList(&operand.dims));
  }
  TW_TRY(substitution.InList(&d.requirements));
  for (Stage& stage : d.stages) {
    TW_TRY(substitution.InAxes(&stage.axes));
    TW_ASSIGN(stage.value, substitution.In(stage.value));
  }
  d.attributes.clear();
  return d;
}

}  // namespace tilewright::op::custom
