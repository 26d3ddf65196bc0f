#include "compiler/codegen/llvm_math.h"

#include <cmath>
#include <limits>
#include <span>

#include "compiler/codegen/math_tables.h"

namespace tilewright::codegen {
namespace {

using ir::Intrinsic;
using llvm::Value;

class Math {
 public:
  Math(llvm::IRBuilderBase& b, llvm::Type* type, PowerScaling scale)
      : b_(b), type_(type), scale_(scale) {
    int_type_ = type->getWithNewType(b.getInt32Ty());
  }

  // x = n ln 2 + r; e^x = 2^n (1 + r (1 + r P(r))).
  Value* Exp(Value* x) {
    x = Select(b_.CreateFCmpOGT(x, F(89.0f)), F(89.0f), x);  // NaN stays
    x = Select(b_.CreateFCmpOLT(x, F(-104.0f)), F(-104.0f), x);
    Value* n = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven,
                                       b_.CreateFMul(x, F(static_cast<float>(M_LOG2E))));
    Value* r = MulAdd(n, F(-kLn2Low), MulAdd(n, F(-kLn2High), x));
    Value* p = MulAdd(Polynomial(kExpTable, r), r, F(1.0f));
    return TimesPowerOfTwo(MulAdd(p, r, F(1.0f)), n);
  }

  // x = 2^e m, m between the roots of 1/2 and 2; log x = e ln 2 + log(1 + f), f = m - 1.
  Value* Log(Value* x) {
    constexpr int32_t kRootHalf = 0x3f3504f3;
    Value* tiny = b_.CreateFCmpOLT(x, F(std::numeric_limits<float>::min()));
    Value* bits = b_.CreateBitCast(Select(tiny, b_.CreateFMul(x, F(0x1p23f)), x), int_type_);
    Value* shifted = b_.CreateSub(bits, I(kRootHalf));
    Value* e = b_.CreateSIToFP(b_.CreateAShr(shifted, 23), type_);
    e = b_.CreateFSub(e, Select(tiny, F(23.0f), F(0.0f)));
    Value* m = b_.CreateAdd(b_.CreateAnd(shifted, I(0x7fffff)), I(kRootHalf));
    Value* f = b_.CreateFSub(b_.CreateBitCast(m, type_), F(1.0f));
    Value* square = b_.CreateFMul(f, f);
    Value* y = b_.CreateFMul(b_.CreateFMul(square, f), Polynomial(kLogTable, f));
    y = MulAdd(square, F(-0.5f), MulAdd(e, F(kLn2Low), y));
    y = MulAdd(e, F(kLn2High), b_.CreateFAdd(y, f));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    y = Select(b_.CreateFCmpOLT(x, F(kInfinity)), y, x);
    Value* outside = Select(b_.CreateFCmpOEQ(x, F(0.0f)), F(-kInfinity),
                            F(std::numeric_limits<float>::quiet_NaN()));
    return Select(b_.CreateFCmpOGT(x, F(0.0f)), y, outside);
  }

  Value* Tanh(Value* x) {
    Value* z = Abs(x);
    Value* square = b_.CreateFMul(x, x);
    Value* near = MulAdd(b_.CreateFMul(x, square), Polynomial(kTanhTable, square), x);
    Value* e = Exp(b_.CreateFAdd(z, z));
    Value* far = b_.CreateFDiv(F(2.0f), b_.CreateFAdd(e, F(1.0f)));
    far = WithSignOf(x, b_.CreateFSub(F(1.0f), far));
    return Select(b_.CreateFCmpOLT(square, F(0.4f)), near, far);
  }

  // e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which loses nothing near zero and below.
  Value* Expm1(Value* x) {
    Value* t = Tanh(b_.CreateFMul(x, F(0.5f)));
    Value* near = b_.CreateFDiv(b_.CreateFAdd(t, t), b_.CreateFSub(F(1.0f), t));
    return Select(b_.CreateFCmpOGT(x, F(1.0f)), b_.CreateFSub(Exp(x), F(1.0f)), near);
  }

  Value* Erf(Value* x) {
    Value* z = Abs(x);
    Value* square = b_.CreateFMul(x, x);
    Value* near = MulAdd(x, Polynomial(kErfTable, square), x);
    Value* t = Select(b_.CreateFCmpOGT(z, F(4.0f)), F(4.0f), z);  // 1 from there on; NaN stays
    Value* far = b_.CreateFSub(F(1.0f), Exp(Polynomial(kErfcTable, t)));
    return Select(b_.CreateFCmpOLT(z, F(1.0f)), near, WithSignOf(x, far));
  }

 private:
  Value* F(float value) { return llvm::ConstantFP::get(type_, value); }
  Value* I(int32_t value) { return llvm::ConstantInt::getSigned(int_type_, value); }
  Value* Select(Value* condition, Value* a, Value* b) { return b_.CreateSelect(condition, a, b); }
  Value* Abs(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value* WithSignOf(Value* sign, Value* x) {
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign);
  }
  // One rounding where the target has such an instruction.
  Value* MulAdd(Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {type_}, {a, b, c});
  }
  // p 2^n, n a whole number. The power goes in two halves, because 2^n alone may be too large or
  // too small where the product is not, unless the target has an instruction for it.
  Value* TimesPowerOfTwo(Value* p, Value* n) {
    if (scale_ != nullptr) return scale_(b_, p, n);
    // Of NaN: any number, it is multiplied by NaN.
    Value* i = b_.CreateFreeze(b_.CreateFPToSI(n, int_type_));
    Value* half = b_.CreateAShr(i, 1);
    return b_.CreateFMul(b_.CreateFMul(p, PowerOfTwo(half)), PowerOfTwo(b_.CreateSub(i, half)));
  }
  Value* PowerOfTwo(Value* n) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(n, I(127)), 23), type_);
  }
  Value* Polynomial(std::span<const float> c, Value* x) {
    Value* sum = F(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) sum = MulAdd(sum, x, F(c[i]));
    return sum;
  }

  llvm::IRBuilderBase& b_;
  llvm::Type* type_;
  llvm::Type* int_type_;
  PowerScaling scale_;
};

}  // namespace

Value* EmitMath(llvm::IRBuilderBase& builder, Intrinsic intrinsic, Value* x, PowerScaling scale) {
  if (!x->getType()->getScalarType()->isFloatTy()) return nullptr;
  Math math(builder, x->getType(), scale);
  switch (intrinsic) {
    case Intrinsic::kExp:
      return math.Exp(x);
    case Intrinsic::kLog:
      return math.Log(x);
    case Intrinsic::kTanh:
      return math.Tanh(x);
    case Intrinsic::kErf:
      return math.Erf(x);
    case Intrinsic::kExpm1:
      return math.Expm1(x);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::codegen
