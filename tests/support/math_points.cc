#include "tests/support/math_points.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tilewright::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

double Ulps(float actual, double exact) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : kInfinity;
  float rounded = static_cast<float>(exact);
  if (std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(rounded)) return 0;
  if (std::isinf(rounded) || std::isinf(actual) || std::isnan(actual)) {
    // The largest finite number and infinity are neighbours.
    float largest = std::copysign(std::numeric_limits<float>::max(), rounded);
    return (actual == largest || rounded == largest) && !std::isnan(actual) ? 1 : kInfinity;
  }
  double ulp = std::nextafter(std::fabs(rounded), kInfinity) - std::fabs(rounded);
  return std::fabs(actual - exact) / ulp;
}

std::vector<float> MathPoints() {
  std::vector<float> points = {0.0f,      -0.0f,     kInfinity,       -kInfinity,      kNan,
                               1.0f,      -1.0f,     0x1p-149f,       -0x1p-149f,      0x1p-126f,
                               88.72283f, 88.72284f, -87.33655f,      -103.97f,        -103.98f,
                               89.0f,     -104.0f,   0x1.fffffep127f, -0x1.fffffep127f};
  // A prime stride meets every exponent with many mantissas.
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 10007) {
    points.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  // Where networks live, and where the argument reductions change their minds.
  for (int i = -60000; i <= 60000; ++i) points.push_back(static_cast<float>(i) * 1e-4f);
  while (points.size() % 16 != 0) points.push_back(0.5f);
  return points;
}

}  // namespace tilewright::tests
