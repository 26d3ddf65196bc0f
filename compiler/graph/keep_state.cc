#include "compiler/graph/keep_state.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::Quote;
using support::StrCat;

// Where a kernel may write: TW_BUFFER_ALIGNMENT of the runtime.
constexpr int64_t kEntryAlignment = 64;

absl::Status BadState(std::string_view reason, std::string_view detail) {
  return support::InvalidArgument(StrCat("graph.state.", reason), detail);
}

class StateKeeper {
 public:
  explicit StateKeeper(Graph g) : g_(std::move(g)) {}

  absl::StatusOr<Graph> Run(const std::map<std::string, std::string>& pairs) {
    for (const auto& [past, present] : pairs) {
      TW_TRY(Keep(past, present));
    }
    for (ValueId id : g_.outputs) {
      for (const op::Dim& dim : g_.values[id].type.shape) {
        if (!dim.variables().contains(variable_)) continue;
        return BadState("output",
                        StrCat("expected outputs whose sizes do not depend on the length "
                               "of the state, found ",
                               Quote(g_.values[id].name), " of ", op::ToText(g_.values[id].type)));
      }
    }
    Graph result = Compact(g_);
    TW_TRY(Verify(result));
    return result;
  }

 private:
  std::optional<ValueId> Named(const std::vector<ValueId>& ids, const std::string& name) const {
    for (ValueId id : ids) {
      if (g_.values[id].name == name) return id;
    }
    return std::nullopt;
  }

  // The node that makes a value, behind copies.
  int MakerOf(ValueId id) const {
    const std::vector<int> producers = Producers(g_);
    int maker = producers[id];
    while (maker >= 0 && g_.nodes[maker].op == "identity") {
      maker = producers[g_.nodes[maker].inputs[0]];
    }
    return maker;
  }

  absl::Status Keep(const std::string& past, const std::string& present) {
    const std::optional<ValueId> in = Named(g_.inputs, past), out = Named(g_.outputs, present);
    if (!in || !out) {
      return BadState("name", StrCat("expected an input and an output of the model, found ",
                                     Quote(past), " and ", Quote(present)));
    }
    const int at = MakerOf(*out);
    const bool joins = at >= 0 && g_.nodes[at].op == "concat" && g_.nodes[at].inputs.size() == 2 &&
                       g_.nodes[at].inputs[0] == *in;
    const auto readers = Readers(g_)[*in];
    if (!joins || readers.size() != 1) {
      return BadState("form", StrCat("expected ", Quote(present), " as a Concat of ", Quote(past),
                                     " and new entries, which alone reads ", Quote(past),
                                     ", found another form"));
    }
    TW_TRY(CheckLength(*in, at));
    Replace(*in, *out, at);
    return absl::OkStatus();
  }

  size_t AxisOf(int concat) const {
    const int64_t axis = op::GetInt(g_.nodes[concat].attrs, "axis", 0);
    const auto rank = g_.values[g_.nodes[concat].outputs[0]].type.rank();
    return static_cast<size_t>(axis < 0 ? axis + rank : axis);
  }

  absl::Status CheckLength(ValueId in, int concat) {
    const size_t axis = AxisOf(concat);
    const op::TensorType& type = g_.values[in].type;
    const std::string name = g_.values[in].name;
    const std::set<std::string> variables = type.shape[axis].variables();
    const std::string variable = variables.size() == 1 ? *variables.begin() : "";
    const auto range = g_.size_ranges.find(variable);
    const op::Dim total = g_.values[g_.nodes[concat].outputs[0]].type.shape[axis];
    if (range == g_.size_ranges.end() || range->second.size.empty() ||
        type.shape[axis] != op::Dim::Variable(variable) - 1 ||
        (!variable_.empty() && (variable_ != variable || total_ != total))) {
      return BadState("length", StrCat("expected dimension ", axis, " of ", Quote(name),
                                       " open from 0 on (--shape NAME=0..512), and the same number "
                                       "of entries in all of the state, found ",
                                       op::ToText(type)));
    }
    variable_ = variable;
    total_ = total;
    int64_t bytes = type.dtype.bytes();
    for (size_t d = 0; d < type.shape.size(); ++d) {
      if (d != axis) bytes *= type.shape[d].constant().value_or(1);
      if (d != axis && type.shape[d].variables().contains(variable)) bytes = 1;
    }
    if (bytes % kEntryAlignment == 0) return absl::OkStatus();
    return BadState("entry", StrCat("expected entries of a multiple of ", kEntryAlignment,
                                    " bytes in ", Quote(name), ", found ", op::ToText(type)));
  }

