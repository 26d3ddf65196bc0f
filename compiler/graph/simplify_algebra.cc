// Algebraic simplification: one table of local rules over a node and the nodes that compute its
// operands. A rule keeps every value, infinities and NaN included, up to the sign of a zero; where
// it combines two constants, one rounding takes the place of two.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr int kMaxRulesPerNode = 64;  // a chain of rules on one node; every rule makes it simpler

// A node and what stands before it; rules change the node or name the value that equals its result.
class Site {
 public:
  Site(Graph* g, Node* node, const std::vector<const Node*>& producer)
      : g_(*g), node_(*node), producer_(producer) {}

  Node& node() { return node_; }
  ValueId in(size_t i) const { return node_.inputs[i]; }
  const op::TensorType& type(ValueId id) const { return g_.values[id].type; }
  const op::TensorType& out_type() const { return type(node_.outputs[0]); }
  bool is_float() const { return out_type().dtype.is_float(); }
  // The node that computes a value when it is an `op` (any where empty); null else.
  const Node* Before(ValueId id, std::string_view op = "") const {
    // Rules add constants, which nothing computes.
    const bool known = id < static_cast<ValueId>(producer_.size());
    const Node* node = known ? producer_[id] : nullptr;
    return node != nullptr && (op.empty() || node->op == op) ? node : nullptr;
  }
  std::optional<std::vector<double>> Constant(ValueId id) const {
    if (!IsConstant(g_, id)) return std::nullopt;
    absl::StatusOr<op::RefTensor> tensor = ConstantTensor(g_, id);
    if (!tensor.ok()) return std::nullopt;
    return std::move(tensor->values);
  }
  bool AllAre(ValueId id, double value) const {
    const auto values = Constant(id);
    return values &&
           std::all_of(values->begin(), values->end(), [&](double v) { return v == value; });
  }
  // The node's result is this value. False where the types differ (a broadcast does something).
  bool Same(ValueId id) {
    if (type(id) != out_type()) return false;
    alias_ = id;
    return true;
  }
  ValueId alias() const { return alias_; }
  void Become(std::string_view op, std::vector<ValueId> inputs, op::Attrs attrs = {}) {
    node_.op = std::string(op);
    node_.inputs = std::move(inputs);
    node_.attrs = std::move(attrs);
  }
  void BecomeView(ValueId of) {
    Become(kViewOp, {of}, {{"shape", op::ShapeAttr(out_type().shape)}});
  }
  ValueId AddConstantLike(ValueId like, std::vector<double> values, std::string_view suffix) {
    return AddRounded(&g_, StrCat(g_.values[like].name, suffix), type(like), std::move(values));
  }
  // `op` of two constants, rounded once; nothing where the result leaves the numbers that the two
  // operations one after the other could pass through, or grows.
  std::optional<ValueId> Combine(std::string_view op, ValueId a, ValueId b) {
    absl::StatusOr<op::RefTensor> x = ConstantTensor(g_, a), y = ConstantTensor(g_, b);
    if (!x.ok() || !y.ok()) return std::nullopt;
    const int64_t largest = std::max(x->type.elements(), y->type.elements());
    absl::StatusOr<std::vector<op::RefTensor>> result =
        op::Reference(*op::FindOp(op), std::vector<op::RefTensor>{*x, *y}, {});
    if (!result.ok() || (*result)[0].type.elements() != largest) return std::nullopt;
    for (double v : (*result)[0].values) {
      const bool tiny = v != 0 && std::fabs(v) < std::numeric_limits<float>::min();
      if (!std::isfinite(v) || tiny) return std::nullopt;
    }
    if (op == "mul") {  // no factor may vanish
      for (const op::RefTensor* t : {&*x, &*y, &(*result)[0]}) {
        if (std::count(t->values.begin(), t->values.end(), 0.0) > 0) return std::nullopt;
      }
    }
    return AddTensor(&g_, g_.values[a].name + "_folded", (*result)[0]);
  }

 private:
  Graph& g_;
  Node& node_;
  const std::vector<const Node*>& producer_;
  ValueId alias_ = -1;
};

struct Rule {
  std::string_view name, op;  // op "" = every operator
  bool (*apply)(Site&);       // false: nothing was changed
};

bool ConstantToTheRight(Site& s) {
  if (!s.Constant(s.in(0)) || s.Constant(s.in(1))) return false;
  std::swap(s.node().inputs[0], s.node().inputs[1]);
  return true;
}

// (x op c) op d → x op (c op d)
bool MergeConstants(Site& s) {
  const Node* before = s.Before(s.in(0), s.node().op);
  if (!s.is_float() || before == nullptr || !s.Constant(s.in(1))) return false;
  if (!s.Constant(before->inputs[1])) return false;
  const std::vector<ValueId> inner = before->inputs;
  const auto folded = s.Combine(s.node().op, inner[1], s.in(1));
  if (!folded) return false;
  s.Become(s.node().op, {inner[0], *folded}, s.node().attrs);
  return true;
}

