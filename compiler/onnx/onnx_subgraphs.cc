// Subgraphs: what they read, and the import of one in place. Its names are visible in it alone.
#include <set>
#include <utility>

#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr size_t kMaxNested = 16;           // of subgraphs in each other
constexpr int64_t kMaxBodyNodes = 1 << 14;  // of all trips of all loops

}  // namespace

std::vector<std::string> NamesReadAround(const pb::GraphProto& graph) {
  std::set<std::string> own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& tensor : graph.initializer()) own.insert(tensor.name());
  std::vector<std::string> names;
  for (const pb::NodeProto& node : graph.node()) {
    own.insert(node.output().begin(), node.output().end());
    for (std::string& name : NamesRead(node)) names.push_back(std::move(name));
  }
  for (const auto& output : graph.output()) names.push_back(output.name());
  std::erase_if(names, [&](const std::string& name) { return own.contains(name); });
  return names;
}

void ForEachNode(const pb::GraphProto& graph,
                 const std::function<void(const pb::NodeProto&)>& visit) {
  for (const pb::NodeProto& node : graph.node()) {
    visit(node);
    for (const pb::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) ForEachNode(attribute.g(), visit);
    }
  }
}

std::vector<std::string> NamesRead(const pb::NodeProto& node) {
  std::vector<std::string> names(node.input().begin(), node.input().end());
  for (const pb::AttributeProto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (std::string& name : NamesReadAround(attribute.g())) names.push_back(std::move(name));
  }
  return names;
}

absl::StatusOr<ValueId> Importer::TensorConstant(const pb::TensorProto& tensor,
                                                 const std::string& name) {
  const auto known = body_tensors_.find(&tensor);
  if (known != body_tensors_.end()) return known->second;
  const auto shared = weights_.find(&tensor);
  if (shared != weights_.end()) {
    TW_ASSIGN(StoredType stored, StoredTypeOf(tensor, options_.max_bytes));
    TW_TRY(CheckStored(tensor, stored, static_cast<size_t>(shared->second->size())));
    return Constant(name, std::move(stored.type), shared->second);
  }
  TW_ASSIGN(HostConstant constant, ReadTensor(tensor, options_.max_bytes));
  const ValueId id = Constant(name, std::move(constant.type), std::move(constant.bytes));
  MarkPacked(id, support::FindPackedInteger(tensor.data_type()));
  if (!scopes_.empty()) body_tensors_[&tensor] = id;
  return id;
}

absl::Status Importer::BindBody(const pb::GraphProto& body, const std::vector<ValueId>& inputs) {
  if (body.input_size() != static_cast<int>(inputs.size())) {
    return Bad("inputs", StrCat("expected a subgraph with ", inputs.size(), " inputs, found ",
                                body.input_size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    TW_TRY(Bind(body.input(static_cast<int>(i)).name(), inputs[i]));
  }
  for (const pb::TensorProto& tensor : body.initializer()) {
    TW_ASSIGN(const ValueId id, TensorConstant(tensor, tensor.name()));
    TW_TRY(Bind(tensor.name(), id));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueId>> Importer::ImportBody(
    const pb::GraphProto& body, const std::vector<ValueId>& inputs,
    const std::map<std::string, ValueId>& around) {
  if (scopes_.size() >= kMaxNested) {
    return Bad("too_large",
               StrCat("expected at most ", kMaxNested, " subgraphs in each other, found more"));
  }
  body_work_.nodes += 1 + body.node_size();
  if (body_work_.nodes > kMaxBodyNodes) {
    return Bad("too_large", StrCat("expected at most ", kMaxBodyNodes,
                                   " operators when loops are unrolled, found more"));
  }
  scopes_.push_back({&body, {}});
  std::vector<ValueId> outputs;
  absl::Status status = BindBody(body, inputs);
  for (const auto& [name, id] : around) status.Update(Bind(name, id));
  for (int i = 0; status.ok() && i < body.node_size(); ++i) {
    if (body.node(i).output_size() == 0) {
      status = Bad("outputs", StrCat(NodeLabel(body.node(i)), ": expected outputs, found none"));
    } else {
      status = Convert(body.node(i));
    }
    if (status.ok() && body_work_.bytes > options_.max_bytes) {
      status = Bad(
          "too_large",
          StrCat(NodeLabel(body.node(i)), ": expected constants of at most ", options_.max_bytes,
                 " bytes in all subgraphs when loops are unrolled, found ", body_work_.bytes));
    }
  }
  for (int i = 0; status.ok() && i < body.output_size(); ++i) {
    const absl::StatusOr<ValueId> id = Lookup(body.output(i).name());
    status = id.status();
    if (id.ok()) outputs.push_back(*id);
  }
  for (const auto& [name, old] : scopes_.back().before) {
    if (old) values_[name] = *old;
    if (!old) values_.erase(name);
  }
  scopes_.pop_back();
  if (!status.ok()) return status;
  return outputs;
}

}  // namespace tilewright::graph::onnx
