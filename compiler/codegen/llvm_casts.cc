// Conversions between numbers: those from floats to integers saturate.
#include <limits>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/ir/expr_parts.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::DType;
using ir::Expr;
using llvm::Value;
using StatusOrValue = absl::StatusOr<Value*>;

// Into the range of an unsigned type; the larger of NaN and 0 is 0.
Value* FunctionEmitter::ClampToUnsigned(Value* value, DType to) {
  Value* zero = llvm::ConstantFP::get(value->getType(), 0);
  Value* top =
      llvm::ConstantFP::get(value->getType(), static_cast<double>((int64_t{1} << to.bits) - 1));
  if (!module_.family().has_maxnum) {
    value = builder_.CreateSelect(builder_.CreateFCmpOGT(value, zero), value, zero);
    return builder_.CreateSelect(builder_.CreateFCmpOLT(value, top), value, top);
  }
  return builder_.CreateMinNum(builder_.CreateMaxNum(value, zero), top);
}

// f32 to i32. The largest float below 2^31 is not the largest integer. LLVM's conversion that
// saturates is one of each lane alone where the target has no such instruction.
Value* FunctionEmitter::EmitWordOfFloat(Value* value, llvm::Type* words) {
  constexpr double kMost = 2147483520, kLeast = -2147483648.0;
  if (!words->isVectorTy() || module_.family().saturates) {
    return builder_.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {words, value->getType()},
                                    {value});
  }
  llvm::Type* floats = value->getType();
  Value* most = llvm::ConstantFP::get(floats, kMost);
  Value* least = llvm::ConstantFP::get(floats, kLeast);
  Value* inside = builder_.CreateSelect(builder_.CreateFCmpOLT(value, most), value, most);
  inside = builder_.CreateSelect(builder_.CreateFCmpOGT(inside, least), inside, least);
  Value* above = builder_.CreateFCmpOGT(value, most);
  Value* result = builder_.CreateSelect(
      above, llvm::ConstantInt::get(words, std::numeric_limits<int32_t>::max()),
      builder_.CreateFPToSI(inside, words));
  return builder_.CreateSelect(builder_.CreateFCmpORD(value, value), result,
                               llvm::Constant::getNullValue(words));
}

// Truncation that saturates, NaN as 0. LLVM splits the saturating conversion of vectors to narrow
// integers into lanes, so that these take the way by 32 bits.
Value* FunctionEmitter::EmitFloatToInt(Value* value, DType from, DType to, llvm::Type* type) {
  const bool is_signed = to.code == ir::TypeCode::kInt;
  if (to.Element() == ir::kI32 && from.Element() == ir::kF32) return EmitWordOfFloat(value, type);
  if (to.bits >= 32 || from.bits > 32) {
    const auto id = is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return builder_.CreateIntrinsic(id, {type, value->getType()}, {value});
  }
  llvm::Type* wide = builder_.getInt32Ty();
  if (to.lanes > 1) wide = llvm::FixedVectorType::get(wide, static_cast<unsigned>(to.lanes));
  if (!is_signed) {
    return builder_.CreateTrunc(builder_.CreateFPToSI(ClampToUnsigned(value, to), wide), type);
  }
  const int64_t top = (int64_t{1} << (to.bits - 1)) - 1;
  value = EmitWordOfFloat(value, wide);
  value = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, value,
                                         llvm::ConstantInt::get(wide, static_cast<uint64_t>(top)));
  value = builder_.CreateBinaryIntrinsic(
      llvm::Intrinsic::smax, value,
      llvm::ConstantInt::get(wide, static_cast<uint64_t>(-top - 1), /*IsSigned=*/true));
  return builder_.CreateTrunc(value, type);
}

// u8(round_even(x)): where one instruction rounds to the nearest integer it converts as well.
// Rounding first or last is the same: both bounds are integers. Null where there is none.
StatusOrValue FunctionEmitter::EmitNearestByte(const Expr& e) {
  const Expr& rounded = e->args[0];
  const bool fits = e->dtype.Element() == ir::kU8 && rounded->kind == ir::ExprKind::kCall &&
                    rounded->intrinsic == ir::Intrinsic::kRoundEven &&
                    rounded->dtype.Element() == ir::kF32;
  const int lanes = e->dtype.lanes;
  const WordRounding round = module_.family().word_rounding(module_.target(), lanes);
  if (!fits || round == nullptr) return nullptr;
  TW_ASSIGN(Value * value, Emit(rounded->args[0]));
  TW_ASSIGN(llvm::Type * type, module_.ValueType(e->dtype));
  return builder_.CreateTrunc(round(builder_, ClampToUnsigned(value, e->dtype)), type);
}

// f32(bit_and(words, 15)): what weights of four bits are unpacked with. Null where the target has
// no instruction for it.
StatusOrValue FunctionEmitter::EmitNibble(const Expr& e) {
  const Expr& low = e->args[0];
  const bool is_low = low->kind == ir::ExprKind::kCall &&
                      low->intrinsic == ir::Intrinsic::kBitAnd && low->dtype.Element() == ir::kI32;
  if (!is_low || e->dtype.Element() != ir::kF32) return nullptr;
  if (!ir::IsInt(ir::OfEachLane(low->args[1]), 15) || module_.family().nibble_floats == nullptr)
    return nullptr;
  const NibbleFloats floats = module_.family().nibble_floats(module_.target(), e->dtype.lanes);
  if (floats == nullptr) return nullptr;
  TW_ASSIGN(Value * words, Emit(low->args[0]));
  return floats(builder_, words);
}

