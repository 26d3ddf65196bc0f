// Definitions → text on one line, in one form: what tasks carry.
#include "compiler/ir/text_words.h"
#include "compiler/op/custom_text.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op::custom {
namespace {

using support::Join;
using support::StrCat;

std::string ListText(bool leading, const std::vector<NodeRef>& items) {
  std::vector<std::string> parts;
  if (leading) parts.emplace_back("..");
  for (const NodeRef& item : items) parts.push_back(Print(item));
  return StrCat("[", Join(parts, ", "), "]");
}
std::string AxisText(const Axis& axis) {
  return axis.extent == nullptr ? axis.name : StrCat(axis.name, ": ", Print(axis.extent));
}
std::string OperandsText(const std::vector<Operand>& operands) {
  std::vector<std::string> parts;
  for (const Operand& o : operands) {
    parts.push_back(StrCat(o.name, ": ", o.type, ListText(o.leading, o.dims)));
  }
  return StrCat("(", Join(parts, ", "), ")");
}
std::string ValueText(const AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return StrCat(*i);
  if (const auto* d = std::get_if<double>(&value)) return ir::DoubleText(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return ir::QuoteText(*s);
  std::vector<std::string> parts;
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) {
    for (int64_t i : *v) parts.push_back(StrCat(i));
  } else {
    for (double d : std::get<std::vector<double>>(value)) parts.push_back(ir::DoubleText(d));
  }
  return StrCat("[", Join(parts, ", "), "]");
}
std::string StageText(const Stage& stage) {
  std::vector<std::string> axes;
  if (stage.leading) axes.emplace_back("..");
  for (const Axis& axis : stage.axes) axes.push_back(AxisText(axis));
  return StrCat(stage.name, "[", Join(axes, ", "), "] = ", Print(stage.value), ";");
}

}  // namespace

std::string_view AttributeKindText(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt:
      return "int";
    case AttributeKind::kFloat:
      return "float";
    case AttributeKind::kInts:
      return "ints";
    case AttributeKind::kFloats:
      return "floats";
    default:
      return "string";
  }
}

std::string Print(const NodeRef& node) {
  std::vector<std::string> parts;
  switch (node->kind) {
    case NodeKind::kInt:
      return StrCat(node->integer);
    case NodeKind::kFloat:
      return ir::DoubleText(node->number);
    case NodeKind::kBool:
      return node->integer != 0 ? "true" : "false";
    case NodeKind::kText:
      return ir::QuoteText(node->name);
    case NodeKind::kName:
      return node->name;
    case NodeKind::kAccess:
      return node->name + ListText(node->leading, node->args);
    case NodeKind::kOperation:
      if (node->args.size() == 1) return StrCat(node->name, Print(node->args[0]));
      return StrCat("(", Print(node->args[0]), " ", node->name, " ", Print(node->args[1]), ")");
    case NodeKind::kReduce:
      for (const Axis& axis : node->axes) parts.push_back(AxisText(axis));
      [[fallthrough]];
    default:
      for (const NodeRef& arg : node->args) parts.push_back(Print(arg));
      return StrCat(node->name, "(", Join(parts, ", "), ")");
  }
}

absl::StatusOr<std::string> AttributesText(const Definition& d, const Attrs& given) {
  TW_TRY(SetAttributes(d, given).status());
  std::string text;
  for (const Attribute& attribute : d.attributes) {
    const auto found = given.find(attribute.name);
    text += StrCat(attribute.name, " = ",
                   ValueText(found == given.end() ? *attribute.fallback : found->second), "\n");
  }
  return text;
}

std::string Print(const Definition& d) {
  std::string text = StrCat("operator ", d.domain, "::", d.op_type, OperandsText(d.operands),
                            " -> ", OperandsText(d.results));
  for (const TypeVariable& variable : d.types) {
    std::vector<std::string> types;
    for (const ir::DType type : variable.types) types.push_back(ir::TypeName(type));
    text += StrCat(" type ", variable.name, " in ", Join(types, ", "), ";");
  }
  for (const Attribute& a : d.attributes) {
    text += StrCat(" attribute ", a.name, ": ", AttributeKindText(a.kind),
                   a.fallback ? " = " + ValueText(*a.fallback) : "", ";");
  }
  for (const NodeRef& condition : d.requirements)
    text += StrCat(" require ", Print(condition), ";");
  if (!d.library.empty()) {
    text += StrCat(" library ", ir::QuoteText(d.library), " function ", d.function);
    if (d.stages.empty()) return text + ";";
  }
  std::vector<std::string> stages;
  for (const Stage& stage : d.stages) stages.push_back(StageText(stage));
  return StrCat(text, " { ", Join(stages, " "), " }");
}

}  // namespace tilewright::op::custom
