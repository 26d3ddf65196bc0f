#include "deploy/runtime/input_gen.h"

#include <bit>
#include <cmath>
#include <string>

#include "deploy/runtime/compare.h"
#include "deploy/runtime/half_float.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

using module::Distribution;
using module::DType;

constexpr double kTwoTo53 = 0x1p53;

uint64_t Word(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

double Uniform(uint64_t seed, uint64_t index, double a, double b) {
  const double u = static_cast<double>(Word(seed, index) >> 11) * 0x1p-53;
  const double width = b - a;
  const double step = width * u;
  return a + step;
}

double Normal(uint64_t seed, uint64_t index, double mean, double deviation) {
  // Twelve 16-bit uniforms as integers: their sum is exact in any order.
  uint64_t sum = 0;
  for (uint64_t k = 0; k < 3; ++k) {
    const uint64_t w = Word(seed, 3 * index + k);
    sum += (w & 0xFFFF) + ((w >> 16) & 0xFFFF) + ((w >> 32) & 0xFFFF) + (w >> 48);
  }
  const double standard = static_cast<double>(sum) * 0x1p-16 - 6.0;
  const double step = deviation * standard;
  return mean + step;
}

double IntRange(uint64_t seed, uint64_t index, double a, double b) {
  const auto low = static_cast<int64_t>(a);
  const uint64_t span = static_cast<uint64_t>(static_cast<int64_t>(b) - low) + 1;
  return static_cast<double>(low + static_cast<int64_t>(Word(seed, index) % span));
}

struct Limits {
  double low;
  double high;
};

Limits LimitsOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kFloat64:
      return {-0x1.fffffffffffffp1022, 0x1.fffffffffffffp1022};
    case DType::kFloat32:
      return {-0x1.fffffep127, 0x1.fffffep127};
    case DType::kBFloat16:
      return {-0x1.fep127, 0x1.fep127};
    case DType::kFloat16:
      return {-65504, 65504};
    case DType::kInt64:
      return {-kTwoTo53, kTwoTo53};
    case DType::kUInt64:
      return {0, kTwoTo53};
    default: {
      const int bits = static_cast<int>(8 * module::DTypeBytes(dtype));
      return module::IsSignedInt(dtype)
                 ? Limits{-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1}
                 : Limits{0, std::ldexp(1.0, bits) - 1};
    }
  }
}

absl::Status CheckRange(DType dtype, const Distribution& d) {
  const auto bad = [](std::string_view reason, std::string_view detail) {
    return support::InvalidArgument("runtime.input_gen." + std::string(reason), detail);
  };
  if (!std::isfinite(d.a) || !std::isfinite(d.b)) return bad("parameters", "expected finite ones");
  double low = d.a;
  double high = d.b;
  switch (d.kind) {
    case Distribution::Kind::kUniform:
      if (d.a >= d.b) return bad("parameters", "uniform: expected a < b");
      // Integers truncate, so b itself is never reached.
      if (!module::IsFloat(dtype) && dtype != DType::kBool) high = std::ceil(d.b) - 1;
      break;
    case Distribution::Kind::kNormal:
      if (d.b < 0) return bad("parameters", "normal: expected a deviation >= 0");
      low = d.a - 6 * d.b;
      high = d.a + 6 * d.b;
      break;
    case Distribution::Kind::kIntRange:
      if (d.a > d.b || d.a != std::floor(d.a) || d.b != std::floor(d.b) ||
          std::abs(d.a) >= kTwoTo53 || std::abs(d.b) >= kTwoTo53) {
        return bad("parameters", "int_range: expected integers a <= b below 2^53");
      }
      break;
  }
  const Limits limits = LimitsOf(dtype);
  if (std::trunc(low) < limits.low || std::trunc(high) > limits.high) {
    return bad("range", "values do not fit " + std::string(module::DTypeName(dtype)));
  }
  return absl::OkStatus();
}

// The largest value of the float type below `b`, for uniform draws that rounding carries to b.
double LargestBelow(DType dtype, double b) {
  switch (dtype) {
    case DType::kFloat32: {
      const auto rounded = static_cast<float>(b);
      return rounded < b ? rounded : std::nextafterf(rounded, -INFINITY);
    }
    case DType::kFloat16:
    case DType::kBFloat16: {
      const bool half = dtype == DType::kFloat16;
      uint16_t bits = half ? DoubleToHalf(b) : DoubleToBFloat16(b);
      const auto decode = [half](uint16_t x) {
        return half ? HalfToDouble(x) : BFloat16ToDouble(x);
      };
      if (decode(bits) < b) return decode(bits);
      if ((bits & 0x7FFF) == 0) return decode(0x8001);
      return decode(static_cast<uint16_t>((bits & 0x8000) != 0 ? bits + 1 : bits - 1));
    }
    default:
      return std::nextafter(b, -INFINITY);
  }
}

double Draw(const Distribution& d, uint64_t seed, uint64_t index) {
  switch (d.kind) {
    case Distribution::Kind::kUniform:
      return Uniform(seed, index, d.a, d.b);
    case Distribution::Kind::kNormal:
      return Normal(seed, index, d.a, d.b);
    case Distribution::Kind::kIntRange:
      return IntRange(seed, index, d.a, d.b);
  }
  return 0;
}

bool DrawBool(const Distribution& d, double value) {
  switch (d.kind) {
    case Distribution::Kind::kUniform:
      return value > (d.a + d.b) / 2;
    case Distribution::Kind::kNormal:
      return value > d.a;
    case Distribution::Kind::kIntRange:
      return std::fmod(value, 2.0) != 0;
  }
  return false;
}

}  // namespace

absl::Status GenerateInput(DType dtype, int64_t count, const Distribution& distribution,
                           uint64_t seed, void* out) {
  TW_TRY(CheckRange(dtype, distribution));
  const bool clamp = module::IsFloat(dtype) && distribution.kind == Distribution::Kind::kUniform;
  const double below = clamp ? LargestBelow(dtype, distribution.b) : 0;
  for (int64_t i = 0; i < count; ++i) {
    double value = Draw(distribution, seed, static_cast<uint64_t>(i));
    if (dtype == DType::kBool) value = DrawBool(distribution, value) ? 1 : 0;
    StoreDouble(dtype, value, out, i);
    if (clamp && ElementAsDouble(dtype, out, i) >= distribution.b) {
      StoreDouble(dtype, below, out, i);
    }
  }
  return absl::OkStatus();
}

Distribution DefaultDistribution(DType dtype) {
  if (module::IsFloat(dtype)) return {Distribution::Kind::kUniform, -1, 1};
  if (dtype == DType::kBool) return {Distribution::Kind::kIntRange, 0, 1};
  // Signed bytes are weights: sums of either sign, so that what is clipped afterwards tells more.
  if (dtype == DType::kInt8) return {Distribution::Kind::kIntRange, -7, 7};
  return {Distribution::Kind::kIntRange, 0, 7};
}

}  // namespace tilewright::runtime
