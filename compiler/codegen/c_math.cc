#include "compiler/codegen/c_math.h"

#include <span>

#include "compiler/codegen/c_emitter.h"
#include "compiler/codegen/math_tables.h"

namespace tilewright::codegen {
namespace {

// `c[0] + x (c[1] + x (…))`, by multiply-adds of one rounding.
std::string Polynomial(std::span<const float> c, std::string_view x) {
  std::string sum = FloatLiteral(c.back(), /*is_double=*/false);
  for (size_t i = c.size() - 1; i-- > 0;)
    sum = "@fma(" + sum + ", " + std::string(x) + ", " + FloatLiteral(c[i], false) + ")";
  return sum;
}

std::string WithPrefix(std::string text, std::string_view prefix) {
  return Replaced(std::move(text), "@", prefix);
}

}  // namespace

// tanh x = 1 - 2 / (e^2x + 1), which loses what is small near 0.
std::string TanhText(std::string_view prefix) {
  return WithPrefix(
      "static inline float @tanh(float x) {\n"
      "  const float square = x * x;\n"
      "  if (square < 0.4f)\n"
      "    return @fma(x * square, " +
          Polynomial(kTanhTable, "square") +
          ", x);\n"
          "  const float far = 1.0f - 2.0f / (@exp(2.0f * @fabs(x)) + 1.0f);\n"
          "  return x < 0.0f ? -far : far;\n"
          "}\n",
      prefix);
}

// e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which loses nothing near zero and below.
std::string Expm1Text(std::string_view prefix) {
  return WithPrefix(
      "static inline float @expm1(float x) {\n"
      "  if (x > 1.0f) return @exp(x) - 1.0f;\n"
      "  const float t = @tanh(0.5f * x);\n"
      "  return 2.0f * t / (1.0f - t);\n"
      "}\n",
      prefix);
}

// erf x = 1 - e^P(x) beyond 1; it is 1 from 4 on. NaN stays.
std::string ErfText(std::string_view prefix) {
  return WithPrefix(
      "static inline float @erf(float x) {\n"
      "  const float z = @fabs(x), square = x * x;\n"
      "  if (z < 1.0f)\n"
      "    return @fma(x, " +
          Polynomial(kErfTable, "square") +
          ", x);\n"
          "  const float t = z > 4.0f ? 4.0f : z;\n"
          "  const float far = 1.0f - @exp(" +
          Polynomial(kErfcTable, "t") +
          ");\n"
          "  return x < 0.0f ? -far : far;\n"
          "}\n",
      prefix);
}

}  // namespace tilewright::codegen
