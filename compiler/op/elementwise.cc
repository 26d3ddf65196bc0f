// Elementwise operators: what happens to one element, in the tensor IR and in double. Everything
// else about them (types, broadcasting, loops) is derived in op.cc. Maxima and minima are written
// so that a NaN in the data comes through: ir::Max(c, x) gives x where one side is NaN.
#include <cmath>

#include "compiler/ir/numeric.h"
#include "compiler/op/op_rows.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using Exprs = std::span<const ir::Expr>;
using Doubles = std::span<const double>;
using Ints = std::span<const int64_t>;

Expr Like(double value, const Expr& x) {
  return x->dtype.is_float() ? ir::Float(value, x->dtype)
                             : ir::Int(static_cast<int64_t>(value), x->dtype);
}
Expr Apply(ir::Intrinsic f, const Expr& x) { return ir::Call(f, {x}); }
Expr ClipTo(const Expr& x, double low, double high) {
  Expr value = x;
  if (std::isfinite(low)) value = ir::Max(Like(low, x), value);
  if (std::isfinite(high)) value = ir::Min(Like(high, x), value);
  return value;
}
double ClipValue(double x, double low, double high) {
  if (x < low) x = low;
  return x > high ? high : x;
}
double AttrMin(const Attrs& a) { return GetDouble(a, "min", -INFINITY); }
double AttrMax(const Attrs& a) { return GetDouble(a, "max", INFINITY); }
double Alpha(const Attrs& a, double fallback) { return GetDouble(a, "alpha", fallback); }
constexpr double kSeluAlpha = 1.67326319217681884765625;
double Gamma(const Attrs& a) { return GetDouble(a, "gamma", 1.05070102214813232421875); }
double Bias(const Attrs& a) { return GetDouble(a, "bias", 0); }
double Lambda(const Attrs& a) { return GetDouble(a, "lambd", 0.5); }
double Beta(const Attrs& a, double fallback) { return GetDouble(a, "beta", fallback); }
Expr Sigmoid(const Expr& x) {
  return Like(1, x) / (Like(1, x) + Apply(ir::Intrinsic::kExp, Like(0, x) - x));
}
double SigmoidValue(double x) { return 1 / (1 + std::exp(-x)); }

// Two's complement: what leaves 64 bits wraps.
int64_t Wrapped(uint64_t value) { return static_cast<int64_t>(value); }
uint64_t Bits(int64_t value) { return static_cast<uint64_t>(value); }
int64_t ClipInt(int64_t x, ir::DType type, const Attrs& a) {
  const auto bound = [&](double value) { return ir::CastFloatToInt(value, type); };
  const int64_t low = bound(AttrMin(a)), high = bound(AttrMax(a));
  if (Below(x, low, type)) x = low;
  return Below(high, x, type) ? high : x;
}

