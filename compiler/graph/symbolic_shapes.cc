// Graphs with size variables: inference with equalities, and specialisation to fixed sizes.
#include "compiler/graph/symbolic_shapes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/loops.h"
#include "compiler/op/empty.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

absl::Status BadShapes(std::string_view reason, std::string_view detail) {
  return support::InvalidArgument(StrCat("graph.shape.", reason), detail);
}

// A fixed result has its sizes in the node's attributes.
void SpecializeNode(const Graph& g, Node* node) {
  if (node->outputs.empty()) return;
  const Value& result = g.values[node->outputs[0]];
  if (!result.type.fixed()) return;
  node->attrs = op::SpecializeAttrs(*op::FindOp(node->op), node->attrs, result.type);
}

// A variable that another takes the place of narrows its range; a number must lie in the range.
absl::Status SubstituteRanges(const std::map<std::string, op::Dim>& values,
                              std::map<std::string, SizeRange>* ranges) {
  for (const auto& [name, value] : values) {
    const auto own = ranges->find(name);
    if (own == ranges->end()) continue;
    const SizeRange range = own->second;
    ranges->erase(own);
    SizeRange left = range;
    const std::set<std::string> names = value.variables();
    const auto other = names.size() == 1 ? ranges->find(*names.begin()) : ranges->end();
    const op::Dim more = other == ranges->end() ? value : value - op::Dim::Variable(*names.begin());
    if (other != ranges->end() && more.is_constant()) {
      left = {std::max(range.min - more.value(), other->second.min),
              std::min(range.max - more.value(), other->second.max)};
      other->second.min = left.min;
      other->second.max = left.max;
    } else if (value.is_constant()) {
      left = {std::max(range.min, value.value()), std::min(range.max, value.value())};
    }
    if (left.min <= left.max) continue;
    return BadShapes("range", StrCat("expected ", name, " = ", value.ToText(), " in ", range.min,
                                     "..", range.max, ", found no such size"));
  }
  return absl::OkStatus();
}

// The variable that `a` is up to a number, unless `b` has it: a = b settles it. "" if there is
// none.
std::string VariableIn(const op::Dim& a, const op::Dim& b) {
  for (const std::string& name : a.variables()) {
    if ((a - op::Dim::Variable(name)).is_constant())
      return b.variables().contains(name) ? "" : name;
  }
  return "";
}

void SubstituteDims(const std::map<std::string, op::Dim>& values, std::vector<op::Dim>* dims) {
  for (op::Dim& dim : *dims) dim = dim.Substitute(values);
}

void SubstituteAttrs(const std::map<std::string, op::Dim>& values, op::Attrs* attrs) {
  for (auto& [name, value] : *attrs) {
    auto* dims = std::get_if<std::vector<op::Dim>>(&value);
    if (dims == nullptr) continue;
    SubstituteDims(values, dims);
    value = op::ShapeAttr(*dims);
  }
}

// One round over the nodes: dimensions of all results, equalities demanded on the way.
absl::StatusOr<std::vector<SizeEquality>> InferOnce(Graph* g) {
  constexpr size_t kMostText = 100;
  std::vector<SizeEquality> equal;
  for (Node& node : g->nodes) {
    op::DimEqualities own;
    TW_ASSIGN(op::TensorTypes results, ResultTypes(*g, node, &own));
    for (auto& [left, right] : own) {
      const bool known = std::any_of(equal.begin(), equal.end(), [&](const SizeEquality& e) {
        return e.left == left && e.right == right;
      });
      if (!known) equal.push_back({left, right, node.name.substr(0, kMostText)});
    }
    for (size_t i = 0; i < results.size() && i < node.outputs.size(); ++i) {
      g->values[node.outputs[i]].type = std::move(results[i]);
    }
    SpecializeNode(*g, &node);
  }
  return equal;
}

}  // namespace

absl::StatusOr<op::TensorTypes> ResultTypes(const Graph& g, const Node& node,
                                            op::DimEqualities* equal) {
  const op::OpSpec* spec = op::FindOp(node.op);
  if (spec == nullptr) {
    return BadShapes(
        "operator",
        StrCat("expected a plain operator in a graph with size variables, found ", node.op));
  }
  op::TensorTypes inputs;
  for (ValueId id : node.inputs) inputs.push_back(g.values[id].type);
  auto results = op::InferTypes(*spec, inputs, node.attrs, equal);
  if (!results.ok()) return support::WithContext(results.status(), node.name);
  return results;
}

bool IsOpen(const op::Attrs& attrs) {
  return std::any_of(attrs.begin(), attrs.end(), [](const auto& attr) {
    return std::holds_alternative<std::vector<op::Dim>>(attr.second);
  });
}

op::Attrs AttrsAt(const op::OpSpec& spec, op::Attrs attrs, const op::Sizes& sizes,
                  const op::TensorType& result) {
  SubstituteAttrs({sizes.begin(), sizes.end()}, &attrs);
  return op::SpecializeAttrs(spec, attrs, result);
}

bool IsSymbolic(const Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(),
                     [](const Value& value) { return !value.type.fixed(); }) ||
         std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return IsOpen(node.attrs); });
}

op::Sizes MaximaOf(const Graph& graph) {
  op::Sizes maxima;
  for (const auto& [name, range] : graph.size_ranges) maxima[name] = range.max;
  return maxima;
}

