#include "compiler/targets/vulkan/spirv_math.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <span>

#include "compiler/codegen/math_tables.h"
#include "compiler/targets/vulkan/spirv_math_parts.h"

namespace tilewright::vulkan {
namespace {

using ir::Intrinsic;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kPi = std::numbers::pi_v<float>, kHalfPi = kPi / 2;

// Coefficients of Cephes' functions of single floats (S. Moshier), lowest power first.
constexpr float kSinTable[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
constexpr float kCosTable[] = {4.166664568298827e-2f, -1.388731625493765e-3f,
                               2.443315711809948e-5f};
constexpr float kAsinTable[] = {1.6666752422e-1f, 7.4953002686e-2f, 4.5470025998e-2f,
                                2.4181311049e-2f, 4.2163199048e-2f};
constexpr float kAtanTable[] = {-3.33329491539e-1f, 1.99777106478e-1f, -1.38776856032e-1f,
                                8.05374449538e-2f};
// π / 2 in three parts; multiples of the first two by numbers below 2^13 are exact.
constexpr float kHalfPiParts[] = {1.5703125f, 4.837512969970703125e-4f, 7.5497899548918821691e-8f};

Value Polynomial(std::span<const float> c, Value x) {
  Value sum = F(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = MulAdd(sum, x, F(x, c[i]));
  return sum;
}
Value WithSignOf(Value sign, Value x) {
  constexpr int32_t kSign = std::numeric_limits<int32_t>::min();
  const Value only = IntOp(spv::Op::OpBitwiseAnd, Bits(sign), I(x, kSign));
  return FromBits(IntOp(spv::Op::OpBitwiseOr, only, Bits(Abs(x))));
}
Value PowerOf2(Value n) {
  return FromBits(
      IntOp(spv::Op::OpShiftLeftLogical, IntOp(spv::Op::OpIAdd, n, I(n, 127)), I(n, 23)));
}

// The functions of llvm_math.cc, which says why.
Value Exp(Value x) {
  Value at = Select(x > F(x, 89.0f), F(x, 89.0f), x);
  at = Select(at < F(x, -104.0f), F(x, -104.0f), at);
  const Value n = RoundEven(at * F(x, static_cast<float>(M_LOG2E)));
  // No fused operations: drivers may add their constants up first, which is what must not be.
  const Value r = at - n * F(x, codegen::kLn2High) - n * F(x, codegen::kLn2Low);
  const Value p = MulAdd(MulAdd(Polynomial(codegen::kExpTable, r), r, F(x, 1)), r, F(x, 1));
  const Value i = ToInt(n), half = IntOp(spv::Op::OpShiftRightArithmetic, i, I(x, 1));
  const Value power = p * PowerOf2(half) * PowerOf2(IntOp(spv::Op::OpISub, i, half));
  return Select(IsNoNumber(x), x, power);
}

Value Log(Value x) {
  constexpr int32_t kRootHalf = 0x3f3504f3;
  const Value tiny = x < F(x, std::numeric_limits<float>::min());
  const Value bits = Bits(Select(tiny, x * F(x, 0x1p23f), x));
  const Value shifted = IntOp(spv::Op::OpISub, bits, I(x, kRootHalf));
  const Value exponent = ToFloat(IntOp(spv::Op::OpShiftRightArithmetic, shifted, I(x, 23)));
  const Value e = exponent - Select(tiny, F(x, 23), F(x, 0));
  const Value m = IntOp(spv::Op::OpIAdd, IntOp(spv::Op::OpBitwiseAnd, shifted, I(x, 0x7fffff)),
                        I(x, kRootHalf));
  const Value f = FromBits(m) - F(x, 1), square = f * f;
  Value y = square * f * Polynomial(codegen::kLogTable, f);
  y = MulAdd(square, F(x, -0.5f), e * F(x, codegen::kLn2Low) + y);
  y = e * F(x, codegen::kLn2High) + (y + f);
  y = Select(x < F(x, kInfinity), y, x);
  const Value outside = Select(x == F(x, 0), F(x, -kInfinity), NoNumber(x));
  return Select(x > F(x, 0), y, outside);
}

// log(1 + x): what u = 1 + x lost by rounding is in the quotient.
Value Log1p(Value x) {
  const Value u = F(x, 1) + x;
  const Value near = Log(u) * (x / (u - F(x, 1)));
  const Value far = Select(x > F(x, 0x1p24f), Log(x), near);
  return Select(u == F(x, 1), x, far);
}

Value Tanh(Value x) {
  const Value z = Abs(x), square = x * x;
  const Value near = MulAdd(x * square, Polynomial(codegen::kTanhTable, square), x);
  const Value far = F(x, 1) - F(x, 2) / (Exp(z + z) + F(x, 1));
  return Select(square < F(x, 0.4f), near, WithSignOf(x, far));
}

Value Expm1(Value x) {
  const Value t = Tanh(x * F(x, 0.5f));
  const Value near = (t + t) / (F(x, 1) - t);
  return Select(x > F(x, 1), Exp(x) - F(x, 1), near);
}

Value Erf(Value x) {
  const Value z = Abs(x);
  const Value near = MulAdd(x, Polynomial(codegen::kErfTable, x * x), x);
  const Value t = Select(z > F(x, 4), F(x, 4), z);
  const Value far = F(x, 1) - Exp(Polynomial(codegen::kErfcTable, t));
  return Select(z < F(x, 1), near, WithSignOf(x, far));
}

// x = n π/2 + r. Sine and cosine of r, exchanged where n is odd and negated in every other half
// turn; `shift` 1 makes a cosine of the sine.
Value SinOf(Value x, int32_t shift) {
  const Value n = RoundEven(x * F(x, 1 / kHalfPi));
  Value r = x;
  for (float part : kHalfPiParts) r = r - n * F(x, part);
  const Value z = r * r;
  const Value sin = MulAdd(r * z, Polynomial(kSinTable, z), r);
  const Value cos = MulAdd(z * z, Polynomial(kCosTable, z), MulAdd(z, F(x, -0.5f), F(x, 1)));
  const Value quarter = IntOp(spv::Op::OpIAdd, ToInt(n), I(x, shift));
  const auto bit = [&](int32_t which) {
    return Test(spv::Op::OpINotEqual, IntOp(spv::Op::OpBitwiseAnd, quarter, I(x, which)), I(x, 0));
  };
  const Value y = Select(bit(1), cos, sin);
  return Select(bit(2), F(x, 0) - y, y);
}

// Of 0 <= a <= 1/2 and its square: asin a.
Value NearAsin(Value a, Value z) { return MulAdd(a * z, Polynomial(kAsinTable, z), a); }

Value Asin(Value x) {
  const Value a = Abs(x), z = (F(x, 1) - a) * F(x, 0.5f);
  const Value far = F(x, kHalfPi) - F(x, 2) * NearAsin(Sqrt(z), z);
  const Value y = WithSignOf(x, Select(a > F(x, 0.5f), far, NearAsin(a, a * a)));
  return Select(a > F(x, 1), NoNumber(x), y);
}

Value Acos(Value x) {
  const Value a = Abs(x), z = (F(x, 1) - a) * F(x, 0.5f);
  const Value far = F(x, 2) * NearAsin(Sqrt(z), z);  // acos |x| near 1
  const Value outer = Select(x < F(x, 0), F(x, kPi) - far, far);
  const Value inner = F(x, kHalfPi) - NearAsin(a, a * a) * WithSignOf(x, F(x, 1));
  return Select(a > F(x, 1), NoNumber(x), Select(a > F(x, 0.5f), outer, inner));
}

Value Atan(Value x) {
  const Value a = Abs(x);
  const Value large = a > F(x, 2.414213562373095f), middle = a > F(x, 0.4142135623730950f);
  const Value t = Select(large, F(x, -1) / a, Select(middle, (a - F(x, 1)) / (a + F(x, 1)), a));
  const Value start = Select(large, F(x, kHalfPi), Select(middle, F(x, kHalfPi / 2), F(x, 0)));
  const Value z = t * t;
  return WithSignOf(x, start + MulAdd(t * z, Polynomial(kAtanTable, z), t));
}

// e^a / 2 for a so large that e^a may be too large.
Value HalfExp(Value a) {
  const Value half = Exp(a * F(a, 0.5f));
  return F(a, 0.5f) * half * half;
}

Value Sinh(Value x) {
  const Value a = Abs(x), e = Expm1(a);
  const Value near = F(x, 0.5f) * (e + e / (e + F(x, 1)));
  return WithSignOf(x, Select(a > F(x, 80), HalfExp(a), near));
}

Value Cosh(Value x) {
  const Value a = Abs(x), e = Exp(a);
  return Select(a > F(x, 80), HalfExp(a), F(x, 0.5f) * (e + F(x, 1) / e));
}

constexpr float kSquaresFit = 0x1p60f;

Value Asinh(Value x) {
  const Value a = Abs(x);
  const Value near = Log1p(a + a * a / (F(x, 1) + Sqrt(a * a + F(x, 1))));
  const Value far = Log(a) + F(x, std::numbers::ln2_v<float>);
  return WithSignOf(x, Select(a > F(x, kSquaresFit), far, near));
}

Value Acosh(Value x) {
  const Value t = x - F(x, 1);
  const Value far = Log(x) + F(x, std::numbers::ln2_v<float>);
  const Value y = Select(x > F(x, kSquaresFit), far, Log1p(t + Sqrt((t + t) + t * t)));
  return Select(x < F(x, 1), NoNumber(x), y);
}

Value Atanh(Value x) {
  const Value a = Abs(x);
  const Value y = F(x, 0.5f) * Log1p((a + a) / (F(x, 1) - a));
  return Select(a > F(x, 1), NoNumber(x), WithSignOf(x, Select(a == F(x, 1), F(x, kInfinity), y)));
}

// The rest of |x| / |y|, exact: subtracts the largest y 2^k that fits, until nothing fits.
Value Fmod(Value x, Value y) {
  SpirvCode& code = *x.code;
  const Value b = Abs(y);
  const Value fits = Abs(x) < F(x, kInfinity) && b > F(x, 0);
  const Id rest = code.Variable(FloatType(x));
  code.Store(rest, Select(fits, Abs(x), NoNumber(x)).id, rest);
  const auto loaded = [&] { return Value{&code, code.Load(FloatType(x), rest, rest)}; };
  code.While([&] { return Test(spv::Op::OpFOrdGreaterThanEqual, loaded(), b).id; },
             [&] {
               const Value a = loaded();
               const Value exponent = IntOp(spv::Op::OpBitwiseAnd, Bits(a), I(x, 0x7f800000));
               const Value digits = IntOp(spv::Op::OpBitwiseAnd, Bits(b), I(x, 0x7fffff));
               const Value t = FromBits(IntOp(spv::Op::OpBitwiseOr, exponent, digits));
               code.Store(rest, (a - Select(t > a, t * F(x, 0.5f), t)).id, rest);
             });
  return WithSignOf(x, loaded());
}

Value Pow(Value x, Value y) { return PowerOf(x, y, Exp(y * Log(Abs(x)))); }

struct Row {
  Intrinsic intrinsic;
  Value (*function)(Value x, Value y);        // functions of one value ignore y
  Value (*wide)(Value x, Value y) = nullptr;  // of 64 bits; null: there is none
};
constexpr Row kFunctions[] = {
    {Intrinsic::kExp, [](Value x, Value) { return Exp(x); },
     [](Value x, Value) { return WideExp(x); }},
    {Intrinsic::kLog, [](Value x, Value) { return Log(x); },
     [](Value x, Value) { return WideLog(x); }},
    {Intrinsic::kTanh, [](Value x, Value) { return Tanh(x); },
     [](Value x, Value) { return WideTanh(x); }},
    {Intrinsic::kErf, [](Value x, Value) { return Erf(x); }},
    {Intrinsic::kPow, Pow,
     [](Value x, Value y) { return PowerOf(x, y, WideExp(y * WideLog(Abs(x)))); }},
    {Intrinsic::kSin, [](Value x, Value) { return SinOf(x, 0); }},
    {Intrinsic::kCos, [](Value x, Value) { return SinOf(x, 1); }},
    {Intrinsic::kTan, [](Value x, Value) { return SinOf(x, 0) / SinOf(x, 1); }},
    {Intrinsic::kAsin, [](Value x, Value) { return Asin(x); }},
    {Intrinsic::kAcos, [](Value x, Value) { return Acos(x); }},
    {Intrinsic::kAtan, [](Value x, Value) { return Atan(x); }},
    {Intrinsic::kSinh, [](Value x, Value) { return Sinh(x); }},
    {Intrinsic::kCosh, [](Value x, Value) { return Cosh(x); }},
    {Intrinsic::kAsinh, [](Value x, Value) { return Asinh(x); }},
    {Intrinsic::kAcosh, [](Value x, Value) { return Acosh(x); }},
    {Intrinsic::kAtanh, [](Value x, Value) { return Atanh(x); }},
    {Intrinsic::kExpm1, [](Value x, Value) { return Expm1(x); }},
    {Intrinsic::kFmod, Fmod},
};

const Row* RowOf(Intrinsic intrinsic) {
  const Row* end = std::end(kFunctions);
  const Row* row = std::find_if(std::begin(kFunctions), end,
                                [&](const Row& r) { return r.intrinsic == intrinsic; });
  return row == end ? nullptr : row;
}

}  // namespace

bool SpirvMath::Has(Intrinsic intrinsic, int bits) {
  const Row* row = RowOf(intrinsic);
  return row != nullptr && (bits == 32 || (bits == 64 && row->wide != nullptr));
}

Id SpirvMath::FunctionOf(Intrinsic intrinsic, int bits, size_t operands) {
  SpirvCode code(&module_);
  const Id type = module_.Float(bits);
  std::vector<Value> in;
  for (size_t i = 0; i < operands; ++i) in.push_back({&code, code.Parameter(type), bits});
  const Row& row = *RowOf(intrinsic);
  const Value result = (bits == 32 ? row.function : row.wide)(in.front(), in.back());
  const Id function = module_.NewId();
  module_.AddFunction(
      code.Finish(function, module_.FunctionType(type, Words(operands, type)), type, result.id));
  return function;
}

Id SpirvMath::Call(SpirvCode* code, Intrinsic intrinsic, int bits, const Words& operands) {
  Id& function = functions_[{intrinsic, bits}];
  if (function == 0) function = FunctionOf(intrinsic, bits, operands.size());
  return code->Call(function, module_.Float(bits), operands);
}

}  // namespace tilewright::vulkan
