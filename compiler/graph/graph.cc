#include "compiler/graph/graph.h"

#include <set>
#include <utility>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/loops.h"
#include "compiler/graph/storage_map.h"
#include "compiler/graph/symbolic_shapes.h"
#include "compiler/op/empty.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

absl::Status Bad(std::string_view reason, std::string_view detail) {
  return support::InvalidArgument(StrCat("graph.verify.", reason), detail);
}

std::string NodeText(const Node& node) {
  return StrCat("node ", support::Quote(node.name), " (", node.op, ")");
}

// Follows the definition order of a graph.
class Verifier {
 public:
  Verifier(const Graph& graph, int depth) : g_(graph), depth_(depth) {}

  absl::Status Run() {
    if (depth_ > 1) return Bad("nesting", "expected fused bodies without fused nodes inside");
    defined_.assign(g_.values.size(), false);
    TW_TRY(Names());
    for (ValueId id : g_.inputs) {
      TW_TRY(Define(id, "graph input"));
      if (g_.values[id].constant != nullptr) {
        return Bad("input", StrCat("expected inputs without data, found constant ",
                                   support::Quote(g_.values[id].name)));
      }
    }
    for (size_t id = 0; id < g_.values.size(); ++id) TW_TRY(CheckValue(static_cast<ValueId>(id)));
    for (const Node& node : g_.nodes) TW_TRY(CheckNode(node));
    if (g_.outputs.empty()) return Bad("outputs", "expected at least one output, found none");
    std::set<ValueId> outputs;
    for (ValueId id : g_.outputs) {
      TW_TRY(Used(id, "a graph output"));
      if (!outputs.insert(id).second) {
        return Bad("outputs", StrCat("expected different values as outputs, found ",
                                     support::Quote(g_.values[id].name), " twice"));
      }
    }
    TW_TRY(Checks());
    for (size_t id = 0; id < g_.values.size(); ++id) {
      if (!defined_[id]) {
        return Bad("undefined", StrCat("expected every value to be defined, found none for ",
                                       support::Quote(g_.values[id].name)));
      }
    }
    TW_TRY(CheckLoops(g_));
    return CheckViews(g_);
  }

