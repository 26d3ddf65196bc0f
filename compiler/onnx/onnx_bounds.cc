// Between which numbers an expression over size variables is, in the ranges of its variables.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/dim_interval.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::FloorDivide;
using support::SizeInterval;

constexpr int64_t kMostDivisor = 1 << 20;

// Two expressions without quotients that enclose another one: low / over <= it <= high / over. So
// H - 2 * (H / 2) is from 0 to 1, although its parts grow without bound.
struct Enclosure {
  Dim low, high;
  int64_t over = 1;
  bool known = true;
  bool exact() const { return low == high; }
};
Enclosure Unknown() { return {0, 0, 1, false}; }
Enclosure Scaled(const Enclosure& e, int64_t by, int64_t over) {
  const Dim factor(by);
  const bool turns = by < 0;
  return {(turns ? e.high : e.low) * factor, (turns ? e.low : e.high) * factor, over, e.known};
}
Enclosure operator+(const Enclosure& a, const Enclosure& b) {
  const int64_t over = std::lcm(a.over, b.over);
  if (!a.known || !b.known || over > kMostDivisor) return Unknown();
  const Enclosure x = Scaled(a, over / a.over, over), y = Scaled(b, over / b.over, over);
  return {x.low + y.low, x.high + y.high, over, true};
}
Enclosure operator*(const Enclosure& a, const Enclosure& b) {
  if (!a.known || !b.known || a.over > kMostDivisor / b.over) return Unknown();
  const int64_t over = a.over * b.over;
  if (a.exact() && b.exact()) return {a.low * b.low, a.low * b.low, over, true};
  const Enclosure& factor = a.exact() ? a : b;
  const Enclosure& other = a.exact() ? b : a;
  if (!factor.exact() || !factor.low.is_constant()) return Unknown();
  return Scaled(other, factor.low.value(), over);
}
Enclosure Quotient(const Enclosure& e, int64_t divisor) {
  if (!e.known || e.over > kMostDivisor / divisor) return Unknown();
  // Whole numbers: what floor takes away is at most divisor - 1.
  return {e.low - Dim((divisor - 1) * e.over), e.high, e.over * divisor, true};
}

SizeInterval IntervalOf(const Dim& dim, const std::map<std::string, SizeRange>& ranges) {
  return support::IntervalOf(dim, [&](const std::string& variable) {
    const auto range = ranges.find(variable);
    if (range == ranges.end()) return SizeInterval{0, 0, false};
    return SizeInterval{range->second.min, range->second.max, true};
  });
}

using Numbers = std::vector<std::optional<int64_t>>;

// Of all numbers; nothing where one is not known.
std::optional<int64_t> LargestOfAll(const Numbers& numbers) {
  if (std::ranges::any_of(numbers, [](const auto& n) { return !n; })) return std::nullopt;
  return numbers.empty() ? std::nullopt : *std::ranges::max_element(numbers);
}
// Of those that are known.
std::optional<int64_t> SmallestOfAny(const Numbers& numbers) {
  std::optional<int64_t> smallest;
  for (const auto& n : numbers) {
    if (n && (!smallest || *n < *smallest)) smallest = n;
  }
  return smallest;
}

// Rows whose elements are elements of the first operand.
bool OnlyMoves(std::string_view row) {
  return row == "identity" || row == "reshape" || row == "slice" || row == "gather" ||
         row == "expand" || row == "transpose";
}

}  // namespace

bool Importer::MayBeNothing(const Dim& dim) const {
  return std::ranges::any_of(dim.variables(), [&](const std::string& variable) {
    const auto range = graph_.size_ranges.find(variable);
    return range != graph_.size_ranges.end() && !range->second.size.empty();
  });
}

const Node* Importer::MakerOf(ValueId id) const {
  const auto maker = std::find_if(graph_.nodes.rbegin(), graph_.nodes.rend(),
                                  [&](const Node& node) { return node.outputs[0] == id; });
  return maker == graph_.nodes.rend() ? nullptr : &*maker;
}

std::optional<int64_t> Importer::LargestElement(ValueId id, int depth) const {
  constexpr int kDeepest = 12;
  if (depth > kDeepest || !TypeOf(id).dtype.is_int()) return std::nullopt;
  if (const auto dims = ConstantDims(id)) {
    Numbers numbers;
    for (const Dim& dim : *dims) numbers.push_back(Bound(dim, true));
    return LargestOfAll(numbers);
  }
  const Node* made = MakerOf(id);
  if (made == nullptr) return std::nullopt;
  const Node& node = *made;
  const auto of = [&](const Node& reader) {
    Numbers numbers;
    for (ValueId operand : reader.inputs) numbers.push_back(LargestElement(operand, depth + 1));
    return numbers;
  };
  if (OnlyMoves(node.op) || node.op == "cast") return LargestElement(node.inputs[0], depth + 1);
  if (node.op == "counting" && TypeOf(id).elements() == 1) {
    return Bound(op::GetDims(node.attrs, "start")[0], true);
  }
  if (node.op == "min") return SmallestOfAny(of(node));
  if (node.op == "max" || node.op == "concat") return LargestOfAll(of(node));
  if (node.op != "reduce") return std::nullopt;
  const std::string kind = op::GetString(node.attrs, "kind", "");
  if (kind == "max") return LargestElement(node.inputs[0], depth + 1);
  // The least element of a list is at most the largest of any part.
  const Node* joined = MakerOf(node.inputs[0]);
  while (joined != nullptr && joined->op == "reshape") joined = MakerOf(joined->inputs[0]);
  const bool list =
      joined != nullptr && joined->op == "concat" && TypeOf(node.inputs[0]).rank() == 1;
  return kind == "min" && list ? SmallestOfAny(of(*joined)) : std::nullopt;
}

std::optional<int64_t> Importer::Bound(const Dim& dim, bool largest) const {
  if (dim.is_constant()) return dim.value();
  std::optional<int64_t> bound;
  if (const SizeInterval all = IntervalOf(dim, graph_.size_ranges); all.known) {
    bound = largest ? all.high : all.low;
  }
  const Enclosure enclosure = dim.Fold<Enclosure>(
      [](int64_t number) { return Enclosure{number, number, 1, true}; },
      [](const std::string& variable) {
        return Enclosure{Dim::Variable(variable), Dim::Variable(variable), 1, true};
      },
      Quotient);
  if (!enclosure.known) return bound;
  const SizeInterval all = IntervalOf(largest ? enclosure.high : enclosure.low, graph_.size_ranges);
  if (!all.known) return bound;
  const int64_t own =
      largest ? FloorDivide(all.high, enclosure.over) : -FloorDivide(-all.low, enclosure.over);
  if (!bound) return own;
  return largest ? std::min(*bound, own) : std::max(*bound, own);
}

}  // namespace tilewright::graph::onnx
