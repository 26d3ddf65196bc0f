// Nodes of operators that the model's own definitions state: rows `custom` and `custom_elementwise`
// of the operator table.
#include "compiler/onnx/onnx_custom_ops.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/onnx/custom_operators.h"
#include "compiler/onnx/onnx_conversions.h"
#include "compiler/onnx/onnx_importer.h"
#include "compiler/op/custom_lower.h"
#include "deploy/support/printable.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using op::custom::AttributeKind;
using op::custom::Definition;
using op::custom::Lowered;
using op::custom::LoweredStage;
using support::StrCat;

constexpr size_t kMaxFiles = 64;
constexpr size_t kMaxShownName = 100;

std::string FullName(const std::string& domain, const std::string& type) {
  return StrCat(IsDefaultDomain(domain) ? "ai.onnx" : domain, "::", type);
}

// The attribute as its definition states it. Nothing of a type that definitions do not have.
absl::StatusOr<op::AttrValue> ValueOf(NodeReader& n, const pb::AttributeProto& a) {
  const bool typed = a.has_type();
  using Proto = pb::AttributeProto;
  if (typed && a.type() == Proto::INT) return op::AttrValue(static_cast<int64_t>(a.i()));
  if (typed && a.type() == Proto::FLOAT) return op::AttrValue(static_cast<double>(a.f()));
  if (typed && a.type() == Proto::STRING) return op::AttrValue(std::string(a.s()));
  if (typed && a.type() == Proto::INTS) {
    return op::AttrValue(std::vector<int64_t>(a.ints().begin(), a.ints().end()));
  }
  if (typed && a.type() == Proto::FLOATS) {
    return op::AttrValue(std::vector<double>(a.floats().begin(), a.floats().end()));
  }
  return n.Error("attribute",
                 StrCat("expected attribute ", Printable(a.name()),
                        " as a number, a list of numbers or a text, found another type"));
}

// One node under conversion: its operands as the definition gets them, and what it computed so far.
class NodeConversion {
 public:
  explicit NodeConversion(NodeReader& n) : n_(n) {}

  Result Run(const CustomOperator& custom) {
    op::Attrs attrs;
    for (const pb::AttributeProto& a : n_.attributes()) {
      TW_ASSIGN(attrs[a.name()], ValueOf(n_, a));
    }
    TW_ASSIGN(definition_, op::custom::SetAttributes(custom.definition, attrs));
    TW_TRY(ReadOperands());
    const size_t outputs = static_cast<size_t>(n_.num_outputs());
    if (outputs > definition_.results.size()) {
      return n_.Error("outputs", StrCat("expected at most ", definition_.results.size(),
                                        " outputs, found ", outputs));
    }
    if (!definition_.library.empty()) {
      TW_ASSIGN(std::string text, op::custom::AttributesText(custom.definition, attrs));
      TW_ASSIGN(const ValueId result,
                n_.importer().Emit("external", operands_,
                                   {{"definition", op::custom::Print(definition_)},
                                    {"attributes", std::move(text)}},
                                   n_.output_name()));
      return AsModel(result, 0);
    }
    op::DimEqualities equal;
    TW_ASSIGN(const Lowered lowered, Lowered::Create(definition_, types_, false, &equal));
    if (const auto elementwise = lowered.AsElementwise()) {
      std::vector<ValueId> inputs;
      for (const size_t operand : elementwise->operands) inputs.push_back(operands_[operand]);
      const ir::DType dtype = lowered.stages()[0].type.dtype;
      TW_ASSIGN(const ValueId result, n_.importer().Emit("custom_elementwise", std::move(inputs),
                                                         {{"expression", elementwise->text},
                                                          {"dtype", ir::TypeName(dtype)}},
                                                         n_.output_name()));
      return AsModel(result, 0);
    }
    TW_TRY(EmitStages(lowered));
    return Bind();
  }

 private:
  // Floats of 16 bits compute in f32, as in every operator.
  absl::Status ReadOperands() {
    if (n_.num_inputs() != static_cast<int>(definition_.operands.size())) {
      return n_.Error("inputs", StrCat("expected ", definition_.operands.size(), " inputs, found ",
                                       n_.num_inputs()));
    }
    for (int i = 0; i < n_.num_inputs(); ++i) {
      TW_ASSIGN(ValueId id, n_.Input(i));
      TW_ASSIGN(id, n_.importer().DataOf(id));
      const ir::DType type = n_.importer().TypeOf(id).dtype;
      if (type.is_float() && type.bits == 16) {
        half_[definition_.operands[static_cast<size_t>(i)].type] = type;
        TW_ASSIGN(id, n_.importer().Emit("cast", {id}, {{"dtype", ir::TypeName(ir::kF32)}},
                                         n_.output_name() + "_wide"));
      }
      operands_.push_back(id);
      types_.push_back(n_.importer().TypeOf(id));
    }
    return absl::OkStatus();
  }

  // The stages with nodes of their own: the results that the model asks for, and what several of
  // them need. A stage that only one stage reads is part of that one's node.
  std::set<std::string> Apart(const Lowered& lowered) const {
    std::map<std::string, int> users;
    std::map<std::string, std::vector<std::string>> readers;
    std::set<std::string> apart;
    for (int i = 0; i < n_.num_outputs(); ++i) {
      if (!n_.HasOutput(i)) continue;
      const std::string& result = definition_.results[static_cast<size_t>(i)].name;
      apart.insert(result);
      for (const std::string& stage : lowered.Needs(result, {})) ++users[stage];
    }
    for (const auto& [reader, count] : users) {
      for (const std::string& stage : lowered.Find(reader)->reads) readers[stage].push_back(reader);
    }
    for (const auto& [stage, count] : users) {
      const std::vector<std::string>& of = readers[stage];
      if (count > 1 && (of.size() > 1 || users.at(of[0]) < count)) apart.insert(stage);
    }
    return apart;
  }

