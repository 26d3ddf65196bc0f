// What is known about one integer: an interval and a congruence. Two arithmetics of intervals: of
// values, sound where operations wrap, and of indices, whose ends may be unknown. Values; pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <limits>

#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// Both ends included. `Everything()` is the range of i64.
struct Interval {
  static constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t min = kLeast;
  int64_t max = kMost;

  bool operator==(const Interval&) const = default;
  static Interval Everything() { return {}; }
  static Interval Point(int64_t v) { return {v, v}; }
  bool is_point() const { return min == max; }
  bool is_bounded() const { return *this != Everything(); }
  bool has_both_ends() const { return min != kLeast && max != kMost; }
  bool Contains(int64_t v) const { return min <= v && v <= max; }
  bool Within(const Interval& o) const { return o.min <= min && max <= o.max; }
};
Interval Union(const Interval& a, const Interval& b);
Interval Intersect(const Interval& a, const Interval& b);  // of disjoint intervals: `a`

// Every value of a type (u64: of its bit patterns).
Interval TypeInterval(ir::DType type);
// Whether the intervals of a type are of its bit patterns read as i64: u64 only.
bool HasPatterns(ir::DType type);
// Rounds down. REQUIRES: b != 0.
__int128 FloorDivWide(__int128 a, __int128 b);

// The values of one integer operator; comparisons give an interval of {0, 1}. The whole type, with
// *wrapped set, where the operation may wrap.
Interval BinaryInterval(ir::ExprKind kind, ir::DType operand_type, const Interval& a,
                        const Interval& b, bool* wrapped = nullptr);

// value = remainder (mod modulus). modulus 1: nothing known; modulus 0: the constant `remainder`.
struct Congruence {
  int64_t modulus = 1;
  int64_t remainder = 0;
  bool operator==(const Congruence&) const = default;
};
// Of values that do not wrap. Nothing is known of what could overflow here.
Congruence AddCongruence(const Congruence& a, const Congruence& b, int sign = 1);
Congruence MulCongruence(const Congruence& a, const Congruence& b);
Congruence ModCongruence(const Congruence& a, int64_t divisor);  // REQUIRES: divisor > 0
Congruence UnionCongruence(const Congruence& a, const Congruence& b);

// Beyond any index that occurs. Index arithmetic of a program stays below it, so that it never
// wraps: an end that comes to it or goes past it is not known (kLeast, kMost).
inline constexpr int64_t kIndexLimit = int64_t{1} << 40;

// The values of a + b, a * factor and floordiv(a, divisor) of indices. REQUIRES: divisor > 0.
Interval AddIndices(Interval a, Interval b);
Interval ScaleIndices(Interval a, int64_t factor);
Interval FloorDivIndices(Interval a, int64_t divisor);

// How many values an interval holds, less one; kIndexLimit when that is not known. Sums and
// products of widths stop at kIndexLimit.
int64_t WidthOf(Interval a);
int64_t AddWidths(int64_t a, int64_t b);
int64_t MulWidths(int64_t a, int64_t b);

}  // namespace tilewright::analysis
