// Values: expressions of the tensor IR as LLVM IR.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/codegen/llvm_math.h"
#include "compiler/codegen/llvm_scope.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Intrinsic;
using llvm::Value;
using StatusOrValue = absl::StatusOr<llvm::Value*>;

namespace {

llvm::CmpInst::Predicate FloatPredicate(ExprKind kind) {
  switch (kind) {
    case ExprKind::kEq:
      return llvm::CmpInst::FCMP_OEQ;
    case ExprKind::kNe:
      return llvm::CmpInst::FCMP_UNE;
    case ExprKind::kLt:
      return llvm::CmpInst::FCMP_OLT;
    case ExprKind::kLe:
      return llvm::CmpInst::FCMP_OLE;
    case ExprKind::kGt:
      return llvm::CmpInst::FCMP_OGT;
    default:
      return llvm::CmpInst::FCMP_OGE;
  }
}

llvm::CmpInst::Predicate IntPredicate(ExprKind kind, bool is_signed) {
  switch (kind) {
    case ExprKind::kEq:
      return llvm::CmpInst::ICMP_EQ;
    case ExprKind::kNe:
      return llvm::CmpInst::ICMP_NE;
    case ExprKind::kLt:
      return is_signed ? llvm::CmpInst::ICMP_SLT : llvm::CmpInst::ICMP_ULT;
    case ExprKind::kLe:
      return is_signed ? llvm::CmpInst::ICMP_SLE : llvm::CmpInst::ICMP_ULE;
    case ExprKind::kGt:
      return is_signed ? llvm::CmpInst::ICMP_SGT : llvm::CmpInst::ICMP_UGT;
    default:
      return is_signed ? llvm::CmpInst::ICMP_SGE : llvm::CmpInst::ICMP_UGE;
  }
}

bool IsDivision(ExprKind kind) {
  return kind == ExprKind::kDiv || kind == ExprKind::kMod || kind == ExprKind::kFloorDiv ||
         kind == ExprKind::kFloorMod;
}

bool IsLibraryCall(Intrinsic intrinsic) {
  switch (intrinsic) {
    case Intrinsic::kExp:
    case Intrinsic::kLog:
    case Intrinsic::kTanh:
    case Intrinsic::kErf:
    case Intrinsic::kPow:
    case Intrinsic::kSin:
    case Intrinsic::kCos:
    case Intrinsic::kTan:
    case Intrinsic::kAsin:
    case Intrinsic::kAcos:
    case Intrinsic::kAtan:
    case Intrinsic::kSinh:
    case Intrinsic::kCosh:
    case Intrinsic::kAsinh:
    case Intrinsic::kAcosh:
    case Intrinsic::kAtanh:
    case Intrinsic::kExpm1:
    case Intrinsic::kFmod:
      return true;
    default:
      return false;
  }
}

// Whether the instructions of a machine that computes in f16 do it.
bool HasHalfForm(Intrinsic intrinsic) {
  switch (intrinsic) {
    case Intrinsic::kAbs:
    case Intrinsic::kSqrt:
    case Intrinsic::kFloor:
    case Intrinsic::kCeil:
    case Intrinsic::kRoundEven:
      return true;
    default:
      return false;
  }
}

// A division that could trap when it is executed earlier than the program says.
bool MayTrap(const Expr& e) {
  if (IsDivision(e->kind) && e->dtype.is_int()) {
    const int64_t* divisor = ir::AsInt(e->args[1]);
    if (divisor == nullptr || *divisor == 0) return true;
  }
  for (const Expr& a : e->args) {
    if (MayTrap(a)) return true;
  }
  return false;
}

}  // namespace

bool FunctionEmitter::IsNonNegative(const Expr& e) const {
  switch (e->kind) {
    case ExprKind::kIntImm:
      return e->int_value >= 0;
    case ExprKind::kVar: {
      auto it = vars_.find(e.get());
      return it != vars_.end() && it->second.non_negative;
    }
    case ExprKind::kAdd:
    case ExprKind::kMul:
    case ExprKind::kMin:
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod:
      return IsNonNegative(e->args[0]) && IsNonNegative(e->args[1]);
    default:
      return false;
  }
}

