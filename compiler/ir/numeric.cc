#include "compiler/ir/numeric.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace tilewright::ir {
namespace {

// Rounds a double half to even to a binary format with `mantissa` explicit bits and the exponent
// range [emin, emax].
double RoundToFormat(double v, int mantissa, int emin, int emax) {
  if (std::isnan(v) || std::isinf(v) || v == 0) return v;
  int e = 0;
  std::frexp(v, &e);
  int exponent = e - 1;  // v = 1.xxx * 2^exponent
  if (exponent < emin) exponent = emin;
  double quantum = std::ldexp(1.0, exponent - mantissa);
  double r = std::nearbyint(v / quantum) * quantum;  // v / quantum is exact: a power of two
  double largest = std::ldexp(2.0 - std::ldexp(1.0, -mantissa), emax);
  if (std::fabs(r) > largest) return std::copysign(std::numeric_limits<double>::infinity(), v);
  return r == 0 ? std::copysign(0.0, v) : r;
}

uint64_t Bits(double v) {
  uint64_t b;
  std::memcpy(&b, &v, sizeof b);
  return b;
}

template <typename T>
bool EvalOrdered(ExprKind kind, T a, T b, bool* out) {
  switch (kind) {
    case ExprKind::kEq:
      *out = a == b;
      return true;
    case ExprKind::kNe:
      *out = a != b;
      return true;
    case ExprKind::kLt:
      *out = a < b;
      return true;
    case ExprKind::kLe:
      *out = a <= b;
      return true;
    case ExprKind::kGt:
      *out = a > b;
      return true;
    case ExprKind::kGe:
      *out = a >= b;
      return true;
    default:
      return false;
  }
}

// round(a * b + c) with one rounding, for types whose product is exact in double: the sum is
// rounded to odd first, which makes the second rounding harmless.
double FmaNarrow(double a, double b, double c, DType t) {
  double p = a * b, s = p + c;
  if (!std::isfinite(s) || std::isinf(p)) return RoundFloat(s, t);
  double back = s - p, error = (p - (s - back)) + (c - back);
  if (error != 0 && (Bits(s) & 1) == 0) {
    s = std::nextafter(s, error > 0 ? HUGE_VAL : -HUGE_VAL);
  }
  return RoundFloat(s, t);
}

bool EvalDivision(ExprKind kind, DType t, int64_t a, int64_t b, int64_t* out) {
  if (b == 0) return false;
  if (t.code == TypeCode::kUInt) {
    uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    bool quotient = kind == ExprKind::kDiv || kind == ExprKind::kFloorDiv;
    *out = WrapInt(static_cast<int64_t>(quotient ? ua / ub : ua % ub), t);
    return true;
  }
  int64_t r = 0;
  if (b == -1) {  // the one overflow: most negative / -1 wraps
    bool quotient = kind == ExprKind::kDiv || kind == ExprKind::kFloorDiv;
    r = quotient ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : 0;
  } else if (kind == ExprKind::kDiv) {
    r = a / b;
  } else if (kind == ExprKind::kMod) {
    r = a % b;
  } else if (kind == ExprKind::kFloorDiv) {
    r = FloorDivInt(a, b);
  } else {
    r = FloorModInt(a, b);
  }
  *out = WrapInt(r, t);
  return true;
}

}  // namespace

int64_t WrapInt(int64_t v, DType t) {
  if (t.code == TypeCode::kBool) return v != 0;
  if (t.bits >= 64) return v;
  int shift = 64 - t.bits;
  uint64_t up = static_cast<uint64_t>(v) << shift;
  if (t.code == TypeCode::kUInt) return static_cast<int64_t>(up >> shift);
  return static_cast<int64_t>(up) >> shift;
}

double RoundFloat(double v, DType t) {
  if (std::isnan(v)) return std::numeric_limits<double>::quiet_NaN();
  if (t.code == TypeCode::kBFloat) return RoundToFormat(v, 7, -126, 127);
  if (t.bits == 16) return RoundToFormat(v, 10, -14, 15);
  if (t.bits == 32) return static_cast<double>(static_cast<float>(v));
  return v;
}

int64_t FloorDivInt(int64_t a, int64_t b) {
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  int64_t q = a / b, r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? q - 1 : q;
}

