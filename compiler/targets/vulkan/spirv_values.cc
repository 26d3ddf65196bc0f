// Expressions as SPIR-V: conversions and intrinsics.
#include <limits>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/targets/vulkan/spirv_expr.h"
#include "deploy/support/strings.h"

namespace tilewright::vulkan {
namespace {

using ir::DType;
using ir::Expr;
using support::StrCat;

bool HasSign(DType type) { return type.code == ir::TypeCode::kInt; }

// The smallest float of the type that is no value of the integer type any more, from above: a power
// of two, which every type that reaches so far has.
double Beyond(DType type) {
  double power = 1;
  for (int i = 0; i < type.bits - (HasSign(type) ? 1 : 0); ++i) power *= 2;
  return power;
}

// Functions that GLSL.std.450 has as exactly as the IR wants them, for all floats.
GLSLstd450 ExactFunction(ir::Intrinsic intrinsic) {
  switch (intrinsic) {
    case ir::Intrinsic::kFma:
      return GLSLstd450Fma;
    case ir::Intrinsic::kSqrt:
      return GLSLstd450Sqrt;
    case ir::Intrinsic::kAbs:
      return GLSLstd450FAbs;
    case ir::Intrinsic::kFloor:
      return GLSLstd450Floor;
    case ir::Intrinsic::kCeil:
      return GLSLstd450Ceil;
    case ir::Intrinsic::kRoundEven:
      return GLSLstd450RoundEven;
    default:
      return GLSLstd450Bad;
  }
}

}  // namespace

// Saturates; what is no number becomes 0. The conversion itself is only asked where it fits.
Id SpirvExpr::IntOfFloat(DType to, DType from, Id value) {
  const Id type = TypeOf(to), yes = module_.Bool();
  const auto number = [&](double v) { return module_.FloatConstant(from.bits, v); };
  const double end = Beyond(to), begin = HasSign(to) ? -end : 0;
  const bool converts_signed = HasSign(to);
  // A 16-bit float ends before most integers do: the bounds are infinite then, which holds, too.
  Id result =
      code_.Op(converts_signed ? spv::Op::OpConvertFToS : spv::Op::OpConvertFToU, type, {value});
  const Id low = code_.Op(spv::Op::OpFOrdLessThanEqual, yes, {value, number(begin)});
  const Id high = code_.Op(spv::Op::OpFOrdGreaterThanEqual, yes, {value, number(end)});
  const Id none = code_.Op(spv::Op::OpFUnordNotEqual, yes, {value, value});
  result = Select(type, low, Constant(to, ir::MinInt(to)), result);
  result = Select(type, high, Constant(to, ir::MaxInt(to)), result);
  return Select(type, none, Constant(to, 0), result);
}

Id SpirvExpr::Cast(DType to, DType from, Id value) {
  if (to == from) return value;
  const Id type = TypeOf(to);
  if (to.is_bool()) {
    const Id zero = Constant(from, 0);
    return code_.Op(from.is_float() ? spv::Op::OpFUnordNotEqual : spv::Op::OpINotEqual, type,
                    {value, zero});
  }
  if (from.is_bool()) return Select(type, value, Constant(to, 1), Constant(to, 0));
  if (from.is_float() && to.is_float()) {
    if (to.bits == from.bits) return value;
    if (to.bits == 16) module_.RoundHalvesToEven();
    return code_.Op(spv::Op::OpFConvert, type, {value});
  }
  if (from.is_float()) return IntOfFloat(to, from, value);
  if (to.is_float()) {
    if (to.bits == 16) module_.RoundHalvesToEven();
    return code_.Op(HasSign(from) ? spv::Op::OpConvertSToF : spv::Op::OpConvertUToF, type, {value});
  }
  if (BitsOf(to) == BitsOf(from)) return value;
  const bool extends_sign = BitsOf(to) > BitsOf(from) && HasSign(from);
  return code_.Op(extends_sign ? spv::Op::OpSConvert : spv::Op::OpUConvert, type, {value});
}

// The factors of one lane of a dot product: they are shared by all lanes, or four for each.
Id SpirvExpr::FourBytes(const Expr& bytes, int lane) {
  const Id type = module_.Vector(module_.Int(8), 4);
  if (bytes->dtype.bits == 32) return code_.Op(spv::Op::OpBitcast, type, {Lane(bytes, lane)});
  const int first = bytes->dtype.lanes == 4 ? 0 : 4 * lane;
  Words all;
  for (int k = 0; k < 4; ++k) all.push_back(Lane(bytes, first + k));
  return code_.Op(spv::Op::OpCompositeConstruct, type, all);
}

// One operation adds up four products. Where only one factor has a sign it comes first.
Id SpirvExpr::Dot4ByInstruction(const Expr& e, int lane) {
  const auto has_sign = [](const Expr& bytes) {
    return bytes->dtype.bits == 8 && HasSign(bytes->dtype);  // a word is four unsigned bytes
  };
  for (const auto capability :
       {spv::Capability::DotProduct, spv::Capability::DotProductInput4x8Bit})
    module_.AddCapability(capability);
  const bool a_signed = has_sign(e->args[1]), b_signed = has_sign(e->args[2]);
  Words factors = {FourBytes(e->args[1], lane), FourBytes(e->args[2], lane)};
  if (b_signed && !a_signed) std::swap(factors[0], factors[1]);
  const spv::Op op = a_signed && b_signed   ? spv::Op::OpSDot
                     : a_signed || b_signed ? spv::Op::OpSUDot
                                            : spv::Op::OpUDot;
  const Id word = module_.Int(32), products = code_.Op(op, word, factors);
  return code_.Op(spv::Op::OpIAdd, word, {Lane(e->args[0], lane), products});
}

// One lane of a dot product, product by product.
Id SpirvExpr::Dot4(const Expr& e, int lane) {
  const Id word = module_.Int(32);
  Id sum = Lane(e->args[0], lane);
  for (int k = 0; k < 4; ++k) {
    Id factors[2];
    for (size_t operand : {1, 2}) {
      const Expr& bytes = e->args[operand];
      if (bytes->dtype.bits == 32) {
        const Id shifted = code_.Op(spv::Op::OpShiftRightLogical, word,
                                    {Lane(bytes, lane), Constant(ir::kI32, 8 * k)});
        factors[operand - 1] =
            code_.Op(spv::Op::OpBitwiseAnd, word, {shifted, Constant(ir::kI32, 0xff)});
        continue;
      }
      const int first = bytes->dtype.lanes == 4 ? 0 : 4 * lane;
      factors[operand - 1] = Cast(ir::kI32, bytes->dtype.Element(), Lane(bytes, first + k));
    }
    const Id product = code_.Op(spv::Op::OpIMul, word, {factors[0], factors[1]});
    sum = code_.Op(spv::Op::OpIAdd, word, {sum, product});
  }
  return sum;
}

// (a >> n) + bit n - 1 of a: no sum can overflow.
Id SpirvExpr::RoundingShift(DType type, Id a, Id n) {
  const Id id = TypeOf(type), yes = module_.Bool();
  const Id zero = Constant(type, 0), one = Constant(type, 1);
  const auto shift = [&](Id by) { return code_.Op(spv::Op::OpShiftRightArithmetic, id, {a, by}); };
  const Id last =
      code_.Op(spv::Op::OpBitwiseAnd, id, {shift(code_.Op(spv::Op::OpISub, id, {n, one})), one});
  const Id rounded = code_.Op(spv::Op::OpIAdd, id, {shift(n), last});
  const Id fits = code_.Op(spv::Op::OpULessThan, yes, {n, Constant(type, BitsOf(type))});
  const Id shifted = Select(id, fits, rounded, zero);
  return Select(id, code_.Op(spv::Op::OpIEqual, yes, {n, zero}), a, shifted);
}

// Shifts by the width or more give zeros; Vulkan's are undefined there.
Id SpirvExpr::IntIntrinsic(const Expr& e, int lane) {
  const DType type = e->dtype.Element();
  const Id id = TypeOf(type), a = Lane(e->args[0], lane);
  if (e->intrinsic == ir::Intrinsic::kWideningMul) {
    const DType narrow = e->args[0]->dtype.Element();
    const Id b = Lane(e->args[1], lane);
    return code_.Op(spv::Op::OpIMul, id, {Cast(type, narrow, a), Cast(type, narrow, b)});
  }
  if (e->intrinsic == ir::Intrinsic::kAbs) {
    if (!HasSign(type)) return a;
    const Id zero = Constant(type, 0);
    const Id minus = code_.Op(spv::Op::OpSLessThan, module_.Bool(), {a, zero});
    return Select(id, minus, code_.Op(spv::Op::OpISub, id, {zero, a}), a);
  }
  if (e->args.size() != 2) {
    Fail(StrCat("intrinsic ", ir::IntrinsicText(e->intrinsic)));
    return a;
  }
  const Id b = Lane(e->args[1], lane);
  switch (e->intrinsic) {
    case ir::Intrinsic::kBitAnd:
      return code_.Op(spv::Op::OpBitwiseAnd, id, {a, b});
    case ir::Intrinsic::kBitOr:
      return code_.Op(spv::Op::OpBitwiseOr, id, {a, b});
    case ir::Intrinsic::kBitXor:
      return code_.Op(spv::Op::OpBitwiseXor, id, {a, b});
    case ir::Intrinsic::kShiftLeft:
    case ir::Intrinsic::kShiftRight: {
      const bool left = e->intrinsic == ir::Intrinsic::kShiftLeft;
      const Id fits =
          code_.Op(spv::Op::OpULessThan, module_.Bool(), {b, Constant(type, BitsOf(type))});
      const Id shifted =
          code_.Op(left ? spv::Op::OpShiftLeftLogical : spv::Op::OpShiftRightLogical, id, {a, b});
      return Select(id, fits, shifted, Constant(type, 0));
    }
    case ir::Intrinsic::kRoundingShiftRight:
      return RoundingShift(type, a, b);
    default:
      Fail(StrCat("intrinsic ", ir::IntrinsicText(e->intrinsic)));
      return a;
  }
}

// 16-bit floats go through the functions of 32 bits.
Id SpirvExpr::FloatIntrinsic(const Expr& e, const Words& operands) {
  const DType type = e->dtype.Element();
  const GLSLstd450 exact = ExactFunction(e->intrinsic);
  if (exact != GLSLstd450Bad) return code_.Math(exact, TypeOf(type), operands);
  const DType computed = type.bits == 64 ? ir::kF64 : ir::kF32;
  if (!SpirvMath::Has(e->intrinsic, computed.bits)) {
    Fail(StrCat("intrinsic ", ir::IntrinsicText(e->intrinsic), " of ", ir::TypeName(type)));
    return operands[0];
  }
  Words wide;
  for (Id operand : operands) wide.push_back(Cast(computed, type, operand));
  return Cast(type, computed, math_.Call(&code_, e->intrinsic, computed.bits, wide));
}

Id SpirvExpr::Intrinsic(const Expr& e, int lane) {
  if (e->intrinsic == ir::Intrinsic::kDot4)
    return dot_products_ ? Dot4ByInstruction(e, lane) : Dot4(e, lane);
  if (e->dtype.is_int()) return IntIntrinsic(e, lane);
  Words operands;
  for (const Expr& a : e->args) operands.push_back(Lane(a, lane));
  return FloatIntrinsic(e, operands);
}

}  // namespace tilewright::vulkan