StatusOrValue FunctionEmitter::Emit(const Expr& e) {
  // What is computed from loads is data, which may wrap.
  if (e->dtype == ir::kI64 && e->kind != ExprKind::kVar && !ir::HasLoad(e)) return EmitIndex(e);
  if ((e->kind == ExprKind::kLoad || e->kind == ExprKind::kBroadcast) && !table_.IsVolatile(e))
    return EmitShared(e);
  return EmitNode(e);
}

// The same load or broadcast in one basic block is emitted once.
StatusOrValue FunctionEmitter::EmitShared(const Expr& e) {
  if (shared_block_ != builder_.GetInsertBlock()) {
    shared_.clear();
    shared_block_ = builder_.GetInsertBlock();
  }
  int id = table_.Number(e);
  auto it = shared_.find(id);
  if (it != shared_.end()) return it->second;
  TW_ASSIGN(Value * value, EmitNode(e));
  if (shared_block_ == builder_.GetInsertBlock()) shared_[id] = value;
  return value;
}

StatusOrValue FunctionEmitter::EmitIndex(const Expr& e) {
  LinearIndex linear = table_.Decompose(e);
  if (linear.terms.empty()) return llvm::ConstantInt::getSigned(I64(), linear.constant);
  if (linear.terms.size() == 1 && linear.terms[0].coefficient == 1 && linear.constant == 0) {
    return EmitAtom(linear.terms[0]);
  }
  return EmitHoisted(e, table_.Number(e), [&]() -> StatusOrValue {
    TW_ASSIGN(Value * sum, EmitTerms(linear.terms));
    if (linear.constant == 0) return sum;
    return builder_.CreateNSWAdd(sum, llvm::ConstantInt::getSigned(I64(), linear.constant));
  });
}

// Once, at the outermost place where that is possible.
StatusOrValue FunctionEmitter::EmitHoisted(const Expr& e, int id, const Side& emit) {
  if (table_.IsVolatile(e) || MayTrap(e)) return emit();
  const int level = LevelOf(e);
  auto it = scopes_[level].atoms.find(id);
  if (it != scopes_[level].atoms.end()) return it->second;
  AtLevel at(*this, level);
  TW_ASSIGN(Value * value, emit());
  scopes_[level].atoms[id] = value;
  return value;
}

// Σ coefficient · atom at the current position; the operands may be placed further out.
StatusOrValue FunctionEmitter::EmitTerms(const std::vector<LinearTerm>& terms) {
  Value* sum = nullptr;
  for (const LinearTerm& term : terms) {
    TW_ASSIGN(Value * value, EmitAtom(term));
    if (term.coefficient != 1) {
      value = builder_.CreateNSWMul(value, llvm::ConstantInt::getSigned(I64(), term.coefficient));
    }
    sum = sum == nullptr ? value : builder_.CreateNSWAdd(sum, value);
  }
  return sum;
}

StatusOrValue FunctionEmitter::EmitAtom(const LinearTerm& term) {
  const Expr& e = term.atom;
  if (e->kind == ExprKind::kVar) return EmitNode(e);
  return EmitHoisted(e, term.id, [&] { return EmitNode(e); });
}