int64_t FloorModInt(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

bool EvalIntBinary(ExprKind kind, DType t, int64_t a, int64_t b, int64_t* out) {
  uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  bool is_unsigned = t.code == TypeCode::kUInt;
  switch (kind) {
    case ExprKind::kAdd:
      *out = WrapInt(static_cast<int64_t>(ua + ub), t);
      return true;
    case ExprKind::kSub:
      *out = WrapInt(static_cast<int64_t>(ua - ub), t);
      return true;
    case ExprKind::kMul:
      *out = WrapInt(static_cast<int64_t>(ua * ub), t);
      return true;
    case ExprKind::kDiv:
    case ExprKind::kMod:
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod:
      return EvalDivision(kind, t, a, b, out);
    case ExprKind::kMin:
      *out = (is_unsigned ? ua < ub : a < b) ? a : b;
      return true;
    case ExprKind::kMax:
      *out = (is_unsigned ? ua > ub : a > b) ? a : b;
      return true;
    case ExprKind::kAnd:
      *out = (a != 0) && (b != 0);
      return true;
    case ExprKind::kOr:
      *out = (a != 0) || (b != 0);
      return true;
    default: {
      bool r = false;
      bool known = is_unsigned ? EvalOrdered(kind, ua, ub, &r) : EvalOrdered(kind, a, b, &r);
      *out = r;
      return known;
    }
  }
}

bool EvalFloatArith(ExprKind kind, DType t, double a, double b, double* out) {
  // A double has more than 2p + 2 bits of every narrower type here, so rounding its result again is
  // the correctly rounded operation of that type.
  switch (kind) {
    case ExprKind::kAdd:
      *out = RoundFloat(a + b, t);
      return true;
    case ExprKind::kSub:
      *out = RoundFloat(a - b, t);
      return true;
    case ExprKind::kMul:
      *out = RoundFloat(a * b, t);
      return true;
    case ExprKind::kDiv:
      *out = RoundFloat(a / b, t);
      return true;
    case ExprKind::kMin:
      *out = a < b ? a : b;
      return true;
    case ExprKind::kMax:
      *out = a > b ? a : b;
      return true;
    default:
      return false;
  }
}

bool EvalFloatCompare(ExprKind kind, double a, double b, bool* out) {
  return EvalOrdered(kind, a, b, out);
}

double EvalFloatIntrinsic(Intrinsic intrinsic, DType t, double a, double b, double c) {
  switch (intrinsic) {
    case Intrinsic::kFma:
      return t.bits == 64 ? std::fma(a, b, c) : FmaNarrow(a, b, c, t);
    case Intrinsic::kExp:
      return RoundFloat(std::exp(a), t);
    case Intrinsic::kLog:
      return RoundFloat(std::log(a), t);
    case Intrinsic::kSqrt:
      return RoundFloat(std::sqrt(a), t);
    case Intrinsic::kTanh:
      return RoundFloat(std::tanh(a), t);
    case Intrinsic::kErf:
      return RoundFloat(std::erf(a), t);
    case Intrinsic::kAbs:
      return std::fabs(a);
    case Intrinsic::kFloor:
      return std::floor(a);
    case Intrinsic::kCeil:
      return std::ceil(a);
    case Intrinsic::kRoundEven:
      return std::nearbyint(a);
    case Intrinsic::kPow:
      return RoundFloat(std::pow(a, b), t);
    case Intrinsic::kSin:
      return RoundFloat(std::sin(a), t);
    case Intrinsic::kCos:
      return RoundFloat(std::cos(a), t);
    case Intrinsic::kTan:
      return RoundFloat(std::tan(a), t);
    case Intrinsic::kAsin:
      return RoundFloat(std::asin(a), t);
    case Intrinsic::kAcos:
      return RoundFloat(std::acos(a), t);
    case Intrinsic::kAtan:
      return RoundFloat(std::atan(a), t);
    case Intrinsic::kSinh:
      return RoundFloat(std::sinh(a), t);
    case Intrinsic::kCosh:
      return RoundFloat(std::cosh(a), t);
    case Intrinsic::kAsinh:
      return RoundFloat(std::asinh(a), t);
    case Intrinsic::kAcosh:
      return RoundFloat(std::acosh(a), t);
    case Intrinsic::kAtanh:
      return RoundFloat(std::atanh(a), t);
    case Intrinsic::kExpm1:
      return RoundFloat(std::expm1(a), t);
    case Intrinsic::kFmod:
      return std::fmod(a, b);
    case Intrinsic::kBitAnd:  // of integers
    case Intrinsic::kBitOr:
    case Intrinsic::kBitXor:
    case Intrinsic::kShiftLeft:
    case Intrinsic::kShiftRight:
    case Intrinsic::kWideningMul:
    case Intrinsic::kRoundingShiftRight:
    case Intrinsic::kDot4:  // integers, vectors: the interpreter does them
    case Intrinsic::kDotTile:
    case Intrinsic::kPrefetch:
    case Intrinsic::kNone:
      break;
  }
  return 0;
}

int64_t EvalIntIntrinsic(Intrinsic intrinsic, DType t, int64_t a, int64_t b) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool out = ub >= t.bits;  // of a shift; counts are not negative
  const uint64_t pattern = t.bits >= 64 ? ua : ua & ((uint64_t{1} << t.bits) - 1);
  switch (intrinsic) {
    case Intrinsic::kAbs:
      return WrapInt(t.code == TypeCode::kInt && a < 0 ? static_cast<int64_t>(0 - ua) : a, t);
    case Intrinsic::kBitAnd:
      return WrapInt(a & b, t);
    case Intrinsic::kBitOr:
      return WrapInt(a | b, t);
    case Intrinsic::kBitXor:
      return WrapInt(a ^ b, t);
    case Intrinsic::kShiftLeft:
      return out ? 0 : WrapInt(static_cast<int64_t>(ua << ub), t);
    case Intrinsic::kShiftRight:
      return out ? 0 : WrapInt(static_cast<int64_t>(pattern >> ub), t);
    case Intrinsic::kWideningMul:
      return WrapInt(static_cast<int64_t>(ua * ub), t);
    case Intrinsic::kRoundingShiftRight:
      if (b == 0) return a;
      return out ? 0 : (a >> b) + ((a >> (b - 1)) & 1);
    default:
      return 0;
  }
}