 private:
  // The last outputs are what checks look at.
  absl::Status Checks() {
    if (g_.checks.empty()) return absl::OkStatus();
    if (depth_ > 0 || g_.checks.size() >= g_.outputs.size()) {
      return Bad("checks", "expected fewer checks than outputs, and none in a fused body");
    }
    for (size_t i = 0; i < g_.checks.size(); ++i) {
      const Value& found = g_.values[LookedAt(g_, i)];
      const std::vector<int64_t> shape = {static_cast<int64_t>(g_.checks[i].expected.size())};
      if (found.type != op::TensorType{ir::kI64, shape}) {
        return Bad("checks", StrCat("expected ", shape[0], " i64 numbers to check, found ",
                                    support::Quote(found.name), ", ", op::ToText(found.type)));
      }
    }
    return CheckFoundOrder(g_);
  }
  absl::Status Names() {
    std::set<std::string_view> names;
    for (const Value& value : g_.values) {
      if (!names.insert(value.name).second) {
        return Bad("name", StrCat("expected unique value names, found ", support::Quote(value.name),
                                  " twice"));
      }
    }
    return absl::OkStatus();
  }
  absl::Status InRange(ValueId id, std::string_view what) {
    if (id >= 0 && id < static_cast<ValueId>(g_.values.size())) return absl::OkStatus();
    return Bad("value_id",
               StrCat("expected value ids below ", g_.values.size(), " in ", what, ", found ", id));
  }
  absl::Status Define(ValueId id, std::string_view what) {
    TW_TRY(InRange(id, what));
    if (defined_[id]) {
      return Bad("defined_twice",
                 StrCat("expected one definition of ", support::Quote(g_.values[id].name),
                        ", found another in ", what));
    }
    defined_[id] = true;
    return absl::OkStatus();
  }
  absl::Status Used(ValueId id, std::string_view what) {
    TW_TRY(InRange(id, what));
    if (defined_[id]) return absl::OkStatus();
    return Bad("order", StrCat("expected ", support::Quote(g_.values[id].name),
                               " to be defined before ", what, ", found it undefined"));
  }
  absl::Status CheckValue(ValueId id) {
    const Value& value = g_.values[id];
    TW_TRY(depth_ > 0 ? op::CheckType(value.type) : op::CheckShape(value.type));
    if (value.constant == nullptr) return absl::OkStatus();
    if (!value.type.fixed()) {
      return Bad("constant", StrCat("expected fixed dimensions of ", support::Quote(value.name),
                                    ", found ", op::ToText(value.type)));
    }
    TW_TRY(Define(id, "constant"));
    if (value.constant->size() != value.type.bytes()) {
      return Bad("constant",
                 StrCat("expected ", value.type.bytes(), " bytes for ", support::Quote(value.name),
                        ", found ", value.constant->size()));
    }
    return absl::OkStatus();
  }
  absl::Status CheckNode(const Node& node) {
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) {
      TW_TRY(Used(id, NodeText(node)));
      types.push_back(g_.values[id].type);
    }
    for (ValueId id : node.outputs) TW_TRY(Define(id, NodeText(node)));
    TW_ASSIGN(const op::TensorTypes results, TypesOf(node, types));
    if (results.size() != node.outputs.size()) {
      return Bad("outputs", StrCat("expected ", results.size(), " outputs of ", NodeText(node),
                                   ", found ", node.outputs.size()));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const op::TensorType& declared = g_.values[node.outputs[i]].type;
      if (results[i] == declared) continue;
      return Bad("type", StrCat("expected ", op::ToText(results[i]), " from ", NodeText(node),
                                ", found ", op::ToText(declared)));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<op::TensorTypes> TypesOf(const Node& node,
                                          const std::vector<op::TensorType>& types) {
    if (node.op != kFusedOp) {
      if (op::FindOp(node.op) == nullptr) {
        return Bad("operator", StrCat("expected a known operator, found ", NodeText(node)));
      }
      if (node.body != nullptr) {
        return Bad("body",
                   StrCat("expected a body in fused nodes only, found one in ", NodeText(node)));
      }
      op::DimEqualities equal;  // hold for some sizes only; Specialize checks them
      return ResultTypes(g_, node, &equal);
    }
    if (node.body == nullptr) {
      return Bad("body", StrCat("expected a body, found none in ", NodeText(node)));
    }
    TW_TRY(Verifier(*node.body, depth_ + 1).Run());
    std::vector<op::TensorType> wanted, results;
    for (ValueId id : node.body->inputs) wanted.push_back(node.body->values[id].type);
    for (ValueId id : node.body->outputs) results.push_back(node.body->values[id].type);
    if (wanted != types) {
      return Bad("body", StrCat("expected operands of the body's input types in ", NodeText(node),
                                ", found others"));
    }
    return results;
  }

  const Graph& g_;
  const int depth_;
  std::vector<bool> defined_;
};

std::string UniqueName(const Graph& graph, const std::string& name) {
  auto taken = [&](const std::string& candidate) {
    for (const Value& value : graph.values) {
      if (value.name == candidate) return true;
    }
    return false;
  };
  if (!taken(name)) return name;
  for (int suffix = 1;; ++suffix) {
    std::string candidate = StrCat(name, ".", suffix);
    if (!taken(candidate)) return candidate;
  }
}

}  // namespace

ValueId AddValue(Graph* graph, std::string name, op::TensorType type) {
  Value value;
  value.name = UniqueName(*graph, name);
  value.type = std::move(type);
  graph->values.push_back(std::move(value));
  return static_cast<ValueId>(graph->values.size()) - 1;
}

std::string_view ConstantData::view() const {
  std::call_once(made_, [this] {
    if (make_ == nullptr) return;
    bytes_ = make_();
    make_ = nullptr;  // and with it what the bytes were made of
    TW_CHECK(static_cast<int64_t>(bytes_.size()) == size_) << size_ << " bytes";
  });
  return bytes_;
}