StatusOrValue FunctionEmitter::EmitNode(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kVar: {
      auto it = vars_.find(e.get());
      if (it == vars_.end()) return support::Internal("codegen.var.unbound", "variable " + e->name);
      return it->second.value;
    }
    case ExprKind::kIntImm: {
      TW_ASSIGN(llvm::Type * type, module_.ValueType(e->dtype));
      return llvm::ConstantInt::getSigned(type, e->int_value);
    }
    case ExprKind::kFloatImm: {
      TW_ASSIGN(llvm::Type * type, module_.ValueType(e->dtype));
      if (!module_.ComputesIn(e->dtype)) {
        const bool brain = e->dtype.code == ir::TypeCode::kBFloat;
        return llvm::ConstantInt::get(
            type, brain ? ir::FloatToBfloat(e->float_value) : ir::FloatToHalf(e->float_value));
      }
      return llvm::ConstantFP::get(type, e->float_value);
    }
    case ExprKind::kCast:
      return EmitCast(e);
    case ExprKind::kNot: {
      TW_ASSIGN(Value * value, Emit(e->args[0]));
      return builder_.CreateNot(value);
    }
    case ExprKind::kSelect:
      return EmitSelect(e);
    case ExprKind::kLoad:
      return EmitLoad(e);
    case ExprKind::kRamp:
      return EmitRamp(e);
    case ExprKind::kBroadcast: {
      TW_ASSIGN(Value * value, Emit(e->args[0]));
      return builder_.CreateVectorSplat(e->dtype.lanes, value);
    }
    case ExprKind::kCall:
      return EmitCall(e);
    default:
      return EmitBinary(e);
  }
}

StatusOrValue FunctionEmitter::EmitRamp(const Expr& e) {
  TW_ASSIGN(Value * base, Emit(e->args[0]));
  TW_ASSIGN(Value * stride, Emit(e->args[1]));
  int lanes = e->dtype.lanes;
  std::vector<llvm::Constant*> steps;
  for (int i = 0; i < lanes; ++i) steps.push_back(llvm::ConstantInt::get(base->getType(), i));
  Value* offsets = builder_.CreateMul(builder_.CreateVectorSplat(lanes, stride),
                                      llvm::ConstantVector::get(steps));
  return builder_.CreateAdd(builder_.CreateVectorSplat(lanes, base), offsets);
}

Value* FunctionEmitter::EmitDivide(ExprKind kind, Value* a, Value* b, const Expr& e) {
  bool modulo = kind == ExprKind::kMod || kind == ExprKind::kFloorMod;
  bool floors = kind == ExprKind::kFloorDiv || kind == ExprKind::kFloorMod;
  const int64_t* divisor = ir::AsInt(e->args[1]);
  bool positive = divisor != nullptr && *divisor > 0;
  if (e->dtype.code == ir::TypeCode::kUInt || (positive && IsNonNegative(e->args[0]))) {
    return modulo ? builder_.CreateURem(a, b) : builder_.CreateUDiv(a, b);
  }
  if (floors && positive && (*divisor & (*divisor - 1)) == 0) {
    if (modulo) return builder_.CreateAnd(a, llvm::ConstantInt::get(a->getType(), *divisor - 1));
    return builder_.CreateAShr(a, llvm::ConstantInt::get(a->getType(), __builtin_ctzll(*divisor)));
  }
  Value* zero = llvm::Constant::getNullValue(a->getType());
  Value* one = llvm::ConstantInt::get(a->getType(), 1);
  // a / -1 wraps in the IR and traps in the machine.
  Value* minus =
      positive ? nullptr : builder_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(a->getType()));
  Value* safe = minus == nullptr ? b : builder_.CreateSelect(minus, one, b);
  Value* quotient = builder_.CreateSDiv(a, safe);
  Value* remainder = builder_.CreateSub(a, builder_.CreateMul(quotient, safe));
  if (floors) {
    Value* opposite = builder_.CreateICmpSLT(builder_.CreateXor(remainder, safe), zero);
    Value* fix = builder_.CreateAnd(builder_.CreateICmpNE(remainder, zero), opposite);
    quotient = builder_.CreateSub(quotient, builder_.CreateZExt(fix, a->getType()));
    remainder = builder_.CreateSelect(fix, builder_.CreateAdd(remainder, safe), remainder);
  }
  if (modulo) return minus == nullptr ? remainder : builder_.CreateSelect(minus, zero, remainder);
  return minus == nullptr ? quotient
                          : builder_.CreateSelect(minus, builder_.CreateNeg(a), quotient);
}