bool SubOfConstant(Site& s) {
  auto values = s.Constant(s.in(1));
  if (!s.is_float() || !values || s.Constant(s.in(0))) return false;
  for (double& v : *values) v = -v;
  s.Become("add", {s.in(0), s.AddConstantLike(s.in(1), std::move(*values), "_negated")});
  return true;
}

bool DivByPowerOfTwo(Site& s) {
  auto values = s.Constant(s.in(1));
  if (!s.is_float() || !values) return false;
  for (double& v : *values) {
    int exponent = 0;
    if (std::fabs(std::frexp(v, &exponent)) != 0.5 || std::abs(exponent) > 12) return false;
    v = 1 / v;
  }
  s.Become("mul", {s.in(0), s.AddConstantLike(s.in(1), std::move(*values), "_inverse")});
  return true;
}

template <int kOperand>
bool NegatedOperand(Site& s) {
  const Node* negation = s.Before(s.in(kOperand), "neg");
  if (negation == nullptr || !s.is_float()) return false;
  const ValueId other = s.in(1 - kOperand), inner = negation->inputs[0];
  s.Become(s.node().op == "add" ? "sub" : "add", {other, inner});
  return true;
}

bool NegatedTwice(Site& s) {
  const Node* before = s.Before(s.in(0), "neg");
  return before != nullptr && s.Same(before->inputs[0]);
}

bool AbsOfNegated(Site& s) {
  const Node* before = s.Before(s.in(0), "neg");
  const bool has_sign = s.out_type().dtype.code != ir::TypeCode::kUInt;
  if (before == nullptr || !has_sign) return false;
  s.node().inputs[0] = before->inputs[0];
  return true;
}

bool TwiceIsOnce(Site& s) { return s.Before(s.in(0), s.node().op) != nullptr && s.Same(s.in(0)); }

bool SameOperands(Site& s) { return s.in(0) == s.in(1) && s.Same(s.in(0)); }

struct Bounds {
  double low, high;
};

std::optional<Bounds> BoundsOf(const Node& node) {
  const double inf = std::numeric_limits<double>::infinity();
  if (node.op == "relu") return Bounds{0, inf};
  if (node.op != "clip") return std::nullopt;
  const Bounds b{op::GetDouble(node.attrs, "min", -inf), op::GetDouble(node.attrs, "max", inf)};
  return b.low <= b.high ? std::optional<Bounds>(b) : std::nullopt;
}

// relu and clip over relu and clip are one of them.
bool NestedBounds(Site& s) {
  const auto outer = BoundsOf(s.node());
  const Node* before = s.Before(s.in(0));
  const auto inner = before != nullptr ? BoundsOf(*before) : std::nullopt;
  if (!outer || !inner) return false;
  if (inner->low >= outer->low && inner->high <= outer->high) return s.Same(s.in(0));
  const ValueId from = before->inputs[0];
  const Bounds b{std::clamp(inner->low, outer->low, outer->high),
                 std::clamp(inner->high, outer->low, outer->high)};
  if (b.low == 0 && std::isinf(b.high)) {
    s.Become("relu", {from});
  } else {
    op::Attrs attrs;
    if (std::isfinite(b.low)) attrs["min"] = b.low;
    if (std::isfinite(b.high)) attrs["max"] = b.high;
    s.Become("clip", {from}, std::move(attrs));
  }
  return true;
}

bool TransposeOfTranspose(Site& s) {
  const Node* before = s.Before(s.in(0), "transpose");
  if (before == nullptr) return false;
  const Ints outer = op::GetInts(s.node().attrs, "perm", {});
  const Ints inner = op::GetInts(before->attrs, "perm", {});
  Ints perm;
  for (int64_t d : outer) perm.push_back(inner[d]);
  s.Become("transpose", {before->inputs[0]}, {{"perm", perm}});
  return true;
}

// The dimensions longer than one keep their order: nothing moves in memory.
bool TransposeIsView(Site& s) {
  int64_t last = -1;
  for (int64_t d : op::GetInts(s.node().attrs, "perm", {})) {
    if (s.type(s.in(0)).shape[d] == op::Dim(1)) continue;
    if (d < last) return false;
    last = d;
  }
  if (s.Same(s.in(0))) return true;
  s.BecomeView(s.in(0));
  return true;
}

bool SliceOfSlice(Site& s) {
  const Node* before = s.Before(s.in(0), "slice");
  if (before == nullptr) return false;
  std::vector<op::Dim> starts = op::GetDims(s.node().attrs, "starts");
  Ints steps = op::GetInts(s.node().attrs, "steps", {});
  const std::vector<op::Dim> inner_starts = op::GetDims(before->attrs, "starts");
  const Ints inner_steps = op::GetInts(before->attrs, "steps", {});
  for (size_t d = 0; d < starts.size(); ++d) {
    starts[d] = inner_starts[d] + starts[d] * op::Dim(inner_steps[d]);
    // A single element needs no step, and the product might leave the range.
    steps[d] = s.out_type().shape[d] == op::Dim(1) ? 1 : steps[d] * inner_steps[d];
  }
  s.Become("slice", {before->inputs[0]},
           {{"starts", op::ShapeAttr(starts)},
            {"steps", steps},
            {"sizes", op::ShapeAttr(s.out_type().shape)}});
  return true;
}

