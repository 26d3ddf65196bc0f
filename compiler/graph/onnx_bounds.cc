// Between which numbers an expression over size variables is, in the ranges of its variables.
#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/graph/onnx_importer.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;

constexpr int64_t kMostDivisor = 1 << 20;

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Numbers from `low` to `high`; not known after an overflow.
struct Interval {
  int64_t low = 0, high = 0;
  bool known = true;
};
Interval operator+(const Interval& a, const Interval& b) {
  Interval sum{0, 0, a.known && b.known};
  sum.known = sum.known && !__builtin_add_overflow(a.low, b.low, &sum.low) &&
              !__builtin_add_overflow(a.high, b.high, &sum.high);
  return sum;
}
Interval operator*(const Interval& a, const Interval& b) {
  Interval product{INT64_MAX, INT64_MIN, a.known && b.known};
  for (const int64_t x : {a.low, a.high}) {
    for (const int64_t y : {b.low, b.high}) {
      int64_t value = 0;
      if (__builtin_mul_overflow(x, y, &value)) product.known = false;
      product.low = std::min(product.low, value);
      product.high = std::max(product.high, value);
    }
  }
  return product;
}

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

Interval IntervalOf(const Dim& dim, const std::map<std::string, SizeRange>& ranges) {
  return dim.Fold<Interval>([](int64_t number) { return Interval{number, number, true}; },
                            [&](const std::string& variable) {
                              const auto range = ranges.find(variable);
                              if (range == ranges.end()) return Interval{0, 0, false};
                              return Interval{range->second.min, range->second.max, true};
                            },
                            [](const Interval& numerator, int64_t divisor) {
                              return Interval{FloorDivide(numerator.low, divisor),
                                              FloorDivide(numerator.high, divisor),
                                              numerator.known};
                            });
}

}  // namespace

std::optional<int64_t> Importer::Bound(const Dim& dim, bool largest) const {
  if (dim.is_constant()) return dim.value();
  std::optional<int64_t> bound;
  if (const Interval all = IntervalOf(dim, graph_.size_ranges); all.known) {
    bound = largest ? all.high : all.low;
  }
  const Enclosure enclosure = dim.Fold<Enclosure>(
      [](int64_t number) { return Enclosure{number, number, 1, true}; },
      [](const std::string& variable) {
        return Enclosure{Dim::Variable(variable), Dim::Variable(variable), 1, true};
      },
      Quotient);
  if (!enclosure.known) return bound;
  const Interval all = IntervalOf(largest ? enclosure.high : enclosure.low, graph_.size_ranges);
  if (!all.known) return bound;
  const int64_t own =
      largest ? FloorDivide(all.high, enclosure.over) : -FloorDivide(-all.low, enclosure.over);
  if (!bound) return own;
  return largest ? std::min(*bound, own) : std::max(*bound, own);
}

}  // namespace tilewright::graph::onnx