int64_t MinInt(DType t) {
  if (t.code != TypeCode::kInt) return 0;
  return t.bits >= 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (t.bits - 1));
}

int64_t MaxInt(DType t) {
  if (t.code == TypeCode::kBool) return 1;
  if (t.code == TypeCode::kUInt) return t.bits >= 64 ? int64_t{-1} : (int64_t{1} << t.bits) - 1;
  return t.bits >= 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (t.bits - 1)) - 1;
}

int64_t CastFloatToInt(double v, DType to) {
  if (to.code == TypeCode::kBool) return v != 0;  // NaN is not zero
  if (std::isnan(v)) return 0;
  v = std::trunc(v);
  if (to.code == TypeCode::kUInt && to.bits >= 64) {
    if (v <= 0) return 0;
    if (v >= 18446744073709551616.0) return -1;
    return static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  double lo = static_cast<double>(MinInt(to));
  if (v <= lo) return MinInt(to);
  if (v >= static_cast<double>(MaxInt(to)))
    return MaxInt(to);  // for i64 the bound rounds up to 2^63: right as well
  return static_cast<int64_t>(v);
}

int64_t CastIntToInt(int64_t v, DType to) { return WrapInt(v, to); }

double CastIntToFloat(int64_t v, DType from, DType to) {
  bool is_unsigned = from.code == TypeCode::kUInt;
  if (to.code == TypeCode::kFloat &&
      to.bits == 32) {  // straight to float: no double rounding of wide integers
    return is_unsigned ? static_cast<float>(static_cast<uint64_t>(v)) : static_cast<float>(v);
  }
  if (to.bits == 64)
    return is_unsigned ? static_cast<double>(static_cast<uint64_t>(v)) : static_cast<double>(v);
  // Round to odd in double first, then to the narrow type: one correct rounding.
  double d = is_unsigned ? static_cast<double>(static_cast<uint64_t>(v)) : static_cast<double>(v);
  if (d == 0 || std::fabs(d) < 9007199254740992.0) return RoundFloat(d, to);
  __int128 exact =
      is_unsigned ? static_cast<__int128>(static_cast<uint64_t>(v)) : static_cast<__int128>(v);
  __int128 rounded = static_cast<__int128>(d);
  if (rounded != exact && (Bits(d) & 1) == 0) {
    bool away = (rounded > exact) == (exact > 0);
    d = std::nextafter(d, away ? 0 : std::copysign(std::numeric_limits<double>::infinity(), d));
  }
  return RoundFloat(d, to);
}

uint16_t FloatToHalf(double v) {
  uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return 0x7e00;
  v = std::fabs(RoundToFormat(v, 10, -14, 15));
  if (std::isinf(v)) return sign | 0x7c00;
  if (v == 0) return sign;
  int e = 0;
  std::frexp(v, &e);
  int exponent = e - 1;
  if (exponent < -14) return sign | static_cast<uint16_t>(std::ldexp(v, 24));
  uint16_t mantissa = static_cast<uint16_t>(std::ldexp(v, 10 - exponent)) & 0x3ff;
  return sign | static_cast<uint16_t>((exponent + 15) << 10) | mantissa;
}

double HalfToFloat(uint16_t bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
  double v = 0;
  if (exponent == 31) {
    v = mantissa ? std::numeric_limits<double>::quiet_NaN()
                 : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    v = std::ldexp(mantissa, -24);
  } else {
    v = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) && !std::isnan(v) ? -v : v;
}

uint16_t FloatToBfloat(double v) {
  if (std::isnan(v)) return 0x7fc0;
  float f = static_cast<float>(RoundToFormat(v, 7, -126, 127));
  uint32_t b;
  std::memcpy(&b, &f, sizeof b);
  return static_cast<uint16_t>(b >> 16);
}

double BfloatToFloat(uint16_t bits) {
  uint32_t b = static_cast<uint32_t>(bits) << 16;
  float f;
  std::memcpy(&f, &b, sizeof f);
  return std::isnan(f) ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(f);
}

}  // namespace tilewright::ir
