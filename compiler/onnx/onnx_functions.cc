#include "compiler/onnx/onnx_functions.h"

#include <google/protobuf/unknown_field_set.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using google::protobuf::UnknownField;
using support::Quote;
using support::StrCat;

using Nodes = google::protobuf::RepeatedPtrField<pb::NodeProto>;

constexpr int kMaxDepth = 64;  // of calls in bodies; a recursion comes here
// Fields of newer versions of the format than that of the reader (onnx.proto).
constexpr int kFunctionDefaults = 11, kFunctionOverload = 13, kNodeOverload = 8;

// The bytes of each field of this number.
template <typename Message>
std::vector<std::string> NewFields(const Message& message, int number) {
  std::vector<std::string> found;
  const auto& fields = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      found.push_back(field.length_delimited());
    }
  }
  return found;
}

template <typename Message>
std::string Overload(const Message& message, int number) {
  const std::vector<std::string> found = NewFields(message, number);
  return found.empty() ? "" : found.back();
}

int64_t DefaultOpset(const google::protobuf::RepeatedPtrField<pb::OperatorSetIdProto>& imports) {
  for (const pb::OperatorSetIdProto& import : imports) {
    if (IsDefaultDomain(import.domain())) return import.version();
  }
  return 0;
}

// One call: what the names and attributes of the body are at the place of the call.
class Call {
 public:
  // `budget`: how many bytes of names and attributes may still be made.
  Call(const pb::FunctionProto& function, const pb::NodeProto& node, int64_t* budget)
      : node_(node),
        budget_(*budget),
        // Calls in bodies may have the output of the call around, but not its function.
        prefix_(
            StrCat(node.output_size() > 0 && !node.output(0).empty() ? node.output(0) : node.name(),
                   "/", function.name(), Overload(function, kFunctionOverload), "/")) {
    for (int i = 0; i < function.input_size(); ++i) {
      names_[function.input(i)] = i < node.input_size() ? node.input(i) : "";
    }
    for (const std::string& text : NewFields(function, kFunctionDefaults)) {
      pb::AttributeProto attribute;
      if (attribute.ParseFromString(text)) attributes_[attribute.name()] = attribute;
    }
    for (const pb::AttributeProto& given : node.attribute()) attributes_[given.name()] = given;
    // An output that is an input of the function is a copy of it.
    for (int i = 0; i < function.output_size() && i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      if (!names_.try_emplace(function.output(i), node.output(i)).second) {
        copies_.emplace_back(function.output(i), node.output(i));
      }
    }
  }

  void Rename(pb::NodeProto* inner) const {
    const std::string own = inner->name().empty() ? inner->op_type() : inner->name();
    if (!node_.name().empty() || !inner->name().empty()) {
      inner->set_name(StrCat(node_.name().empty() ? prefix_ : node_.name() + "/", own));
      budget_ -= static_cast<int64_t>(inner->name().size());
    }
    RenameAll(inner->mutable_input());
    RenameAll(inner->mutable_output());
    google::protobuf::RepeatedPtrField<pb::AttributeProto> resolved;
    for (pb::AttributeProto& attribute : *inner->mutable_attribute()) {
      if (attribute.ref_attr_name().empty()) {
        if (attribute.has_g()) Rename(attribute.mutable_g());
        for (pb::GraphProto& graph : *attribute.mutable_graphs()) Rename(&graph);
        *resolved.Add() = std::move(attribute);
        continue;
      }
      // One that the call leaves out and that has no default is left out here, too.
      const auto given = attributes_.find(attribute.ref_attr_name());
      if (given == attributes_.end()) continue;
      budget_ -= static_cast<int64_t>(given->second.ByteSizeLong());
      if (budget_ < 0) return;
      pb::AttributeProto* added = resolved.Add();
      *added = given->second;
      added->set_name(attribute.name());
    }
    inner->mutable_attribute()->Swap(&resolved);
  }

  // Nodes that copy inputs to outputs.
  Nodes Copies() const {
    Nodes nodes;
    for (const auto& [from, to] : copies_) {
      pb::NodeProto* node = nodes.Add();
      node->set_op_type("Identity");
      node->add_input(NameOf(from));
      node->add_output(to);
    }
    return nodes;
  }

 private:
  std::string NameOf(const std::string& name) const {
    if (name.empty()) return name;
    const auto known = names_.find(name);
    std::string at_call = known != names_.end() ? known->second : prefix_ + name;
    budget_ -= static_cast<int64_t>(at_call.size());
    return at_call;
  }