// Expressions convert floats of 16 bits before they compute, unless the machine computes in them.
absl::Status FunctionEmitter::RefuseHalf(const Expr& e) const {
  const DType type = e->args[0]->dtype;
  if (!type.is_float() || type.bits != 16) return absl::OkStatus();
  if (module_.ComputesIn(type) && (e->kind != ExprKind::kCall || HasHalfForm(e->intrinsic))) {
    return absl::OkStatus();
  }
  return support::Unimplemented(
      "codegen.type.unsupported",
      "expected arithmetic in f32, f64 or integers, found " + ir::TypeName(type));
}

StatusOrValue FunctionEmitter::EmitBinary(const Expr& e) {
  TW_TRY(RefuseHalf(e));
  TW_ASSIGN(Value * limit, EmitLaneLimit(e));
  if (limit != nullptr) return limit;
  TW_ASSIGN(Value * a, Emit(e->args[0]));
  TW_ASSIGN(Value * b, Emit(e->args[1]));
  DType type = e->args[0]->dtype;
  bool is_float = type.is_float();
  bool is_signed = type.code == ir::TypeCode::kInt;
  switch (e->kind) {
    case ExprKind::kAdd:
      return is_float ? builder_.CreateFAdd(a, b) : builder_.CreateAdd(a, b);
    case ExprKind::kSub:
      return is_float ? builder_.CreateFSub(a, b) : builder_.CreateSub(a, b);
    case ExprKind::kMul:
      return is_float ? builder_.CreateFMul(a, b) : builder_.CreateMul(a, b);
    case ExprKind::kDiv:
      if (is_float) return builder_.CreateFDiv(a, b);
      return EmitDivide(e->kind, a, b, e);
    case ExprKind::kMod:
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod:
      return EmitDivide(e->kind, a, b, e);
    case ExprKind::kMin:
    case ExprKind::kMax: {
      // Exactly minps / maxps: the second operand when one is NaN.
      ExprKind order = e->kind == ExprKind::kMin ? ExprKind::kLt : ExprKind::kGt;
      Value* first = is_float ? builder_.CreateFCmp(FloatPredicate(order), a, b)
                              : builder_.CreateICmp(IntPredicate(order, is_signed), a, b);
      return builder_.CreateSelect(first, a, b);
    }
    case ExprKind::kAnd:
      return builder_.CreateAnd(a, b);
    case ExprKind::kOr:
      return builder_.CreateOr(a, b);
    default:
      break;
  }
  if (ir::IsComparison(e->kind)) {
    return is_float ? builder_.CreateFCmp(FloatPredicate(e->kind), a, b)
                    : builder_.CreateICmp(IntPredicate(e->kind, is_signed), a, b);
  }
  return support::Internal("codegen.expr.unknown", std::string(ir::KindText(e->kind)));
}

bool FunctionEmitter::IsSafeToSpeculate(const Expr& e) const {
  if (e->kind == ExprKind::kLoad) {
    auto it = buffers_.find(e->buffer.get());
    if (it == buffers_.end() || it->second.plan == nullptr) return false;
  }
  if (IsDivision(e->kind) && e->dtype.is_int() && MayTrap(e)) return false;
  // Calls of libm are pure, but too dear to run for nothing.
  if (e->kind == ExprKind::kCall && IsLibraryCall(e->intrinsic)) return false;
  for (const Expr& a : e->args) {
    if (!IsSafeToSpeculate(a)) return false;
  }
  return true;
}

StatusOrValue FunctionEmitter::EmitSelect(const Expr& e) {
  TW_ASSIGN(Value * condition, Emit(e->args[0]));
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(condition))
    return Emit(e->args[constant->isZero() ? 2 : 1]);
  // Vector conditions: the vectoriser has masked the loads of both sides.
  if (e->args[0]->dtype.is_vector() ||
      (IsSafeToSpeculate(e->args[1]) && IsSafeToSpeculate(e->args[2]))) {
    TW_ASSIGN(Value * a, Emit(e->args[1]));
    TW_ASSIGN(Value * b, Emit(e->args[2]));
    return builder_.CreateSelect(condition, a, b);
  }
  return EmitBranches(
      condition, [&] { return Emit(e->args[1]); }, [&] { return Emit(e->args[2]); });
}