int64_t DivideInt(int64_t a, int64_t b, ir::DType type) {
  if (b == 0) return 0;
  if (type == ir::kU64) return Wrapped(Bits(a) / Bits(b));
  return b == -1 ? Wrapped(0 - Bits(a)) : a / b;
}
// Small whole exponents need no library call. A cube rounds twice; it leaves the range of the type
// only if the power does.
Expr Power(const Expr& x, const Expr& exponent) {
  if (exponent->kind == ir::ExprKind::kFloatImm) {
    if (exponent->float_value == 2) return x * x;
    if (exponent->float_value == 3) return x * x * x;
    if (exponent->float_value == -1) return Like(1, x) / x;
  }
  return ir::Call(ir::Intrinsic::kPow, {x, exponent});
}
bool Truncates(const Attrs& a) { return GetInt(a, "fmod", 0) != 0; }
// Of floats by the floor of the quotient: what fmod leaves has the sign of the divisor, a zero too.
Expr FlooredRemainder(const Expr& rest, const Expr& b) {
  const Expr zero = Like(0, b), negative = b < zero;
  const Expr other_sign = ir::Select(negative, zero < rest, rest < zero);
  return ir::Select(ir::Eq(rest, zero), ir::Select(negative, Like(-0.0, b), zero),
                    ir::Select(other_sign, rest + b, rest));
}
double FlooredRemainder(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
Expr Remainder(Exprs x, const Attrs& a) {
  if (x[0]->dtype.is_float()) {
    const Expr rest = ir::Call(ir::Intrinsic::kFmod, {x[0], x[1]});
    return Truncates(a) ? rest : FlooredRemainder(rest, x[1]);
  }
  return SafeDivide(Truncates(a) ? ir::ExprKind::kMod : ir::ExprKind::kFloorMod, x[0], x[1]);
}
int64_t RemainderInt(int64_t a, int64_t b, ir::DType type, bool truncates) {
  if (b == 0) return 0;
  if (type == ir::kU64) return Wrapped(Bits(a) % Bits(b));
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return !truncates && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <ir::Intrinsic f>
Expr Bitwise(Exprs x, const Attrs&) {
  return ir::Call(f, {x[0], x[1]});
}
uint64_t ShiftedBits(Ints x, ir::DType type, bool left) {
  if (Bits(x[1]) >= type.bits) return 0;
  if (left) return Bits(x[0]) << x[1];
  // Those of the type: the sign of a negative number is not repeated.
  const uint64_t mask = type.bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << type.bits) - 1;
  return (Bits(x[0]) & mask) >> x[1];
}
// e^x - 1 below zero, times alpha.
Expr Curve(const Expr& x, const Expr& inner, double alpha) {
  return ir::Select(x < Like(0, x), Apply(ir::Intrinsic::kExpm1, inner) * Like(alpha, x), x);
}
bool Detects(const Attrs& a, std::string_view sign) { return GetInt(a, sign, 1) != 0; }

using ir::Intrinsic;

constexpr ScalarRow kRows[] = {
    {"add", "Add", 2, kNumbers, [](Exprs x, const Attrs&) { return x[0] + x[1]; },
     [](Doubles x, const Attrs&) { return x[0] + x[1]; },
     [](Ints x, ir::DType, const Attrs&) { return Wrapped(Bits(x[0]) + Bits(x[1])); }},
    {"sub", "Sub", 2, kNumbers, [](Exprs x, const Attrs&) { return x[0] - x[1]; },
     [](Doubles x, const Attrs&) { return x[0] - x[1]; },
     [](Ints x, ir::DType, const Attrs&) { return Wrapped(Bits(x[0]) - Bits(x[1])); }},
    {"mul", "Mul", 2, kNumbers | kExact, [](Exprs x, const Attrs&) { return x[0] * x[1]; },
     [](Doubles x, const Attrs&) { return x[0] * x[1]; },
     [](Ints x, ir::DType, const Attrs&) { return Wrapped(Bits(x[0]) * Bits(x[1])); }},
    {"div", "Div", 2, kNumbers | kExact | kOfPositive,
     [](Exprs x, const Attrs&) {
       return x[0]->dtype.is_float() ? x[0] / x[1] : SafeDivide(ir::ExprKind::kDiv, x[0], x[1]);
     },
     [](Doubles x, const Attrs&) { return x[0] / x[1]; },
     [](Ints x, ir::DType t, const Attrs&) { return DivideInt(x[0], x[1], t); }},
    {"mod", "Mod", 2, kNumbers, Remainder,
     [](Doubles x, const Attrs& a) {
       return Truncates(a) ? std::fmod(x[0], x[1]) : FlooredRemainder(x[0], x[1]);
     },
     [](Ints x, ir::DType t, const Attrs& a) { return RemainderInt(x[0], x[1], t, Truncates(a)); }},
    {"pow", "Pow", 2, kFloats | kOfPositive,
     [](Exprs x, const Attrs&) { return Power(x[0], x[1]); },
     [](Doubles x, const Attrs&) { return std::pow(x[0], x[1]); }},
    {"max", "Max", 2, kNumbers | kExact, [](Exprs x, const Attrs&) { return ir::Max(x[0], x[1]); },
     [](Doubles x, const Attrs&) { return x[0] > x[1] ? x[0] : x[1]; },
     [](Ints x, ir::DType t, const Attrs&) { return Below(x[1], x[0], t) ? x[0] : x[1]; }},
    {"min", "Min", 2, kNumbers | kExact, [](Exprs x, const Attrs&) { return ir::Min(x[0], x[1]); },
     [](Doubles x, const Attrs&) { return x[0] < x[1] ? x[0] : x[1]; },
     [](Ints x, ir::DType t, const Attrs&) { return Below(x[0], x[1], t) ? x[0] : x[1]; }},
    {"relu", "Relu", 1, kNumbers | kExact,
     [](Exprs x, const Attrs&) { return ir::Max(Like(0, x[0]), x[0]); },
     [](Doubles x, const Attrs&) { return x[0] < 0 ? 0 : x[0]; },
     [](Ints x, ir::DType t, const Attrs&) { return Below(x[0], 0, t) ? 0 : x[0]; }},
    {"clip", "Clip", 1, kNumbers | kExact,
     [](Exprs x, const Attrs& a) { return ClipTo(x[0], AttrMin(a), AttrMax(a)); },
     [](Doubles x, const Attrs& a) { return ClipValue(x[0], AttrMin(a), AttrMax(a)); },
     [](Ints x, ir::DType t, const Attrs& a) { return ClipInt(x[0], t, a); }},
    {"neg", "Neg", 1, kNumbers | kExact, [](Exprs x, const Attrs&) { return Like(0, x[0]) - x[0]; },
     [](Doubles x, const Attrs&) { return 0 - x[0]; },
     [](Ints x, ir::DType, const Attrs&) { return Wrapped(0 - Bits(x[0])); }},
    {"abs", "Abs", 1, kNumbers | kExact,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAbs, x[0]); },
     [](Doubles x, const Attrs&) { return std::fabs(x[0]); },
     [](Ints x, ir::DType t, const Attrs&) {
       return Below(x[0], 0, t) ? Wrapped(0 - Bits(x[0])) : x[0];
     }},
    {"sign", "Sign", 1, kNumbers,
     [](Exprs x, const Attrs&) {
       const Expr zero = Like(0, x[0]), one = Like(1, x[0]);
       if (x[0]->dtype.code == ir::TypeCode::kUInt) return ir::Min(one, x[0]);
       return ir::Select(zero < x[0], one, ir::Select(x[0] < zero, zero - one, x[0]));
     },
     [](Doubles x, const Attrs&) { return x[0] > 0   ? 1
                                          : x[0] < 0 ? -1
                                                     : x[0]; },
     [](Ints x, ir::DType t, const Attrs&) -> int64_t {
       return Below(0, x[0], t) ? 1 : Below(x[0], 0, t) ? -1 : 0;
     }},
    {"exp", "Exp", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kExp, x[0]); },
     [](Doubles x, const Attrs&) { return std::exp(x[0]); }},
    {"log", "Log", 1, kFloats | kOfPositive,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kLog, x[0]); },
     [](Doubles x, const Attrs&) { return std::log(x[0]); }},
    {"sqrt", "Sqrt", 1, kFloats | kOfPositive,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kSqrt, x[0]); },
     [](Doubles x, const Attrs&) { return std::sqrt(x[0]); }},
    {"reciprocal", "Reciprocal", 1, kFloats | kOfPositive,
     [](Exprs x, const Attrs&) { return Like(1, x[0]) / x[0]; },
     [](Doubles x, const Attrs&) { return 1 / x[0]; }},
    {"tanh", "Tanh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kTanh, x[0]); },
     [](Doubles x, const Attrs&) { return std::tanh(x[0]); }},
    {"erf", "Erf", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kErf, x[0]); },
     [](Doubles x, const Attrs&) { return std::erf(x[0]); }},
    {"floor", "Floor", 1, kFloats | kExact,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kFloor, x[0]); },
     [](Doubles x, const Attrs&) { return std::floor(x[0]); }},
    {"ceil", "Ceil", 1, kFloats | kExact,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kCeil, x[0]); },
     [](Doubles x, const Attrs&) { return std::ceil(x[0]); }},
    {"round", "Round", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kRoundEven, x[0]); },
     [](Doubles x, const Attrs&) { return std::nearbyint(x[0]); }},
    {"sigmoid", "Sigmoid", 1, kFloats, [](Exprs x, const Attrs&) { return Sigmoid(x[0]); },
     [](Doubles x, const Attrs&) { return SigmoidValue(x[0]); }},
    {"softplus", "Softplus", 1, kFloats,
     [](Exprs x, const Attrs&) {
       // max(x, 0) + log(1 + exp(-|x|)) does not overflow.
       Expr tail = Apply(Intrinsic::kExp, Like(0, x[0]) - Apply(Intrinsic::kAbs, x[0]));
       return ir::Max(Like(0, x[0]), x[0]) + Apply(Intrinsic::kLog, Like(1, x[0]) + tail);
     },
     [](Doubles x, const Attrs&) {
       return (x[0] > 0 ? x[0] : 0) + std::log1p(std::exp(-std::fabs(x[0])));
     }},
    {"softsign", "Softsign", 1, kFloats,
     [](Exprs x, const Attrs&) { return x[0] / (Like(1, x[0]) + Apply(Intrinsic::kAbs, x[0])); },
     [](Doubles x, const Attrs&) { return x[0] / (1 + std::fabs(x[0])); }},
    {"leaky_relu", "LeakyRelu", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       return ir::Select(x[0] < Like(0, x[0]), x[0] * Like(Alpha(a, 0.01), x[0]), x[0]);
     },
     [](Doubles x, const Attrs& a) { return x[0] < 0 ? x[0] * Alpha(a, 0.01) : x[0]; }},
    {"prelu", "PRelu", 2, kNumbers,
     [](Exprs x, const Attrs&) { return ir::Select(x[0] < Like(0, x[0]), x[0] * x[1], x[0]); },
     [](Doubles x, const Attrs&) { return x[0] < 0 ? x[0] * x[1] : x[0]; },
     [](Ints x, ir::DType t, const Attrs&) {
       return Below(x[0], 0, t) ? Wrapped(Bits(x[0]) * Bits(x[1])) : x[0];
     }},
    {"elu", "Elu", 1, kFloats,
     [](Exprs x, const Attrs& a) { return Curve(x[0], x[0], Alpha(a, 1)); },
     [](Doubles x, const Attrs& a) { return x[0] < 0 ? Alpha(a, 1) * std::expm1(x[0]) : x[0]; }},
    {"selu", "Selu", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       return Curve(x[0], x[0], Alpha(a, kSeluAlpha)) * Like(Gamma(a), x[0]);
     },
     [](Doubles x, const Attrs& a) {
       return Gamma(a) * (x[0] < 0 ? Alpha(a, kSeluAlpha) * std::expm1(x[0]) : x[0]);
     }},
    {"celu", "Celu", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       const double alpha = Alpha(a, 1);
       return Curve(x[0], alpha == 1 ? x[0] : x[0] / Like(alpha, x[0]), alpha);
     },
     [](Doubles x, const Attrs& a) {
       return x[0] < 0 ? Alpha(a, 1) * std::expm1(x[0] / Alpha(a, 1)) : x[0];
     }},
    {"mish", "Mish", 1, kFloats,
     [](Exprs x, const Attrs&) {
       // tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2), which loses
       // nothing; 1 from 20 on.
       const Expr e = Apply(Intrinsic::kExp, ir::Min(Like(20, x[0]), x[0]));
       const Expr n = e * (e + Like(2, x[0]));
       return x[0] * (n / (n + Like(2, x[0])));
     },
     [](Doubles x, const Attrs&) {
       const double tail = std::log1p(std::exp(-std::fabs(x[0])));
       return x[0] * std::tanh((x[0] > 0 ? x[0] : 0) + tail);
     }},
    {"thresholded_relu", "ThresholdedRelu", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       return ir::Select(Like(Alpha(a, 1), x[0]) < x[0], x[0], Like(0, x[0]));
     },
     [](Doubles x, const Attrs& a) { return x[0] > Alpha(a, 1) ? x[0] : 0; }},
    {"shrink", "Shrink", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       const Expr bias = Like(Bias(a), x[0]), bound = Like(Lambda(a), x[0]);
       return ir::Select(x[0] < Like(-Lambda(a), x[0]), x[0] + bias,
                         ir::Select(bound < x[0], x[0] - bias, Like(0, x[0])));
     },
     [](Doubles x, const Attrs& a) {
       if (x[0] < -Lambda(a)) return x[0] + Bias(a);
       return x[0] > Lambda(a) ? x[0] - Bias(a) : 0;
     }},
    {"swish", "Swish", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       const double alpha = Alpha(a, 1);
       return x[0] * Sigmoid(alpha == 1 ? x[0] : x[0] * Like(alpha, x[0]));
     },
     [](Doubles x, const Attrs& a) { return x[0] * SigmoidValue(Alpha(a, 1) * x[0]); }},
    {"hard_sigmoid", "HardSigmoid", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       return ClipTo(x[0] * Like(Alpha(a, 0.2), x[0]) + Like(Beta(a, 0.5), x[0]), 0, 1);
     },
     [](Doubles x, const Attrs& a) {
       return ClipValue(x[0] * Alpha(a, 0.2) + Beta(a, 0.5), 0, 1);
     }},
    {"hard_swish", "HardSwish", 1, kFloats,
     [](Exprs x, const Attrs&) {
       return x[0] * ClipTo(x[0] * Like(1.0 / 6, x[0]) + Like(0.5, x[0]), 0, 1);
     },
     [](Doubles x, const Attrs&) { return x[0] * ClipValue(x[0] / 6 + 0.5, 0, 1); }},
    {"gelu", "Gelu", 1, kFloats,
     [](Exprs x, const Attrs&) {
       Expr erf = Apply(Intrinsic::kErf, x[0] * Like(std::sqrt(0.5), x[0]));
       return x[0] * Like(0.5, x[0]) * (Like(1, x[0]) + erf);
     },
     [](Doubles x, const Attrs&) { return x[0] * 0.5 * (1 + std::erf(x[0] * std::sqrt(0.5))); }},
    {"gelu_tanh", "", 1, kFloats,
     [](Exprs x, const Attrs&) {
       // (1 + tanh(u)) / 2 is sigmoid(2 u), which loses nothing for negative
       // numbers.
       const Expr cube = x[0] * x[0] * x[0];
       const Expr u = (x[0] + cube * Like(0.044715, x[0])) * Like(2 * std::sqrt(2 / M_PI), x[0]);
       return x[0] * Sigmoid(u);
     },
     [](Doubles x, const Attrs&) {
       const double u = std::sqrt(2 / M_PI) * (x[0] + 0.044715 * x[0] * x[0] * x[0]);
       return x[0] * SigmoidValue(2 * u);
     }},
    {"sin", "Sin", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kSin, x[0]); },
     [](Doubles x, const Attrs&) { return std::sin(x[0]); }},
    {"cos", "Cos", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kCos, x[0]); },
     [](Doubles x, const Attrs&) { return std::cos(x[0]); }},
    {"tan", "Tan", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kTan, x[0]); },
     [](Doubles x, const Attrs&) { return std::tan(x[0]); }},
    {"asin", "Asin", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAsin, x[0]); },
     [](Doubles x, const Attrs&) { return std::asin(x[0]); }},
    {"acos", "Acos", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAcos, x[0]); },
     [](Doubles x, const Attrs&) { return std::acos(x[0]); }},
    {"atan", "Atan", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAtan, x[0]); },
     [](Doubles x, const Attrs&) { return std::atan(x[0]); }},
    {"sinh", "Sinh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kSinh, x[0]); },
     [](Doubles x, const Attrs&) { return std::sinh(x[0]); }},
    {"cosh", "Cosh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kCosh, x[0]); },
     [](Doubles x, const Attrs&) { return std::cosh(x[0]); }},
    {"asinh", "Asinh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAsinh, x[0]); },
     [](Doubles x, const Attrs&) { return std::asinh(x[0]); }},
    {"acosh", "Acosh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAcosh, x[0]); },
     [](Doubles x, const Attrs&) { return std::acosh(x[0]); }},
    {"atanh", "Atanh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAtanh, x[0]); },
     [](Doubles x, const Attrs&) { return std::atanh(x[0]); }},
    {"bit_and", "BitwiseAnd", 2, kInts, Bitwise<Intrinsic::kBitAnd>, nullptr,
     [](Ints x, ir::DType, const Attrs&) { return x[0] & x[1]; }},
    {"bit_or", "BitwiseOr", 2, kInts, Bitwise<Intrinsic::kBitOr>, nullptr,
     [](Ints x, ir::DType, const Attrs&) { return x[0] | x[1]; }},
    {"bit_xor", "BitwiseXor", 2, kInts, Bitwise<Intrinsic::kBitXor>, nullptr,
     [](Ints x, ir::DType, const Attrs&) { return x[0] ^ x[1]; }},
    {"bit_not", "BitwiseNot", 1, kInts,
     [](Exprs x, const Attrs&) { return ir::Call(Intrinsic::kBitXor, {x[0], Like(-1, x[0])}); },
     nullptr, [](Ints x, ir::DType, const Attrs&) { return ~x[0]; }},
    {"shift_left", "", 2, kInts, Bitwise<Intrinsic::kShiftLeft>, nullptr,
     [](Ints x, ir::DType t, const Attrs&) { return Wrapped(ShiftedBits(x, t, true)); }},
    {"shift_right", "", 2, kInts, Bitwise<Intrinsic::kShiftRight>, nullptr,
     [](Ints x, ir::DType t, const Attrs&) { return Wrapped(ShiftedBits(x, t, false)); }},
    {"is_nan", "IsNaN", 1, kFloats,
     [](Exprs x, const Attrs&) { return ir::Binary(ir::ExprKind::kNe, x[0], x[0]); },
     [](Doubles x, const Attrs&) -> double { return std::isnan(x[0]); }},
    {"is_inf", "IsInf", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       const Expr infinity = Like(INFINITY, x[0]), minus = Like(-INFINITY, x[0]);
       const Expr above = ir::Eq(x[0], infinity), below = ir::Eq(x[0], minus);
       const bool up = Detects(a, "detect_positive"), down = Detects(a, "detect_negative");
       if (up && down) return ir::Binary(ir::ExprKind::kOr, above, below);
       return up ? above : down ? below : ir::Bool(false);
     },
     [](Doubles x, const Attrs& a) -> double {
       return std::isinf(x[0]) && Detects(a, x[0] > 0 ? "detect_positive" : "detect_negative");
     }},
    {"identity", "Identity", 1, kAnyType, [](Exprs x, const Attrs&) { return x[0]; },
     [](Doubles x, const Attrs&) { return x[0]; },
     [](Ints x, ir::DType, const Attrs&) { return x[0]; }},
};

}  // namespace

std::vector<OpSpec> ElementwiseRows() {
  std::vector<OpSpec> rows;
  for (const ScalarRow& row : kRows) {
    OpSpec spec = SpecOf(row);
    spec.moves = row.name == "identity" ? 1 : 0;
    spec.gives_bool = row.name == "is_nan" || row.name == "is_inf";
    rows.push_back(std::move(spec));
  }
  return rows;
}

}  // namespace tilewright::op