ValueId AddConstant(Graph* graph, std::string name, op::TensorType type, std::string bytes) {
  TW_CHECK(static_cast<int64_t>(bytes.size()) == type.bytes()) << name << " " << op::ToText(type);
  const ValueId id = AddValue(graph, std::move(name), std::move(type));
  graph->values[id].constant = std::make_shared<ConstantData>(std::move(bytes));
  return id;
}

ValueId AddConstant(Graph* graph, std::string name, op::TensorType type,
                    std::function<std::string()> make) {
  const int64_t bytes = type.bytes();
  const ValueId id = AddValue(graph, std::move(name), std::move(type));
  graph->values[id].constant = std::make_shared<ConstantData>(bytes, std::move(make));
  return id;
}

std::vector<std::vector<int>> Readers(const Graph& graph) {
  std::vector<std::vector<int>> readers(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId id : graph.nodes[n].inputs) readers[id].push_back(static_cast<int>(n));
  }
  return readers;
}

Graph Compact(const Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (ValueId id : graph.inputs) live[id] = true;
  for (ValueId id : graph.outputs) live[id] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (ValueId id : node.outputs) keep[n] = keep[n] || live[id];
    if (!keep[n]) continue;
    for (ValueId id : node.inputs) live[id] = true;
    for (ValueId id : node.outputs) live[id] = true;
  }
  Graph result;
  result.name = graph.name;
  result.sources = graph.sources;
  result.checks = graph.checks;
  result.size_ranges = graph.size_ranges;
  result.equal_sizes = graph.equal_sizes;
  std::vector<ValueId> renumbered(graph.values.size(), -1);
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (!live[id]) continue;
    renumbered[id] = static_cast<ValueId>(result.values.size());
    result.values.push_back(graph.values[id]);
  }
  auto map = [&](std::vector<ValueId> ids) {
    for (ValueId& id : ids) id = renumbered[id];
    return ids;
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!keep[n]) continue;
    Node node = graph.nodes[n];
    node.inputs = map(node.inputs);
    node.outputs = map(node.outputs);
    result.nodes.push_back(std::move(node));
  }
  result.inputs = map(graph.inputs);
  result.outputs = map(graph.outputs);
  return result;
}

std::vector<std::string> SourcesOf(const Graph& graph, const Node& node) {
  std::vector<std::string> found;
  if (graph.sources == nullptr) return found;
  const auto add = [&](const std::string& name) {
    auto it = graph.sources->find(name);
    for (size_t end = name.size(); it == graph.sources->end() && end > 0; --end) {
      if (name[end - 1] == '_' || name[end - 1] == '.') {
        it = graph.sources->find(name.substr(0, end - 1));
      }
    }
    if (it == graph.sources->end()) return;
    if (std::find(found.begin(), found.end(), it->second) == found.end()) {
      found.push_back(it->second);
    }
  };
  if (node.body == nullptr) add(node.name);
  if (node.body != nullptr) {
    for (const Node& inner : node.body->nodes) add(inner.name);
  }
  return found;
}

absl::Status Verify(const Graph& graph) { return Verifier(graph, 0).Run(); }

bool StructuralEqual(const Graph& a, const Graph& b) {
  return CanonicalText(a) == CanonicalText(b);
}

uint64_t StructuralHash(const Graph& graph) { return support::StableHash64(CanonicalText(graph)); }

double Flops(const Graph& graph) {
  double total = 0;
  for (const Node& node : graph.nodes) {
    if (node.body != nullptr) {
      total += Flops(*node.body);
      continue;
    }
    std::vector<op::TensorType> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(graph.values[id].type);
    for (ValueId id : node.outputs) outputs.push_back(graph.values[id].type);
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec != nullptr) total += op::Flops(*spec, inputs, outputs, node.attrs);
  }
  return total;
}

}  // namespace tilewright::graph