  // present = concat(past, x) → transpose(append(past', transpose(x))), entries first.
  void Replace(ValueId in, ValueId out, int at) {
    const Node concat = g_.nodes[at];
    const size_t axis = AxisOf(at);
    const size_t rank = g_.values[in].type.shape.size();
    std::vector<int64_t> first(rank), back(rank);
    std::iota(first.begin(), first.end(), 0);
    std::rotate(first.begin(), first.begin() + static_cast<int64_t>(axis),
                first.begin() + static_cast<int64_t>(axis) + 1);
    for (size_t d = 0; d < rank; ++d) back[static_cast<size_t>(first[d])] = static_cast<int64_t>(d);
    const auto permuted = [&](ValueId id) {
      op::TensorType type = g_.values[id].type;
      for (size_t d = 0; d < rank; ++d) {
        type.shape[d] = g_.values[id].type.shape[static_cast<size_t>(first[d])];
      }
      return type;
    };
    const std::string name = g_.values[in].name;
    const ValueId entries = AddValue(&g_, name + "_entries", permuted(concat.inputs[1]));
    const ValueId whole = AddValue(&g_, name + "_list", permuted(concat.outputs[0]));
    g_.values[in].type = permuted(in);
    const std::vector<Node> nodes = {
        MakeNode(g_.values[entries].name, "transpose", {concat.inputs[1]}, entries,
                 {{"perm", first}}),
        MakeNode(g_.values[whole].name, std::string(kAppendOp), {in, entries}, whole),
        MakeNode(concat.name, "transpose", {whole}, concat.outputs[0], {{"perm", back}})};
    g_.nodes.erase(g_.nodes.begin() + at);
    g_.nodes.insert(g_.nodes.begin() + at, nodes.begin(), nodes.end());
    std::erase(g_.outputs, out);
  }

  Graph g_;
  std::string variable_;  // of the length
  op::Dim total_;
};

}  // namespace

bool IsAppend(const Node& node) { return node.op == kAppendOp; }

std::vector<ValueId> StateValues(const Graph& graph) {
  std::vector<ValueId> values;
  for (const Node& node : graph.nodes) {
    if (!IsAppend(node)) continue;
    values.push_back(node.inputs[1]);
    values.push_back(node.outputs[0]);
  }
  return values;
}

std::map<std::string, std::string> KnownStates(const Graph& graph) {
  std::set<std::string> outputs;
  for (ValueId id : graph.outputs) outputs.insert(graph.values[id].name);
  std::map<std::string, std::string> pairs;
  for (ValueId id : graph.inputs) {
    const std::string& name = graph.values[id].name;
    for (const auto& [past, present] :
         {std::pair{"past_key_values.", "present."},
          std::pair{"past_key_values.", "present_key_values."},
          std::pair{"past_key_", "present_key_"}, std::pair{"past_value_", "present_value_"}}) {
      if (!name.starts_with(past)) continue;
      const std::string other = present + name.substr(std::string_view(past).size());
      if (outputs.contains(other)) pairs[name] = other;
    }
  }
  return pairs;
}

absl::StatusOr<Graph> KeepState(Graph graph, const std::map<std::string, std::string>& pairs) {
  return StateKeeper(std::move(graph)).Run(pairs);
}

}  // namespace tilewright::graph
