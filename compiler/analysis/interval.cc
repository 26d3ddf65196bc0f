#include "compiler/analysis/interval.h"

#include <algorithm>

#include "compiler/ir/numeric.h"

namespace tilewright::analysis {
namespace {

using Wide = __int128;

// The interval around [min, max] with known ends below the limit. An end past the limit on the
// other side is cut to it, which is sound and keeps it known.
Interval Limited(Wide min, Wide max) {
  return {min <= -kIndexLimit ? Interval::kLeast
                              : static_cast<int64_t>(std::min<Wide>(min, kIndexLimit)),
          max >= kIndexLimit ? Interval::kMost
                             : static_cast<int64_t>(std::max<Wide>(max, -kIndexLimit))};
}

}  // namespace

Interval Union(const Interval& a, const Interval& b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

Interval Intersect(const Interval& a, const Interval& b) {
  Interval r{std::max(a.min, b.min), std::min(a.max, b.max)};
  return r.min <= r.max ? r : a;
}

Interval AddIndices(Interval a, Interval b) {
  const bool no_min = a.min == Interval::kLeast || b.min == Interval::kLeast;
  const bool no_max = a.max == Interval::kMost || b.max == Interval::kMost;
  return Limited(no_min ? Wide{Interval::kLeast} : Wide{a.min} + b.min,
                 no_max ? Wide{Interval::kMost} : Wide{a.max} + b.max);
}

Interval ScaleIndices(Interval a, int64_t factor) {
  if (factor == 0) return Interval::Point(0);
  const Wide x = Wide{a.min} * factor, y = Wide{a.max} * factor;
  return factor > 0 ? Limited(x, y) : Limited(y, x);
}

Interval FloorDivIndices(Interval a, int64_t divisor) {
  return {a.min == Interval::kLeast ? a.min : ir::FloorDivInt(a.min, divisor),
          a.max == Interval::kMost ? a.max : ir::FloorDivInt(a.max, divisor)};
}

int64_t WidthOf(Interval a) {
  if (!a.has_both_ends()) return kIndexLimit;
  return static_cast<int64_t>(std::min<Wide>(Wide{a.max} - a.min, kIndexLimit));
}

int64_t AddWidths(int64_t a, int64_t b) { return std::min(kIndexLimit, a + b); }

int64_t MulWidths(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a >= kIndexLimit / b ? kIndexLimit : a * b;
}

}  // namespace tilewright::analysis
