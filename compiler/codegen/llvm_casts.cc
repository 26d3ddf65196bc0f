// Conversions between numbers: those from floats to integers saturate.
#include "compiler/codegen/llvm_emitter.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::DType;
using ir::Expr;
using llvm::Value;
using StatusOrValue = absl::StatusOr<Value*>;

// Into the range of an unsigned type; the larger of NaN and 0 is 0.
Value* FunctionEmitter::ClampToUnsigned(Value* value, DType to) {
  const double top = static_cast<double>((int64_t{1} << to.bits) - 1);
  value = builder_.CreateMaxNum(value, llvm::ConstantFP::get(value->getType(), 0));
  return builder_.CreateMinNum(value, llvm::ConstantFP::get(value->getType(), top));
}

// Truncation that saturates, NaN as 0. LLVM splits the saturating conversion of vectors to narrow
// integers into lanes, so that these take the way by 32 bits.
Value* FunctionEmitter::EmitFloatToInt(Value* value, DType from, DType to, llvm::Type* type) {
  const bool is_signed = to.code == ir::TypeCode::kInt;
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
  value = builder_.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {wide, value->getType()}, {value});
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

StatusOrValue FunctionEmitter::EmitCast(const Expr& e) {
  TW_ASSIGN(Value * byte, EmitNearestByte(e));
  if (byte != nullptr) return byte;
  TW_ASSIGN(Value * value, Emit(e->args[0]));
  TW_ASSIGN(llvm::Type * type, module_.ValueType(e->dtype));
  DType from = e->args[0]->dtype, to = e->dtype;
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

}  // namespace tilewright::codegen