  absl::Status EmitStages(const Lowered& lowered) {
    const std::set<std::string> apart = Apart(lowered);
    const std::string text = op::custom::Print(definition_);
    for (const LoweredStage& stage : lowered.stages()) {
      if (apart.count(stage.name) == 0) continue;
      std::vector<ValueId> inputs = operands_;
      std::vector<std::string> given;
      const std::set<std::string> there = Names(emitted_);
      std::set<std::string> reads;
      for (const std::string& needed : lowered.Needs(stage.name, there)) {
        const LoweredStage& part = *lowered.Find(needed);
        for (const std::string& name : part.reads) reads.insert(name);
      }
      for (const auto& [name, id] : emitted_) {
        if (reads.count(name) == 0) continue;
        inputs.push_back(id);
        given.push_back(name);
      }
      op::Attrs attrs = {{"definition", text}, {"stage", stage.name}};
      if (!given.empty()) attrs["given"] = support::Join(given, ",");
      TW_ASSIGN(emitted_[stage.name], n_.importer().Emit("custom", std::move(inputs),
                                                         std::move(attrs), NameOf(stage.name)));
    }
    return absl::OkStatus();
  }

  static std::set<std::string> Names(const std::map<std::string, ValueId>& values) {
    std::set<std::string> names;
    for (const auto& [name, id] : values) names.insert(name);
    return names;
  }
  // A result has the name of its output; other stages are named after the first output.
  std::string NameOf(const std::string& stage) const {
    std::string first;
    for (int i = 0; i < n_.num_outputs(); ++i) {
      if (!n_.HasOutput(i)) continue;
      if (definition_.results[static_cast<size_t>(i)].name == stage) return n_.output_name(i);
      if (first.empty()) first = n_.output_name(i);
    }
    return StrCat(first, "_", stage);
  }

  Result AsModel(ValueId id, size_t result) {
    const auto half = half_.find(definition_.results[result].type);
    if (half == half_.end() || n_.importer().TypeOf(id).dtype != ir::kF32) return id;
    return n_.importer().Emit("cast", {id}, {{"dtype", ir::TypeName(half->second)}},
                              n_.output_name(static_cast<int>(result)));
  }
  // The value of the first output; the others get their names here.
  Result Bind() {
    ValueId first = emitted_.begin()->second;
    for (int i = 0; i < n_.num_outputs(); ++i) {
      if (!n_.HasOutput(i)) continue;
      const auto emitted = emitted_.find(definition_.results[i].name);
      TW_ASSIGN(const ValueId id, AsModel(emitted->second, static_cast<size_t>(i)));
      if (i == 0) first = id;
      if (i > 0) TW_TRY(n_.BindOutput(i, id));
    }
    return first;
  }

  NodeReader& n_;
  Definition definition_;
  std::vector<ValueId> operands_;
  std::vector<op::TensorType> types_;
  std::map<std::string, ir::DType> half_;   // by the type that the definition states
  std::map<std::string, ValueId> emitted_;  // by stage
};

}  // namespace

absl::Status CustomOperators::Read(const pb::ModelProto& model) {
  size_t files = 0;
  for (const pb::StringStringEntryProto& entry : model.metadata_props()) {
    const std::string& key = entry.key();
    if (!key.starts_with(kOperatorsKey)) continue;
    if (++files > kMaxFiles) {
      return Bad("too_large",
                 StrCat("expected at most ", kMaxFiles, " texts of custom operators, found more"));
    }
    const std::string file =
        support::Printable(key.substr(kOperatorsKey.size())).substr(0, kMaxShownName);
    absl::StatusOr<std::vector<Definition>> parsed = op::custom::Parse(entry.value());
    if (!parsed.ok()) return support::WithContext(parsed.status(), file);
    for (Definition& definition : *parsed) {
      const std::string name = FullName(definition.domain, definition.op_type);
      for (const CustomOperator& known : by_name_[name]) {
        if (known.definition.operands.size() != definition.operands.size()) continue;
        return support::InvalidArgument(
            "op.custom.name",
            StrCat(file, ": expected one definition of ", name, " for ", definition.operands.size(),
                   " operands, found another in ", known.file));
      }
      by_name_[name].push_back({std::move(definition), file});
    }
  }
  return absl::OkStatus();
}

const CustomOperator* CustomOperators::Find(const pb::NodeProto& node) const {
  const auto found = by_name_.find(FullName(node.domain(), node.op_type()));
  if (found == by_name_.end()) return nullptr;
  for (const CustomOperator& custom : found->second) {
    if (static_cast<int>(custom.definition.operands.size()) == node.input_size()) return &custom;
  }
  return &found->second.front();
}

Result ImportCustom(NodeReader& n) {
  const CustomOperator& custom = *n.importer().FindCustom(n);
  Result result = NodeConversion(n).Run(custom);
  if (result.ok()) return result;
  // Where the rule is written that the node breaks.
  return support::WithContext(result.status(), StrCat(custom.file, ": ", n.op_type()));
}

}  // namespace onnx

absl::Status AddOperators(const OperatorFile& file, std::string* onnx) {
  const auto parsed = op::custom::Parse(file.text);
  if (!parsed.ok()) return support::WithContext(parsed.status(), file.name);
  onnx::pb::ModelProto more;
  auto* entry = more.add_metadata_props();
  entry->set_key(support::StrCat(kOperatorsKey, file.name));
  entry->set_value(file.text);
  onnx->append(more.SerializeAsString());
  return absl::OkStatus();
}

}  // namespace tilewright::graph
