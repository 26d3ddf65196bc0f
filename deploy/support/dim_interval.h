// Between which numbers a dimension is, where its variables are in ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "deploy/support/dim.h"

namespace tilewright::support {

// Numbers from `low` to `high`, both included; not known after an overflow.
struct SizeInterval {
  int64_t low = 0, high = 0;
  bool known = true;
};

inline SizeInterval operator+(const SizeInterval& a, const SizeInterval& b) {
  SizeInterval sum{0, 0, a.known && b.known};
  sum.known = sum.known && !__builtin_add_overflow(a.low, b.low, &sum.low) &&
              !__builtin_add_overflow(a.high, b.high, &sum.high);
  return sum;
}

inline SizeInterval operator*(const SizeInterval& a, const SizeInterval& b) {
  SizeInterval product{INT64_MAX, INT64_MIN, a.known && b.known};
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

inline int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// `range` gives the interval of a variable by its name. Encloses the dimension; not always tightly,
// as each occurrence of a variable counts for itself.
template <typename Range>
SizeInterval IntervalOf(const Dim& dim, const Range& range) {
  return dim.Fold<SizeInterval>(
      [](int64_t number) { return SizeInterval{number, number, true}; }, range,
      [](const SizeInterval& numerator, int64_t divisor) {
        return SizeInterval{FloorDivide(numerator.low, divisor),
                            FloorDivide(numerator.high, divisor), numerator.known};
      });
}

}  // namespace tilewright::support