StatusOrValue FunctionEmitter::EmitBranches(Value* condition, const Side& then_side,
                                            const Side& else_side) {
  llvm::BasicBlock* blocks[2] = {llvm::BasicBlock::Create(module_.context(), "", function_),
                                 llvm::BasicBlock::Create(module_.context(), "", function_)};
  llvm::BasicBlock* join = llvm::BasicBlock::Create(module_.context(), "", function_);
  llvm::Instruction* branch = builder_.CreateCondBr(condition, blocks[0], blocks[1]);
  Value* values[2];
  llvm::BasicBlock* ends[2];
  for (int side = 0; side < 2; ++side) {
    builder_.SetInsertPoint(blocks[side]);
    PushArm(branch);
    TW_ASSIGN(values[side], side == 0 ? then_side() : else_side());
    scopes_.pop_back();
    ends[side] = builder_.GetInsertBlock();
    builder_.CreateBr(join);
  }
  builder_.SetInsertPoint(join);
  llvm::PHINode* phi = builder_.CreatePHI(values[0]->getType(), 2);
  for (int side = 0; side < 2; ++side) phi->addIncoming(values[side], ends[side]);
  return phi;
}

StatusOrValue FunctionEmitter::EmitMathCall(const std::string& stem,
                                            const std::vector<Value*>& args, DType type) {
  std::string name = type.bits == 32 ? stem + "f" : stem;
  TW_ASSIGN(llvm::Type * element, module_.ValueType(type.Element()));
  llvm::FunctionCallee callee = module_.MathFunction(name, element, static_cast<int>(args.size()));
  if (!type.is_vector()) return builder_.CreateCall(callee, args);
  Value* result = llvm::PoisonValue::get(args[0]->getType());
  for (int lane = 0; lane < type.lanes; ++lane) {
    std::vector<Value*> lane_args;
    for (Value* a : args) lane_args.push_back(builder_.CreateExtractElement(a, lane));
    result = builder_.CreateInsertElement(result, builder_.CreateCall(callee, lane_args), lane);
  }
  return result;
}

// (a >> n) + bit n - 1 of a: no sum can overflow. Constant counts leave no selection behind.
Value* FunctionEmitter::EmitRoundingShift(const Expr& e, Value* a, Value* n) {
  llvm::Type* type = a->getType();
  Value *zero = llvm::Constant::getNullValue(type), *one = llvm::ConstantInt::get(type, 1);
  Value* last = builder_.CreateAnd(builder_.CreateAShr(a, builder_.CreateSub(n, one)), one);
  Value* rounded = builder_.CreateAdd(builder_.CreateAShr(a, n), last);
  Value* inside = builder_.CreateICmpULT(n, llvm::ConstantInt::get(type, e->dtype.bits));
  Value* shifted = builder_.CreateSelect(inside, rounded, zero);
  return builder_.CreateSelect(builder_.CreateICmpEQ(n, zero), a, shifted);
}