namespace {

// Conversions of floats of 16 bits, whose bits are in integers of 16 bits, or in f16 where the
// target computes in it: of f16 with the target's instructions, if it has them, else with those for
// integers that every target has.
class HalfCasts {
 public:
  HalfCasts(llvm::IRBuilderBase& b, llvm::Type* shape, const target::Machine& machine)
      : b_(b),
        has_instructions_(machine.converts_f16),
        computes_(machine.computes_f16),
        f16_(shape->getWithNewType(b.getHalfTy())),
        i16_(shape->getWithNewType(b.getInt16Ty())),
        i32_(shape->getWithNewType(b.getInt32Ty())),
        i64_(shape->getWithNewType(b.getInt64Ty())),
        f32_(shape->getWithNewType(b.getFloatTy())),
        f64_(shape->getWithNewType(b.getDoubleTy())) {}

  Value* Widen(Value* bits, bool brain) {
    if (!brain && has_instructions_) return b_.CreateFPExt(b_.CreateBitCast(bits, f16_), f32_);
    Value* wide = b_.CreateZExt(bits, i32_);
    if (brain) return b_.CreateBitCast(b_.CreateShl(wide, 16), f32_);
    constexpr int32_t kExponent = 0x7c00 << 13;
    Value* sign = b_.CreateShl(b_.CreateAnd(wide, I(0x8000)), 16);
    Value* low = b_.CreateShl(b_.CreateAnd(wide, I(0x7fff)), 13);
    Value* exponent = b_.CreateAnd(low, I(kExponent));
    Value* moved = b_.CreateAdd(low, I((127 - 15) << 23));
    // Infinities and NaN have the largest exponent, numbers below the normal ones the smallest.
    Value* special = b_.CreateAdd(moved, I((128 - 16) << 23));
    Value* small = b_.CreateBitCast(
        b_.CreateFSub(b_.CreateBitCast(b_.CreateAdd(moved, I(1 << 23)), f32_), Power(113 << 23)),
        i32_);
    Value* value = b_.CreateSelect(b_.CreateICmpEQ(exponent, I(kExponent)), special, moved);
    value = b_.CreateSelect(b_.CreateICmpEQ(exponent, I(0)), small, value);
    return b_.CreateBitCast(b_.CreateOr(value, sign), f32_);
  }

  // Rounds half to even; NaN becomes the quiet NaN.
  Value* Narrow(Value* value, bool brain) {
    if (!brain && has_instructions_) {
      Value* half = b_.CreateFPTrunc(value, f16_);
      Value* nan = b_.CreateFCmpUNO(value, value);
      if (computes_) return b_.CreateSelect(nan, llvm::ConstantFP::getNaN(f16_), half);
      return b_.CreateSelect(nan, llvm::ConstantInt::get(i16_, kQuietHalf),
                             b_.CreateBitCast(half, i16_));
    }
    Value* bits = b_.CreateBitCast(value, i32_);
    Value* sign = b_.CreateAnd(bits, I(INT32_MIN));
    Value* size = b_.CreateXor(bits, sign);
    Value* nan = b_.CreateICmpSGT(size, I(0x7f800000));
    Value* narrow = brain ? Brain(size) : Half(size);
    narrow = b_.CreateSelect(nan, I(brain ? 0x7fc0 : kQuietHalf), narrow);
    // NaN has no sign here, as in the interpreter.
    Value* high = b_.CreateSelect(nan, I(0), b_.CreateLShr(sign, 16));
    return b_.CreateTrunc(b_.CreateOr(narrow, high), i16_);
  }

