#include "compiler/targets/vulkan/spirv_math_parts.h"

#include <numbers>

namespace tilewright::vulkan {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
// ln 2 in two parts; a multiple of the first by an exponent is exact.
constexpr double kWideLn2High = 6.93147180369123816490e-01;
constexpr double kWideLn2Low = 1.90821492927058770002e-10;
constexpr int32_t kHighOne = 0x3ff00000;       // the upper word of 1
constexpr int32_t kHighRootHalf = 0x3fe6a09e;  // of the root of 1/2
constexpr int kExponentAt = 20;                // where the exponent begins in that word

Id PairType(Value x) { return x.code->module().Vector(IntType(x), 2); }

// A 64-bit float of two words of 32 bits: no integers of 64 bits are needed.
Value OfWords(Value low, Value high) {
  const Id pair = low.code->Op(spv::Op::OpCompositeConstruct, PairType(low), {low.id, high.id});
  return {low.code, low.code->Op(spv::Op::OpBitcast, FloatType(low), {pair}), low.bits};
}
Value WordOf(Value x, uint32_t number) {
  const Id pair = x.code->Op(spv::Op::OpBitcast, PairType(x), {x.id});
  return {x.code, x.code->Component(IntType(x), pair, number), x.bits};
}
Value Shifted(spv::Op op, Value a, int by) { return IntOp(op, a, I(a, by)); }
// 2^n of a normal number.
Value WidePowerOf2(Value n) {
  const Value high = Shifted(spv::Op::OpShiftLeftLogical, n, kExponentAt);
  return OfWords(I(n, 0), IntOp(spv::Op::OpIAdd, high, I(n, kHighOne)));
}

}  // namespace

// x = n ln 2 + r; e^x = 2^n e^r, the power in two halves.
Value WideExp(Value x) {
  constexpr int kTerms = 14;  // |r| <= 0.347: the next one is below 2^-57
  Value at = Select(x > F(x, 710), F(x, 710), x);
  at = Select(at < F(x, -746), F(x, -746), at);
  const Value n = RoundEven(at * F(x, std::numbers::log2e));
  const Value r = at - n * F(x, kWideLn2High) - n * F(x, kWideLn2Low);
  Value sum = F(x, 1);
  for (int k = kTerms; k > 0; --k) sum = F(x, 1) + sum * r / F(x, k);
  const Value i = ToInt(n), half = Shifted(spv::Op::OpShiftRightArithmetic, i, 1);
  const Value power = sum * WidePowerOf2(half) * WidePowerOf2(IntOp(spv::Op::OpISub, i, half));
  return Select(IsNoNumber(x), x, power);
}

// x = 2^e m, m between the roots of 1/2 and 2; log m = 2 atanh((m - 1) / (m + 1)).
Value WideLog(Value x) {
  constexpr int kLastPower = 23;  // the argument of atanh is at most 0.172
  const Value tiny = x < F(x, std::numeric_limits<double>::min());
  const Value normal = Select(tiny, x * F(x, 0x1p54), x);
  const Value high = WordOf(normal, 1);
  const Value shifted = IntOp(spv::Op::OpISub, high, I(x, kHighRootHalf));
  const Value whole = Shifted(spv::Op::OpShiftRightArithmetic, shifted, kExponentAt);
  const Value e = ToFloat(whole) - Select(tiny, F(x, 54), F(x, 0));
  const Value m = OfWords(
      WordOf(normal, 0),
      IntOp(spv::Op::OpISub, high, Shifted(spv::Op::OpShiftLeftLogical, whole, kExponentAt)));
  const Value s = (m - F(x, 1)) / (m + F(x, 1)), z = s * s;
  Value sum = F(x, 1.0 / kLastPower);
  for (int k = kLastPower - 2; k > 0; k -= 2) sum = F(x, 1.0 / k) + sum * z;
  const Value log_m = F(x, 2) * s * sum;
  Value y = e * F(x, kWideLn2High) + (e * F(x, kWideLn2Low) + log_m);
  y = Select(x < F(x, kEndless), y, x);
  const Value outside = Select(x == F(x, 0), F(x, -kEndless), NoNumber(x));
  return Select(x > F(x, 0), y, outside);
}

// Lambert's continued fraction near 0, where the quotient would lose what is small.
Value WideTanh(Value x) {
  constexpr int kFirst = 19;
  const Value square = x * x;
  Value below = F(x, kFirst);
  for (int k = kFirst - 2; k > 0; k -= 2) below = F(x, k) + square / below;
  const Value e = WideExp(F(x, 2) * Abs(x));
  const Value far = F(x, 1) - F(x, 2) / (e + F(x, 1));
  const Value signed_far = Select(x < F(x, 0), F(x, 0) - far, far);
  return Select(square < F(x, 0.5), x / below, Select(IsNoNumber(x), x, signed_far));
}

// Odd whole numbers keep the sign of x; whole numbers beyond the digits of a float are even.
Value PowerOf(Value x, Value y, Value power) {
  const Value endless = F(x, kEndless), zero = F(x, 0), one = F(x, 1);
  const Value whole = MathOp(GLSLstd450Trunc, y) == y;
  const Value half = y * F(x, 0.5);
  const Value odd = whole && Not(MathOp(GLSLstd450Trunc, half) == half);
  const Value minus = x < zero || (x == zero && one / x < zero);
  Value result = Select(minus && odd, zero - power, power);
  const Value outside = x < zero && Abs(x) < endless && Not(whole);
  result = Select(outside, NoNumber(x), result);
  const Value of_minus_one = x == F(x, -1) && Abs(y) == endless;
  return Select(x == one || y == zero || of_minus_one, one, result);
}

}  // namespace tilewright::vulkan