StatusOrValue FunctionEmitter::EmitCall(const Expr& e) {
  std::vector<Value*> args;
  TW_TRY(RefuseHalf(e));
  if (e->intrinsic == Intrinsic::kPrefetch)
    return support::Internal("codegen.call.prefetch", "prefetch gives no value");
  if (e->intrinsic == Intrinsic::kFma) {
    TW_ASSIGN(Value * value, EmitFusedHalves(e));
    if (value != nullptr) return value;
  }
  for (const Expr& a : e->args) {
    TW_ASSIGN(Value * value, Emit(a));
    args.push_back(value);
  }
  auto unary = [&](llvm::Intrinsic::ID id) -> Value* {
    return builder_.CreateUnaryIntrinsic(id, args[0]);
  };
  switch (e->intrinsic) {
    case Intrinsic::kFma:
      if (Value* value = EmitFused(e, args)) return value;
      return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {args[0]->getType()}, args);
    case Intrinsic::kDot4:
      return EmitDot4(e, args);
    case Intrinsic::kDotTile:
      return EmitDotTile(e, args);
    case Intrinsic::kSqrt:
      return unary(llvm::Intrinsic::sqrt);
    case Intrinsic::kFloor:
      return unary(llvm::Intrinsic::floor);
    case Intrinsic::kCeil:
      return unary(llvm::Intrinsic::ceil);
    case Intrinsic::kRoundEven:
      return unary(llvm::Intrinsic::roundeven);
    case Intrinsic::kAbs:
      if (e->dtype.is_float()) return unary(llvm::Intrinsic::fabs);
      if (e->dtype.code == ir::TypeCode::kUInt) return args[0];
      return builder_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, args[0], builder_.getFalse());
    case Intrinsic::kBitAnd:
      return builder_.CreateAnd(args[0], args[1]);
    case Intrinsic::kBitOr:
      return builder_.CreateOr(args[0], args[1]);
    case Intrinsic::kBitXor:
      return builder_.CreateXor(args[0], args[1]);
    case Intrinsic::kShiftLeft:
    case Intrinsic::kShiftRight: {
      // LLVM leaves counts of the width and more undefined.
      const bool left = e->intrinsic == Intrinsic::kShiftLeft;
      Value* shifted =
          left ? builder_.CreateShl(args[0], args[1]) : builder_.CreateLShr(args[0], args[1]);
      Value* inside = builder_.CreateICmpULT(
          args[1], llvm::ConstantInt::get(args[1]->getType(), e->dtype.bits));
      return builder_.CreateSelect(inside, shifted,
                                   llvm::Constant::getNullValue(args[0]->getType()));
    }
    case Intrinsic::kWideningMul: {
      TW_ASSIGN(llvm::Type * wide, module_.ValueType(e->dtype));
      const bool is_signed = e->dtype.code == ir::TypeCode::kInt;
      return builder_.CreateMul(builder_.CreateIntCast(args[0], wide, is_signed),
                                builder_.CreateIntCast(args[1], wide, is_signed));
    }
    case Intrinsic::kRoundingShiftRight:
      return EmitRoundingShift(e, args[0], args[1]);
    default:
      if (Value* value = EmitMath(builder_, e->intrinsic, args[0],
                                  module_.family().power_scaling(module_.target(), e->dtype.lanes)))
        return value;
      if (IsLibraryCall(e->intrinsic))
        return EmitMathCall(std::string(ir::IntrinsicText(e->intrinsic)), args, e->dtype);
      return support::Internal("codegen.call.unknown",
                               std::string(ir::IntrinsicText(e->intrinsic)));
  }
}

// fma(f32(x), f32(y), c) of x and y of f16, by an instruction that widens them. Null where there is
// none.
StatusOrValue FunctionEmitter::EmitFusedHalves(const Expr& e) {
  const LlvmTarget& family = module_.family();
  if (family.half_products == nullptr || e->dtype.Element() != ir::kF32) return nullptr;
  const HalfProducts products = family.half_products(module_.target(), e->dtype.lanes);
  if (products == nullptr) return nullptr;
  const Expr x = ir::ExactF16(e->args[0]), y = ir::ExactF16(e->args[1]);
  if (x == nullptr || y == nullptr) return nullptr;
  TW_ASSIGN(Value * a, Emit(x));
  TW_ASSIGN(Value * b, Emit(y));
  TW_ASSIGN(Value * c, Emit(e->args[2]));
  return products(builder_, a, b, c);
}

// Null where LLVM's fma is the way.
Value* FunctionEmitter::EmitFused(const Expr& e, const std::vector<Value*>& args) {
  const auto hook = module_.family().fused;
  if (hook == nullptr || e->dtype.bits != 32) return nullptr;
  return hook(builder_, module_.target(), args[0], args[1], args[2]);
}