  void RenameAll(google::protobuf::RepeatedPtrField<std::string>* names) const {
    for (std::string& name : *names) {
      if (budget_ < 0) return;  // what is made is refused
      name = NameOf(name);
    }
  }

  // Names are unique in a function with all its subgraphs.
  void Rename(pb::GraphProto* graph) const {
    for (pb::NodeProto& node : *graph->mutable_node()) {
      if (budget_ >= 0) Rename(&node);
    }
    for (pb::TensorProto& tensor : *graph->mutable_initializer()) {
      if (budget_ >= 0) tensor.set_name(NameOf(tensor.name()));
    }
    for (auto* values :
         {graph->mutable_input(), graph->mutable_output(), graph->mutable_value_info()}) {
      for (pb::ValueInfoProto& value : *values) {
        if (budget_ >= 0) value.set_name(NameOf(value.name()));
      }
    }
  }

  const pb::NodeProto& node_;
  int64_t& budget_;
  const std::string prefix_;
  std::map<std::string, std::string> names_;  // of the body → at the call
  std::vector<std::pair<std::string, std::string>> copies_;
  std::map<std::string, pb::AttributeProto> attributes_;
};

class Inliner {
 public:
  Inliner(const std::function<bool(const pb::NodeProto&)>& is_known, const pb::ModelProto& model)
      : is_known_(is_known), opset_(DefaultOpset(model.opset_import())) {
    for (const pb::FunctionProto& function : model.functions()) {
      functions_[{function.domain(), function.name(), Overload(function, kFunctionOverload)}] =
          &function;
    }
  }

  absl::Status Graph(pb::GraphProto* graph, int depth) {
    Nodes nodes;
    nodes.Swap(graph->mutable_node());
    for (pb::NodeProto& node : nodes) {
      TW_TRY(Add(std::move(node), depth, graph->mutable_node()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Add(pb::NodeProto node, int depth, Nodes* nodes) {
    for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) TW_TRY(Graph(attribute.mutable_g(), depth));
      for (pb::GraphProto& graph : *attribute.mutable_graphs()) TW_TRY(Graph(&graph, depth));
    }
    const auto found =
        functions_.find({node.domain(), node.op_type(), Overload(node, kNodeOverload)});
    if (found == functions_.end() || is_known_(node)) {
      *nodes->Add() = std::move(node);
      return absl::OkStatus();
    }
    return Expand(*found->second, node, depth, nodes);
  }

  absl::Status Expand(const pb::FunctionProto& function, const pb::NodeProto& node, int depth,
                      Nodes* nodes) {
    if (depth == kMaxDepth) {
      return Bad("function", StrCat(NodeLabel(node), ": expected calls of functions at most ",
                                    kMaxDepth, " deep, found more (a recursion?)"));
    }
    const int64_t opset = DefaultOpset(function.opset_import());
    if (opset != 0 && opset != opset_) {
      return Bad("function", StrCat(NodeLabel(node), ": expected a function of the model's opset ",
                                    opset_, ", found one of opset ", opset));
    }
    const Call call(function, node, &budget_);
    for (const pb::NodeProto& inner : function.node()) {
      budget_ -= static_cast<int64_t>(inner.ByteSizeLong());
      pb::NodeProto renamed;
      if (budget_ >= 0) {
        renamed = inner;
        call.Rename(&renamed);
      }
      if (++nodes_ > kMaxInlinedNodes || budget_ < 0) {
        return Bad("function",
                   StrCat(NodeLabel(node), ": expected functions that make at most ",
                          kMaxInlinedNodes, " nodes and ", kMaxInlinedBytes, " bytes, found more"));
      }
      TW_TRY(Add(std::move(renamed), depth + 1, nodes));
    }
    Nodes copies = call.Copies();
    for (pb::NodeProto& copy : copies) *nodes->Add() = std::move(copy);
    return absl::OkStatus();
  }

  const std::function<bool(const pb::NodeProto&)>& is_known_;
  const int64_t opset_;
  std::map<std::tuple<std::string, std::string, std::string>, const pb::FunctionProto*> functions_;
  int64_t nodes_ = 0, budget_ = kMaxInlinedBytes;
};

}  // namespace

absl::Status InlineFunctions(const std::function<bool(const pb::NodeProto&)>& is_known,
                             pb::ModelProto* model) {
  TW_TRY(Inliner(is_known, *model).Graph(model->mutable_graph(), 0));
  model->clear_functions();
  return absl::OkStatus();
}

}  // namespace tilewright::graph::onnx
