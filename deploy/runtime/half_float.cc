#include "deploy/runtime/half_float.h"

#include <bit>
#include <cmath>
#include <limits>

namespace tilewright::runtime {
namespace {

// A binary format with a sign bit, exponent bits and mantissa bits, 16 in all.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
};
constexpr Format kHalf{5, 10};
constexpr Format kBFloat16{8, 7};

double Decode(uint16_t bits, const Format& f) {
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const uint32_t exponent = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1u << f.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const uint32_t significand = exponent == 0 ? mantissa : mantissa | (1u << f.mantissa_bits);
  const int scale = static_cast<int>(exponent == 0 ? 1 : exponent) - f.bias() - f.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(significand), scale);
}

uint16_t Encode(double value, const Format& f) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000u : 0);
  if (std::isnan(value)) {
    return static_cast<uint16_t>(sign | f.infinity() | (1u << (f.mantissa_bits - 1)));
  }
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | f.infinity());
  if (magnitude == 0) return sign;
  // The value in units of its last kept place; nearbyint rounds ties to even. A carry out of the
  // significand moves into the exponent by the addition below.
  int exponent = std::ilogb(magnitude);
  const int min_exponent = 1 - f.bias();
  if (exponent < min_exponent) exponent = min_exponent;
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  if (exponent > f.bias()) return static_cast<uint16_t>(sign | f.infinity());
  const auto significand = static_cast<uint32_t>(units);
  // (exponent field - 1) << m plus the significand with its hidden bit; subnormals have field 0.
  const uint32_t bits =
      (static_cast<uint32_t>(exponent - min_exponent) << f.mantissa_bits) + significand;
  return static_cast<uint16_t>(sign | (bits < f.infinity() ? bits : f.infinity()));
}

}  // namespace

double HalfToDouble(uint16_t bits) { return Decode(bits, kHalf); }

double BFloat16ToDouble(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t DoubleToHalf(double value) { return Encode(value, kHalf); }
uint16_t DoubleToBFloat16(double value) { return Encode(value, kBFloat16); }

}  // namespace tilewright::runtime