std::set<std::string> SizeVariables(const Graph& graph) {
  std::set<std::string> names;
  for (const Value& value : graph.values) {
    for (const op::Dim& dim : value.type.shape) names.merge(dim.variables());
  }
  for (const Node& node : graph.nodes) {
    for (const auto& [name, value] : node.attrs) {
      const auto* dims = std::get_if<std::vector<op::Dim>>(&value);
      for (const op::Dim& dim : dims == nullptr ? std::vector<op::Dim>{} : *dims) {
        names.merge(dim.variables());
      }
    }
  }
  for (const SizeCheck& check : graph.checks) {
    for (const op::Dim& dim : check.expected) names.merge(dim.variables());
  }
  return names;
}

absl::StatusOr<Graph> InferShapes(Graph g) {
  // Of two variables that of an input stays, then a size from 0 on, as it may be that of a state,
  // else the smaller name.
  const std::set<std::string> of_inputs = InputVariables(g);
  const auto stays = [&](const std::string& name, const std::string& other) {
    if (of_inputs.contains(name) != of_inputs.contains(other)) return of_inputs.contains(name);
    const auto from_zero = [&g](const std::string& variable) {
      const auto range = g.size_ranges.find(variable);
      return range != g.size_ranges.end() && !range->second.size.empty();
    };
    return from_zero(name) != from_zero(other) ? from_zero(name) : name < other;
  };
  // Every round removes a variable, or is the last.
  for (size_t rounds = SizeVariables(g).size() + 1; rounds > 0; --rounds) {
    TW_ASSIGN(g.equal_sizes, InferOnce(&g));
    std::map<std::string, op::Dim> values;
    for (const auto& [a, b, what] : g.equal_sizes) {
      const std::string left = VariableIn(a, b), right = VariableIn(b, a);
      // A number replaces any variable.
      if (!right.empty() && (left.empty() || stays(left, right))) {
        values.emplace(right, a - (b - op::Dim::Variable(right)));
      } else if (!left.empty()) {
        values.emplace(left, b - (a - op::Dim::Variable(left)));
      } else {
        continue;
      }
      break;
    }
    if (values.empty()) break;
    TW_TRY(SubstituteRanges(values, &g.size_ranges));
    for (Node& node : g.nodes) SubstituteAttrs(values, &node.attrs);
    for (SizeCheck& check : g.checks) SubstituteDims(values, &check.expected);
    for (ValueId id : g.inputs) {
      op::TensorType& type = g.values[id].type;
      SubstituteDims(values, &type.shape);
      TW_TRY(op::CheckType(type));
    }
  }
  g = OrderLoops(OrderFound(std::move(g)));
  TW_TRY(Verify(g));
  return g;
}

absl::StatusOr<Graph> Specialize(const Graph& graph, const op::Sizes& sizes) {
  const std::set<std::string> variables = SizeVariables(graph);
  for (const auto& [name, size] : sizes) {
    if (variables.count(name) == 0 || size < 1) {
      return BadShapes("size", StrCat("expected sizes above 0 of ", support::Join(variables, ", "),
                                      ", found ", name, "=", size));
    }
  }
  const std::map<std::string, op::Dim> values(sizes.begin(), sizes.end());
  std::set<std::string> open;  // sizes that a run finds may stay so
  for (const auto& [name, place] : FoundSizes(graph)) {
    if (!sizes.contains(name)) open.insert(name);
  }
  const auto is_open = [&](const op::Dim& dim) {
    return !dim.is_constant() && std::ranges::any_of(dim.variables(), [&](const auto& name) {
      return open.contains(name);
    });
  };
  Graph g = graph;
  g.equal_sizes.clear();
  for (SizeCheck& check : g.checks) SubstituteDims(values, &check.expected);
  for (Value& value : g.values) {
    for (op::Dim& dim : value.type.shape) {
      if (is_open(dim)) {
        dim = dim.Substitute(values);
        continue;
      }
      absl::StatusOr<int64_t> extent = dim.Evaluate(sizes);
      if (!extent.ok()) {
        return BadShapes("size",
                         support::StatusText(support::WithContext(extent.status(), value.name)));
      }
      dim = *extent;
    }
    TW_TRY(op::CheckShape(value.type));
  }
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    op::DimEqualities equal;
    TW_TRY(ResultTypes(graph, graph.nodes[n], &equal).status());
    for (const auto& [a, b] : equal) {
      if (is_open(a) || is_open(b)) {
        g.equal_sizes.push_back({a.Substitute(values), b.Substitute(values), graph.nodes[n].name});
        continue;
      }
      TW_ASSIGN(const int64_t x, a.Evaluate(sizes));
      TW_ASSIGN(const int64_t y, b.Evaluate(sizes));
      if (x == y) continue;
      return BadShapes("unequal", StrCat(graph.nodes[n].name, ": expected ", a.ToText(), " and ",
                                         b.ToText(), " to be equal, found ", x, " and ", y));
    }
    SubstituteAttrs(values, &g.nodes[n].attrs);
    SpecializeNode(g, &g.nodes[n]);
  }
  TW_TRY(Verify(g));
  return g;
}

}  // namespace tilewright::graph