// What no byte of the words is above: 15 for those of words & 0x0f0f0f0f, for example.
static int LargestByte(const Expr& words) {
  if (words->kind != ir::ExprKind::kCall || words->intrinsic != Intrinsic::kBitAnd) return 255;
  const int64_t* bits = ir::AsInt(ir::OfEachLane(words->args[1]));
  if (bits == nullptr) return 255;
  int largest = 0;
  for (int byte = 0; byte < 4; ++byte) {
    largest = std::max(largest, static_cast<int>(*bits >> 8 * byte & 255));
  }
  return largest;
}

// Brings the operands to one form; the target's family has the instruction.
Value* FunctionEmitter::EmitDot4(const Expr& e, const std::vector<Value*>& args) {
  const int lanes = e->dtype.lanes;
  Value* a = args[1];
  if (e->args[1]->dtype.lanes * e->args[1]->dtype.bits == 32 && lanes > 1) {
    a = builder_.CreateVectorSplat(static_cast<unsigned>(lanes),
                                   builder_.CreateBitCast(a, builder_.getInt32Ty()));
  } else {
    a = builder_.CreateBitCast(
        a, llvm::FixedVectorType::get(builder_.getInt32Ty(), static_cast<unsigned>(lanes)));
  }
  Value* b = args[2];
  if (e->dtype.is_float()) return EmitPairDot({args[0], a, b, lanes});
  const bool words = e->args[2]->dtype.bits == 32;
  if (words) {
    b = builder_.CreateBitCast(
        b, llvm::FixedVectorType::get(builder_.getInt8Ty(), 4 * static_cast<unsigned>(lanes)));
  }
  return module_.family().dot4(builder_, module_.target(),
                               {.sum = args[0],
                                .a = a,
                                .b = b,
                                .a_signed = e->args[1]->dtype.code == ir::TypeCode::kInt,
                                .b_signed = !words && e->args[2]->dtype.code == ir::TypeCode::kInt,
                                .lanes = lanes,
                                .b_most = words ? LargestByte(e->args[2]) : 255});
}

// Without an instruction: the halves of each word as f32, and two multiply-adds.
Value* FunctionEmitter::EmitPairDot(PairDot dot) {
  dot.b = builder_.CreateBitCast(dot.b, dot.a->getType());
  const auto hook = module_.family().pair_dot;
  if (hook != nullptr) {
    if (Value* value = hook(builder_, module_.target(), dot)) return value;
  }
  llvm::Type* floats = dot.sum->getType();
  const auto low = [&](Value* words) {
    return builder_.CreateBitCast(builder_.CreateShl(words, 16), floats);
  };
  const auto high = [&](Value* words) {
    return builder_.CreateBitCast(builder_.CreateAnd(words, 0xffff0000), floats);
  };
  Value* sum = builder_.CreateFAdd(dot.sum, builder_.CreateFMul(low(dot.a), low(dot.b)));
  return builder_.CreateFAdd(sum, builder_.CreateFMul(high(dot.a), high(dot.b)));
}

StatusOrValue FunctionEmitter::EmitDotTile(const Expr& e, const std::vector<Value*>& args) {
  const auto is_signed = [&](int arg) { return e->args[arg]->dtype.code == ir::TypeCode::kInt; };
  const DotTile tile = {.sum = args[0],
                        .rows = {args[1], args[2]},
                        .terms = {args[3], args[4]},
                        .a_signed = is_signed(1),
                        .b_signed = is_signed(3),
                        .columns = e->dtype.lanes / 2};
  const auto hook = module_.family().dot_tile;
  Value* result = hook == nullptr ? nullptr : hook(builder_, module_.target(), tile);
  if (result != nullptr) return result;
  return support::FailedPrecondition(
      "codegen.dot_tile.missing",
      "expected a target with matrix products of bytes, found " + module_.target().ToString());
}

}  // namespace tilewright::codegen
