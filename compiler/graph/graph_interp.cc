// The reference interpreter of the graph IR: every node by op::Reference. Sizes that a run finds
// are known behind the node that makes what their check looks at.
#include <algorithm>
#include <string>

#include "compiler/graph/evaluation.h"
#include "compiler/graph/symbolic_shapes.h"
#include "compiler/op/empty.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {

using support::StrCat;

namespace {

using Tensors = std::vector<op::RefTensor>;

absl::StatusOr<op::TensorType> TypeAt(const Value& value, const op::Sizes& sizes) {
  op::TensorType type = value.type;
  for (op::Dim& dim : type.shape) {
    absl::StatusOr<int64_t> size = dim.Evaluate(sizes);
    if (size.ok()) {
      dim = *size;
      continue;
    }
    return support::InvalidArgument(
        "graph.interp.symbolic",
        StrCat("expected sizes that inputs fix or a run finds, found ", op::ToText(type), " for ",
               support::Quote(value.name), "; specialize first"));
  }
  return type;
}

bool HasElements(const op::RefTensor& tensor) { return tensor.type.elements() > 0; }

// What a row gives where operands or the result may have no elements.
absl::StatusOr<Tensors> ResultsOf(const op::OpSpec& spec, Tensors args, const op::Attrs& attrs,
                                  const std::vector<op::TensorType>& types) {
  if (types.size() == 1 && types[0].elements() == 0) return Tensors{{types[0], {}}};
  if (spec.name == "concat") std::erase_if(args, [](const auto& arg) { return !HasElements(arg); });
  if (std::ranges::all_of(args, HasElements)) return op::Reference(spec, args, attrs);
  std::vector<op::TensorType> given;
  for (const op::RefTensor& arg : args) given.push_back(arg.type);
  TW_ASSIGN(op::RefTensor result, op::ResultOfEmpty(spec, given, attrs));
  result.values.resize(static_cast<size_t>(types[0].elements()), result.values.at(0));
  return Tensors{std::move(result)};
}

absl::StatusOr<const op::OpSpec*> RowOf(const Node& node) {
  if (const op::OpSpec* spec = op::FindOp(node.op)) return spec;
  return support::InvalidArgument("graph.interp.operator",
                                  StrCat("expected a known operator, found ", node.op));
}

}  // namespace

absl::Status Evaluation::Begin(const Tensors& inputs) {
  for (const std::string& name : InputVariables(g_)) {
    if (sizes_.contains(name)) continue;
    return support::InvalidArgument(
        "graph.interp.symbolic",
        StrCat("expected inputs of fixed sizes, found ", name, " open; specialize first"));
  }
  values_.assign(g_.values.size(), std::nullopt);
  if (inputs.size() != g_.inputs.size()) {
    return support::InvalidArgument(
        "graph.interp.inputs",
        StrCat("expected ", g_.inputs.size(), " inputs, found ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = g_.values[g_.inputs[i]];
    TW_ASSIGN(const op::TensorType type, TypeAt(value, sizes_));
    if (inputs[i].type != type) {
      return support::InvalidArgument(
          "graph.interp.type",
          StrCat("expected ", op::ToText(type), " for input ", support::Quote(value.name),
                 ", found ", op::ToText(inputs[i].type)));
    }
    values_[g_.inputs[i]] = inputs[i];
  }
  for (size_t id = 0; id < values_.size(); ++id) {
    const Value& value = g_.values[id];
    if (value.constant == nullptr) continue;
    TW_ASSIGN(values_[id], op::FromBytes(value.type, value.constant->view()));
  }
  return absl::OkStatus();
}

absl::Status Evaluation::Step(const Node& node) {
  Tensors args;
  for (ValueId id : node.inputs) args.push_back(*values_[id]);
  TW_ASSIGN(Tensors results, ResultsFrom(node, args));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    values_[node.outputs[i]] = std::move(results[i]);
  }
  return Find(node.outputs);
}

absl::StatusOr<Tensors> Evaluation::ResultsFrom(const Node& node, const Tensors& args) const {
  std::vector<op::TensorType> types;
  for (ValueId id : node.outputs) {
    TW_ASSIGN(op::TensorType type, TypeAt(g_.values[id], sizes_));
    types.push_back(std::move(type));
  }
  const auto run = [&]() -> absl::StatusOr<Tensors> {
    if (node.body != nullptr) return Interpret(*node.body, args, sizes_);
    TW_ASSIGN(const op::OpSpec* spec, RowOf(node));
    if (!IsOpen(node.attrs)) return ResultsOf(*spec, args, node.attrs, types);
    return ResultsOf(*spec, args, AttrsAt(*spec, node.attrs, sizes_, types[0]), types);
  };
  absl::StatusOr<Tensors> results = run();
  if (!results.ok()) return support::WithContext(results.status(), node.name);
  return results;
}

absl::StatusOr<Tensors> Evaluation::Outputs() const {
  Tensors outputs;
  for (ValueId id : g_.outputs) outputs.push_back(*values_[id]);
  TW_TRY(TakeChecks(&outputs));
  return outputs;
}

// The sizes that checks of these values find.
absl::Status Evaluation::Find(const std::vector<ValueId>& made) {
  for (const auto& [name, place] : places_) {
    const ValueId looked_at = LookedAt(g_, place.check);
    if (std::ranges::find(made, looked_at) == made.end()) continue;
    const SizeCheck& check = g_.checks[place.check];
    const op::Dim more = check.expected[place.element] - op::Dim::Variable(name);
    const int64_t size = op::IntegersOf(*values_[looked_at])[place.element] - more.value();
    const auto range = g_.size_ranges.find(name);
    if (range != g_.size_ranges.end() && (size < range->second.min || size > range->second.max)) {
      return support::InvalidArgument(
          "graph.interp.found_size",
          StrCat(check.what, ": expected a size of ", range->second.min, " to ", range->second.max,
                 " for ", name, ", found ", size));
    }
    sizes_[name] = size;
  }
  return absl::OkStatus();
}

// Compares the results of checks, and removes them.
absl::Status Evaluation::TakeChecks(Tensors* outputs) const {
  const size_t kept = outputs->size() - g_.checks.size();
  for (size_t i = 0; i < g_.checks.size(); ++i) {
    const SizeCheck& check = g_.checks[i];
    const std::vector<int64_t> found = op::IntegersOf((*outputs)[kept + i]);
    std::vector<int64_t> expected;
    for (const op::Dim& dim : check.expected) {
      TW_ASSIGN(const int64_t size, dim.Evaluate(sizes_));
      expected.push_back(size);
    }
    if (found == expected) continue;
    return support::InvalidArgument(
        "graph.interp.stated_shape",
        StrCat(check.what, ": the model states the sizes [", support::Join(expected, ","),
               "], the inputs make [", support::Join(found, ","), "]"));
  }
  outputs->resize(kept);
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Interpret(const Graph& graph, const Tensors& inputs,
                                  const op::Sizes& sizes) {
  Evaluation evaluation(graph, sizes);
  TW_TRY(evaluation.Begin(inputs));
  for (const Node& node : graph.nodes) TW_TRY(evaluation.Step(node));
  return evaluation.Outputs();
}

}  // namespace tilewright::graph