bool SliceOfAll(Site& s) {
  for (int64_t step : op::GetInts(s.node().attrs, "steps", {})) {
    if (step < 0) return false;
  }
  return s.Same(s.in(0));
}

bool PadOfNothing(Site& s) {
  for (int64_t amount : op::GetInts(s.node().attrs, "pads", {})) {
    if (amount != 0) return false;
  }
  return s.Same(s.in(0));
}

bool ConcatOfOne(Site& s) { return s.node().inputs.size() == 1 && s.Same(s.in(0)); }

// Every reduced dimension is one long; a product or mean of one value is the value.
bool ReduceOfOne(Site& s) {
  if (!op::SameElements(s.type(s.in(0)), s.out_type())) return false;
  if (s.Same(s.in(0))) return true;
  s.BecomeView(s.in(0));
  return true;
}

constexpr Rule kRules[] = {
    {"constant_to_the_right", "add", ConstantToTheRight},
    {"constant_to_the_right", "mul", ConstantToTheRight},
    {"sub_of_constant", "sub", SubOfConstant},
    {"sub_of_negation", "sub", NegatedOperand<1>},
    {"add_of_negation", "add", NegatedOperand<1>},
    {"negation_plus", "add", NegatedOperand<0>},
    {"merge_constants", "add", MergeConstants},
    {"merge_constants", "mul", MergeConstants},
    {"add_zero", "add", [](Site& s) { return s.AllAre(s.in(1), 0) && s.Same(s.in(0)); }},
    {"mul_one", "mul", [](Site& s) { return s.AllAre(s.in(1), 1) && s.Same(s.in(0)); }},
    {"div_one", "div", [](Site& s) { return s.AllAre(s.in(1), 1) && s.Same(s.in(0)); }},
    {"pow_one", "pow", [](Site& s) { return s.AllAre(s.in(1), 1) && s.Same(s.in(0)); }},
    {"div_by_power_of_two", "div", DivByPowerOfTwo},
    {"negated_twice", "neg", NegatedTwice},
    {"abs_of_negation", "abs", AbsOfNegated},
    {"twice_is_once", "abs", TwiceIsOnce},
    {"twice_is_once", "floor", TwiceIsOnce},
    {"twice_is_once", "ceil", TwiceIsOnce},
    {"twice_is_once", "round", TwiceIsOnce},
    {"same_operands", "max", SameOperands},
    {"same_operands", "min", SameOperands},
    {"nested_bounds", "relu", NestedBounds},
    {"nested_bounds", "clip", NestedBounds},
    {"transpose_of_transpose", "transpose", TransposeOfTranspose},
    {"transpose_is_view", "transpose", TransposeIsView},
    {"slice_of_slice", "slice", SliceOfSlice},
    {"slice_of_all", "slice", SliceOfAll},
    {"pad_of_nothing", "pad", PadOfNothing},
    {"concat_of_one", "concat", ConcatOfOne},
    {"reduce_of_one", "reduce", ReduceOfOne},
};

// Applies rules until none fits or the node equals another value (returned; -1 = none does).
ValueId Simplify(Graph* g, Node* node, const std::vector<const Node*>& producer) {
  for (int round = 0; round < kMaxRulesPerNode; ++round) {
    Site site(g, node, producer);
    const bool changed = std::any_of(std::begin(kRules), std::end(kRules), [&](const Rule& rule) {
      return rule.op == node->op && rule.apply(site);
    });
    if (!changed || site.alias() >= 0) return site.alias();
  }
  return -1;
}

}  // namespace

absl::StatusOr<Graph> SimplifyAlgebra(Graph g, const GraphPassContext&) {
  std::vector<Node> nodes = std::move(g.nodes);
  g.nodes.clear();
  const std::set<ValueId> outputs = OutputSet(g);
  std::vector<ValueId> replacement(g.values.size());
  for (size_t id = 0; id < replacement.size(); ++id) replacement[id] = static_cast<ValueId>(id);
  std::vector<const Node*> producer(g.values.size(), nullptr);
  for (Node& node : nodes) {
    for (ValueId& id : node.inputs) id = replacement[id];
    const ValueId same = node.outputs.size() == 1 ? Simplify(&g, &node, producer) : -1;
    producer.resize(g.values.size(), nullptr);  // rules add constants
    replacement.resize(g.values.size(), -1);
    if (same >= 0 && outputs.count(node.outputs[0]) == 0) {
      replacement[node.outputs[0]] = same;
      continue;
    }
    if (same >= 0) {
      node = MakeNode(node.name, "identity", {same}, node.outputs[0]);
    }
    for (ValueId id : node.outputs) producer[id] = &node;
  }
  for (Node& node : nodes) {
    const bool replaced = node.outputs.size() == 1 && replacement[node.outputs[0]] >= 0 &&
                          replacement[node.outputs[0]] != node.outputs[0];
    if (!replaced) g.nodes.push_back(std::move(node));
  }
  return Compact(g);
}

}  // namespace tilewright::graph
