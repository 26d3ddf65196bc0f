// The reference interpreter of the graph IR: every node by op::Reference. Sizes that a run finds
// are known behind the node that makes what their check looks at.
#include <algorithm>
#include <set>
#include <span>
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

const Loop* Evaluation::LoopAt(size_t n) const {
  const auto loop = std::ranges::find(loops_, n, &Loop::begin);
  return loop == loops_.end() ? nullptr : &*loop;
}

absl::StatusOr<size_t> Evaluation::Step(size_t n) {
  if (const Loop* loop = LoopAt(n)) {
    TW_TRY(RunLoop(*loop));
    return loop->end + 1;
  }
  TW_TRY(Compute(g_.nodes[n]));
  return n + 1;
}

absl::Status Evaluation::Run(size_t begin, size_t end) {
  for (size_t n = begin; n < end;) {
    TW_ASSIGN(n, Step(n));
  }
  return absl::OkStatus();
}

// All trips, or one more than there is room for: checks of sizes see what counts them, if there are
// any.
absl::Status Evaluation::RunLoop(const Loop& loop) {
  std::vector<Tensors> parts(loop.stacked.size());
  size_t room = SIZE_MAX;
  for (const Loop::Stacked& stacked : loop.stacked) {
    TW_ASSIGN(const op::TensorType type, TypeAt(g_.values[stacked.whole], sizes_));
    room = std::min(room, static_cast<size_t>(type.size(0)));
  }
  const ValueId going = loop.carried[0].value;
  for (size_t trip = 0; values_[going]->values[0] != 0 && trip <= room; ++trip) {
    // A loop in this one begins behind its first node.
    if (loop.begin < loop.end) TW_TRY(Compute(g_.nodes[loop.begin]));
    TW_TRY(Run(loop.begin + 1, loop.end));
    if (trip == room) full_ = loop.stacked[0].whole;
    for (size_t i : loop.checks) {
      if (trip < room) TW_TRY(Check(i));
    }
    for (size_t i = 0; i < parts.size() && trip < room; ++i) {
      parts[i].push_back(*values_[loop.stacked[i].part]);
    }
    Tensors next;
    for (const Loop::Carried& carried : loop.carried) next.push_back(*values_[carried.next]);
    for (size_t i = 0; i < next.size(); ++i) values_[loop.carried[i].value] = std::move(next[i]);
  }
  for (size_t i = 0; i < parts.size(); ++i) TW_TRY(StackTrips(loop.stacked[i].whole, parts[i]));
  values_[g_.nodes[loop.end].outputs[0]] = values_[going];
  return absl::OkStatus();
}

// Of trips that there were not: zeros.
absl::Status Evaluation::StackTrips(ValueId whole, const Tensors& parts) {
  TW_ASSIGN(const op::TensorType type, TypeAt(g_.values[whole], sizes_));
  std::string bytes;
  for (const op::RefTensor& part : parts) bytes += op::ToBytes(part);
  bytes.resize(static_cast<size_t>(type.bytes()), '\0');
  TW_ASSIGN(values_[whole], op::FromBytes(type, bytes));
  return absl::OkStatus();
}

absl::Status Evaluation::Compute(const Node& node) {
  if (IsLoopNode(node)) {
    // A value is what it begins with; what trips stacked is there already.
    if (node.op != kLoopStackOp) values_[node.outputs[0]] = values_[node.inputs.back()];
    return absl::OkStatus();
  }
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
  std::set<size_t> checked;  // in each trip of a loop
  for (const Loop& loop : loops_) checked.insert(loop.checks.begin(), loop.checks.end());
  for (size_t i = 0; i < g_.checks.size(); ++i) {
    if (!checked.contains(i)) TW_TRY(Check(i));
  }
  Tensors outputs;
  for (ValueId id : std::span(g_.outputs).first(g_.outputs.size() - g_.checks.size())) {
    outputs.push_back(*values_[id]);
  }
  if (full_ < 0) return outputs;
  return support::InvalidArgument(
      "graph.interp.trips", StrCat(support::Quote(g_.values[full_].name), ": expected at most ",
                                   op::ToText(values_[full_]->type), " of trips, found more"));
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

absl::Status Evaluation::Check(size_t check) const {
  const auto& [expected, what] = g_.checks[check];
  const std::vector<int64_t> found = op::IntegersOf(*values_[LookedAt(g_, check)]);
  std::vector<int64_t> sizes;
  for (const op::Dim& dim : expected) {
    TW_ASSIGN(const int64_t size, dim.Evaluate(sizes_));
    sizes.push_back(size);
  }
  if (found == sizes) return absl::OkStatus();
  return support::InvalidArgument(
      "graph.interp.stated_shape",
      StrCat(what, ": the model states the sizes [", support::Join(sizes, ","),
             "], the inputs make [", support::Join(found, ","), "]"));
}

absl::StatusOr<Tensors> Interpret(const Graph& graph, const Tensors& inputs,
                                  const op::Sizes& sizes) {
  Evaluation evaluation(graph, sizes);
  TW_TRY(evaluation.Begin(inputs));
  for (size_t n = 0; n < graph.nodes.size();) {
    TW_ASSIGN(n, evaluation.Step(n));
  }
  return evaluation.Outputs();
}

}  // namespace tilewright::graph