  // To f32 with the last bit set where the number is not exact: rounding once more is then right.
  Value* ToOdd(Value* wide) {
    Value* rounded = b_.CreateFPTrunc(wide, f32_);
    Value* back = b_.CreateFPExt(rounded, f64_);
    Value* bits = b_.CreateBitCast(rounded, i32_);
    Value* even = b_.CreateICmpEQ(b_.CreateAnd(bits, I(1)), I(0));
    Value* adjust = b_.CreateAnd(even, b_.CreateFCmpONE(back, wide));
    Value* below = b_.CreateFCmpOLT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                    b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wide));
    Value* step = b_.CreateSelect(below, I(1), I(-1));
    bits = b_.CreateSelect(adjust, b_.CreateAdd(bits, step), bits);
    return b_.CreateBitCast(bits, f32_);
  }

  // An integer of 64 bits as a double, to odd in the same sense.
  Value* IntToOdd(Value* value, bool is_signed) {
    const auto constant = [&](int64_t v) { return llvm::ConstantInt::getSigned(i64_, v); };
    Value* low = b_.CreateAnd(value, constant(0x7ff));
    Value* sticky =
        b_.CreateSelect(b_.CreateICmpEQ(low, constant(0)), constant(0), constant(0x800));
    Value* cut = b_.CreateOr(b_.CreateXor(value, low), sticky);
    Value* large = b_.CreateICmpUGT(b_.CreateAdd(value, constant(int64_t{1} << 53)),
                                    constant(int64_t{1} << 54));
    if (!is_signed) large = b_.CreateICmpUGT(value, constant(int64_t{1} << 53));
    Value* used = b_.CreateSelect(large, cut, value);
    return is_signed ? b_.CreateSIToFP(used, f64_) : b_.CreateUIToFP(used, f64_);
  }

 private:
  llvm::Constant* I(int32_t value) { return llvm::ConstantInt::getSigned(i32_, value); }
  Value* Power(int32_t bits) { return b_.CreateBitCast(I(bits), f32_); }
  // The bits without the sign, rounded where the lower 16 end.
  Value* Brain(Value* size) {
    Value* odd = b_.CreateAnd(b_.CreateLShr(size, 16), I(1));
    return b_.CreateLShr(b_.CreateAdd(size, b_.CreateAdd(odd, I(0x7fff))), 16);
  }
  Value* Half(Value* size) {
    constexpr int32_t kInfinite = (127 + 16) << 23, kNormal = 113 << 23, kMagic = 126 << 23;
    Value* odd = b_.CreateAnd(b_.CreateLShr(size, 13), I(1));
    Value* normal = b_.CreateAdd(b_.CreateAdd(size, odd), I(((15 - 127) << 23) + 0xfff));
    normal = b_.CreateLShr(normal, 13);
    // The addition rounds at the place of the smallest number.
    Value* sum = b_.CreateFAdd(b_.CreateBitCast(size, f32_), Power(kMagic));
    Value* small = b_.CreateSub(b_.CreateBitCast(sum, i32_), I(kMagic));
    Value* value = b_.CreateSelect(b_.CreateICmpSLT(size, I(kNormal)), small, normal);
    return b_.CreateSelect(b_.CreateICmpSGE(size, I(kInfinite)), I(0x7c00), value);
  }

  static constexpr int32_t kQuietHalf = 0x7e00;
  llvm::IRBuilderBase& b_;
  const bool has_instructions_, computes_;
  llvm::Type *f16_, *i16_, *i32_, *i64_, *f32_, *f64_;
};

bool IsHalfType(DType type) { return type.is_float() && type.bits == 16; }

}  // namespace

// From and to floats of 16 bits, by way of f32.
StatusOrValue FunctionEmitter::EmitHalfCast(Value* value, DType from, DType to) {
  TW_ASSIGN(llvm::Type * middle, module_.ValueType(ir::kF32.WithLanes(to.lanes)));
  HalfCasts casts(builder_, middle, module_.target().machine);
  if (IsHalfType(from)) {
    value = casts.Widen(value, from.code == ir::TypeCode::kBFloat);
    from = ir::kF32.WithLanes(from.lanes);
    if (from == to) return value;
    if (!IsHalfType(to)) return EmitConversion(value, from, to);
  }
  if (from.is_bool()) value = builder_.CreateUIToFP(value, middle);
  if (from.is_int()) {
    const bool is_signed = from.code == ir::TypeCode::kInt;
    llvm::Type* wide = middle->getWithNewType(builder_.getDoubleTy());
    value = from.bits == 64 ? casts.IntToOdd(value, is_signed)
            : is_signed     ? builder_.CreateSIToFP(value, wide)
                            : builder_.CreateUIToFP(value, wide);
    from = ir::kF64.WithLanes(to.lanes);
  }
  if (from.is_float() && from.bits == 64) value = casts.ToOdd(value);
  return casts.Narrow(value, to.code == ir::TypeCode::kBFloat);
}

StatusOrValue FunctionEmitter::EmitConversion(Value* value, DType from, DType to) {
  TW_ASSIGN(llvm::Type * type, module_.ValueType(to));
  bool from_signed = from.code == ir::TypeCode::kInt;
  if (from.is_float() && to.is_float()) return builder_.CreateFPCast(value, type);
  if (from.is_float()) {
    if (to.is_bool())
      return builder_.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()));
    return EmitFloatToInt(value, from, to, type);
  }
  if (to.is_float())
    return from_signed ? builder_.CreateSIToFP(value, type) : builder_.CreateUIToFP(value, type);
  if (to.is_bool())
    return builder_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  return builder_.CreateIntCast(value, type, from_signed);
}

StatusOrValue FunctionEmitter::EmitCast(const Expr& e) {
  TW_ASSIGN(Value * byte, EmitNearestByte(e));
  if (byte != nullptr) return byte;
  TW_ASSIGN(Value * nibble, EmitNibble(e));
  if (nibble != nullptr) return nibble;
  TW_ASSIGN(Value * value, Emit(e->args[0]));
  const DType from = e->args[0]->dtype, to = e->dtype;
  if (IsHalfType(from) || IsHalfType(to)) return EmitHalfCast(value, from, to);
  return EmitConversion(value, from, to);
}

}  // namespace tilewright::codegen
