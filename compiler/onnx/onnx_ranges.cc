#include "compiler/onnx/onnx_ranges.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "compiler/graph/loops.h"
#include "compiler/graph/rewrite_util.h"

namespace tilewright::graph::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Pick = const double& (*)(const double&, const double&);
constexpr Pick kLess = std::min<double>, kMore = std::max<double>;

// The range from what `low` picks of all lows to what `high` picks of all highs.
NumberRange Picked(const std::vector<NumberRange>& all, Pick low, Pick high) {
  NumberRange range = all[0];
  for (const NumberRange& r : all) range = {low(range.low, r.low), high(range.high, r.high)};
  return range;
}
NumberRange Union(const std::vector<NumberRange>& all) { return Picked(all, kLess, kMore); }
NumberRange Largest(const std::vector<NumberRange>& all) { return Picked(all, kMore, kMore); }
NumberRange Smallest(const std::vector<NumberRange>& all) { return Picked(all, kLess, kLess); }

// Of several possible results; a NaN, such as of 0 times infinity, may be anything.
NumberRange Around(std::initializer_list<double> ends) {
  if (std::ranges::any_of(ends, [](double end) { return std::isnan(end); })) return {};
  return {std::min(ends), std::max(ends)};
}
template <typename F>
NumberRange Rising(const NumberRange& r, F f) {
  return {f(r.low), f(r.high)};
}

// A float result is rounded; whole numbers are exact as doubles, or not known.
NumberRange Rounded(const NumberRange& r, const op::TensorType& type) {
  constexpr double kExact = 0x1p53;
  if (!type.dtype.is_float()) {
    return {r.low > -kExact ? r.low : -kInfinity, r.high < kExact ? r.high : kInfinity};
  }
  constexpr double kSlack = 0x1p-20;
  return {r.low - std::abs(r.low) * kSlack, r.high + std::abs(r.high) * kSlack};
}

// Rows whose elements are elements of the first operand.
bool OnlyMoves(std::string_view row) {
  constexpr std::string_view kMoves[] = {"identity", "reshape",   "slice",
                                         "gather",   "gather_nd", "gather_elements",
                                         "expand",   "transpose", kLoopStackOp};
  return std::ranges::find(kMoves, row) != std::end(kMoves);
}

NumberRange Product(const NumberRange& a, const NumberRange& b) {
  return Around({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
}

}  // namespace

RangeFinder::RangeFinder(const Graph& graph, Known known)
    : g_(graph), known_(std::move(known)), producer_(Producers(graph)) {}

NumberRange RangeFinder::Of(ValueId id) {
  const auto known = found_.find(id);
  if (known != found_.end()) return known->second;
  constexpr int kDeepest = 200;
  if (depth_ == kDeepest) return {};
  ++depth_;
  const NumberRange range = Find(id);
  --depth_;
  return found_[id] = range;
}

NumberRange RangeFinder::Find(ValueId id) {
  if (const std::optional<NumberRange> known = known_(id)) return *known;
  const op::TensorType& type = g_.values[id].type;
  if (type.dtype.is_bool()) return {0, 1};
  const int maker = producer_[id];
  if (maker < 0) return {};
  return Rounded(OfNode(g_.nodes[static_cast<size_t>(maker)]), type);
}

std::vector<NumberRange> RangeFinder::OfAll(const std::vector<ValueId>& ids) {
  std::vector<NumberRange> all;
  for (const ValueId id : ids) all.push_back(Of(id));
  return all;
}

NumberRange RangeFinder::OfNode(const Node& node) {
  const std::string_view row = node.op;
  if (node.inputs.empty()) return {};
  const op::TensorType& type = g_.values[node.outputs[0]].type;
  const auto input = [&](size_t i) { return Of(node.inputs[i]); };
  if (OnlyMoves(row)) return row == kLoopStackOp ? input(1) : input(0);
  if (row == "concat") return Union(OfAll(node.inputs));
  if (row == "where") {
    const NumberRange holds = input(0);
    return holds.low > 0 ? input(1) : holds.high < 1 ? input(2) : Union({input(1), input(2)});
  }
  if (row == "max") return Largest(OfAll(node.inputs));
  if (row == "min") return Smallest(OfAll(node.inputs));
  if (row == "reduce") return OfReduction(node);
  if (row == "relu") return Largest({input(0), {0, 0}});
  if (row == "clip") {
    const double low = op::GetDouble(node.attrs, "min", -kInfinity);
    const double high = op::GetDouble(node.attrs, "max", kInfinity);
    return Smallest({Largest({input(0), {low, low}}), {high, high}});
  }
  if (row == "cast") {
    const bool whole = type.dtype.is_int() && !g_.values[node.inputs[0]].type.dtype.is_int();
    return whole ? Rising(input(0), [](double x) { return std::trunc(x); }) : input(0);
  }
  if (row == "floor") return Rising(input(0), [](double x) { return std::floor(x); });
  if (row == "ceil") return Rising(input(0), [](double x) { return std::ceil(x); });
  if (row == "round") return Rising(input(0), [](double x) { return std::nearbyint(x); });
  if (row == "sigmoid") return {0, 1};
  if (row == "tanh") return {-1, 1};
  const NumberRange a = input(0);
  if (row == "neg") return {-a.high, -a.low};
  if (row == "abs") {
    return {std::max({0.0, a.low, -a.high}), std::max(std::abs(a.low), std::abs(a.high))};
  }
  if (row == "add") return Around({a.low + input(1).low, a.high + input(1).high});
  if (row == "sub") return Around({a.low - input(1).high, a.high - input(1).low});
  if (row == "mul") return Product(a, input(1));
  if (row == "div") {
    const NumberRange b = input(1);
    return b.low > 0 || b.high < 0 ? Product(a, Around({1 / b.low, 1 / b.high})) : NumberRange{};
  }
  return {};
}

NumberRange RangeFinder::OfReduction(const Node& node) {
  const std::string kind = op::GetString(node.attrs, "kind", "");
  if (kind != "max" && kind != "min" && kind != "mean") return {};
  // The least element of a list is at most the largest of any part.
  ValueId list = node.inputs[0];
  const auto maker = [&] {
    return producer_[list] < 0 ? nullptr : &g_.nodes[static_cast<size_t>(producer_[list])];
  };
  while (maker() != nullptr && maker()->op == "reshape") list = maker()->inputs[0];
  const bool parts = maker() != nullptr && maker()->op == "concat" && kind != "mean" &&
                     g_.values[node.inputs[0]].type.rank() == 1;
  if (!parts) return Of(node.inputs[0]);
  const std::vector<NumberRange> all = OfAll(maker()->inputs);
  return kind == "max" ? Largest(all) : Smallest(all);
}

}  // namespace tilewright::graph::onnx
