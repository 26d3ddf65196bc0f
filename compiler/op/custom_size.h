// Arithmetic on sizes that a text asks for: dimensions with a bound of their coefficients, so that
// nothing overflows. Plain values; thread-safe. Inside of custom operators.
#pragma once

#include <cmath>
#include <optional>

#include "compiler/op/tensor_type.h"

namespace tilewright::op::custom {

inline constexpr double kMaxMagnitude = 281474976710656.0;  // 2^48

struct CheckedSize {
  Dim dim;
  double magnitude = 0;  // no coefficient, and no value where all variables are 1, is larger

  static CheckedSize Of(const Dim& dim) {
    return {dim, dim.Fold<double>([](int64_t n) { return std::abs(static_cast<double>(n)); },
                                  [](const std::string&) { return 1.0; },
                                  [](double numerator, int64_t) { return numerator; })};
  }
};
using MaybeSize = std::optional<CheckedSize>;

// nullopt: an operand has no value, or the result is too large for one.
inline MaybeSize Add(const MaybeSize& a, const MaybeSize& b) {
  if (!a || !b || a->magnitude + b->magnitude > kMaxMagnitude) return std::nullopt;
  return CheckedSize{a->dim + b->dim, a->magnitude + b->magnitude};
}
inline MaybeSize Multiply(const MaybeSize& a, const MaybeSize& b) {
  if (!a || !b || a->magnitude * b->magnitude > kMaxMagnitude) return std::nullopt;
  const Dim factors[] = {a->dim, b->dim};
  const std::optional<Dim> product = Dim::Product(factors);
  if (!product) return std::nullopt;
  return CheckedSize{*product, a->magnitude * b->magnitude};
}
inline MaybeSize Negate(const MaybeSize& a) { return Multiply(a, CheckedSize{Dim(-1), 1}); }
inline MaybeSize FloorDivide(const MaybeSize& a, int64_t divisor) {
  if (!a || divisor < 1) return std::nullopt;
  return CheckedSize{a->dim.FloorDiv(divisor), a->magnitude};
}

}  // namespace tilewright::op::custom
