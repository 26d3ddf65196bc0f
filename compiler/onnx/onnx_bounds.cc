// Between which numbers an expression over size variables is, in the ranges of its variables.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
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

std::optional<int64_t> Importer::MostTrips(ValueId going,
                                           const std::vector<Counter>& values) const {
  const auto plain = [&](ValueId id) {  // through what changes no number
    const Node* node = MakerOf(id);
    while (node != nullptr &&
           (node->op == "reshape" || node->op == "cast" || node->op == "identity")) {
      id = node->inputs[0];
      node = MakerOf(id);
    }
    return id;
  };
  const Node* node = MakerOf(plain(going));
  if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
  if (node->op == "and") {  // either ends it
    const auto a = MostTrips(node->inputs[0], values), b = MostTrips(node->inputs[1], values);
    return a && b ? std::min(*a, *b) : a ? a : b;
  }
  if (node->op != "less") return std::nullopt;
  const std::optional<int64_t> limit = LargestElement(node->inputs[1]);
  for (const Counter& counter : values) {
    const ValueId next = plain(counter.next);
    const Node* add = MakerOf(next);
    if (!limit || plain(node->inputs[0]) != next || add == nullptr || add->op != "add") continue;
    const bool first = plain(add->inputs[0]) == counter.value;
    const bool counts = first || plain(add->inputs[1]) == counter.value;
    const std::optional<double> begin = ConstantScalar(plain(counter.init));
    const std::optional<double> step = ConstantScalar(plain(add->inputs[first ? 1 : 0]));
    if (!counts || !TypeOf(counter.value).dtype.is_int() || !begin || !step || *step < 1) continue;
    const double trips = std::ceil((static_cast<double>(*limit) - *begin) / *step);
    return static_cast<int64_t>(std::clamp(trips, 1.0, 0x1p40));
  }
  return std::nullopt;
}

ValueId Importer::BeforeExpand(ValueId id) const {
  const Node* node = MakerOf(id);
  const bool repeats = node != nullptr && node->op == "expand" &&
                       TypeOf(node->inputs[0]).rank() == TypeOf(id).rank();
  return repeats ? node->inputs[0] : id;
}

std::optional<int64_t> Importer::LargestElement(ValueId id) const {
  RangeFinder finder(graph_, [&](ValueId value) -> std::optional<NumberRange> {
    const op::TensorType& type = TypeOf(value);
    if (ValueOf(value).constant != nullptr && !IsDims(value)) return RangeOfConstant(value);
    std::optional<std::vector<Dim>> dims = ConstantDims(value);
    const Node* maker = dims ? nullptr : MakerOf(value);
    if (maker != nullptr && maker->op == "counting" && type.fixed() && type.elements() == 1) {
      dims = {op::GetDims(maker->attrs, "start")[0]};
    }
    if (!dims || dims->empty()) return std::nullopt;
    NumberRange range;
    for (const Dim& dim : *dims) {
      const auto low = Bound(dim, false), high = Bound(dim, true);
      if (!low || !high) return NumberRange{};
      const auto least = static_cast<double>(*low), most = static_cast<double>(*high);
      const bool first = &dim == &dims->front();
      range = first ? NumberRange{least, most}
                    : NumberRange{std::min(range.low, least), std::max(range.high, most)};
    }
    return range;
  });
  constexpr double kMost = 0x1p40;
  const double high = finder.Of(id).high;
  if (!TypeOf(id).dtype.is_int() || !(high < kMost) || high < -kMost) return std::nullopt;
  return static_cast<int64_t>(std::floor(high));
}

// Of the elements of a small constant.
std::optional<NumberRange> Importer::RangeOfConstant(ValueId id) const {
  constexpr int64_t kMostRead = 1 << 12;
  const Value& value = ValueOf(id);
  if (value.constant == nullptr || value.type.elements() > kMostRead) return std::nullopt;
  const absl::StatusOr<op::RefTensor> tensor = op::FromBytes(value.type, value.constant->view());
  if (!tensor.ok() || tensor->values.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(tensor->values);
  return NumberRange{low, high};
}

Importer::Element Importer::ElementOf(ValueId list, int64_t i) const {
  Element at{list, i};
  while (TypeOf(at.of).fixed() && TypeOf(at.of).dtype.is_int() && !ConstantDims(at.of)) {
    const Node* node = MakerOf(at.of);
    const bool joins = node != nullptr && node->op == "concat" && TypeOf(at.of).rank() == 1;
    const bool same =
        node != nullptr && (node->op == "cast" || node->op == "identity" || node->op == "reshape");
    if (!joins && !same) break;
    size_t part = 0;
    for (; joins && at.index >= TypeOf(node->inputs[part]).elements(); ++part) {
      at.index -= TypeOf(node->inputs[part]).elements();
    }
    at.of = node->inputs[part];
  }
  return at;
}

std::optional<Dim> Importer::KnownElement(ValueId list, int64_t i) const {
  const auto [of, index] = ElementOf(list, i);
  if (const auto dims = ConstantDims(of)) return dims->at(static_cast<size_t>(index));
  const Node* node = MakerOf(of);
  if (node == nullptr || node->op != "counting") return std::nullopt;
  return op::GetDims(node->attrs, "start").at(0) + Dim(index * op::GetInt(node->attrs, "step", 1));
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
