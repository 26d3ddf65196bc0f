// Dot products are sdot, udot and usdot where the target has them, else multiplications of 16-bit
// numbers and sums of pairs. All are exact: a product of two bytes fits 16 bits. Those of pairs of
// bf16 are bfdot, multiply-adds of f16 to f32 fmlal.
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/Support/TargetSelect.h>

#include <numeric>

#include "compiler/targets/llvm_targets.h"

namespace tilewright::arm {
namespace {

using codegen::Dot4;
using llvm::IRBuilderBase;
using llvm::Value;

constexpr int kWords = 4;  // 32-bit lanes of a register
constexpr int kBytes = 16;

llvm::FixedVectorType* Lanes(llvm::Type* element, int lanes) {
  return llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

void Initialize() {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

// Vectors longer than NEON's are SVE's. LLVM makes code for one length only if it is told which.
void AddAttributes(const target::Target& target, llvm::Function& function) {
  const auto length = static_cast<unsigned>(target.machine.vector_bytes / kBytes);
  if (length < 2) return;
  function.addFnAttr(
      llvm::Attribute::getWithVScaleRangeArgs(function.getContext(), length, length));
}

Value* DotInstruction(IRBuilderBase& b, llvm::Intrinsic::ID id, Value* sum, Value* x, Value* y) {
  return b.CreateIntrinsic(id, {sum->getType(), x->getType()}, {sum, x, y});
}

// u8 times s8 with sdot alone: x = (x - 128) + 128, so Σ x y = Σ (x - 128) y - Σ (-128) y.
Value* MixedDot(IRBuilderBase& b, Value* sum, Value* x, Value* y) {
  Value* top = llvm::ConstantInt::get(x->getType(), 0x80);
  sum = DotInstruction(b, llvm::Intrinsic::aarch64_neon_sdot, sum, b.CreateXor(x, top), y);
  Value* zero = llvm::Constant::getNullValue(sum->getType());
  return b.CreateSub(sum, DotInstruction(b, llvm::Intrinsic::aarch64_neon_sdot, zero, top, y));
}

// For processors without dot products.
Value* WideDot(IRBuilderBase& b, const Dot4& dot, Value* sum, Value* x, Value* y) {
  constexpr int kHalf = kBytes / 2;
  llvm::Type* halves = Lanes(b.getInt16Ty(), kHalf);
  llvm::Type* words = Lanes(b.getInt32Ty(), kWords);
  const bool is_signed = dot.a_signed || dot.b_signed;
  const auto add_pairs =
      is_signed ? llvm::Intrinsic::aarch64_neon_saddlp : llvm::Intrinsic::aarch64_neon_uaddlp;
  Value* pairs[2];
  for (int side = 0; side < 2; ++side) {
    Value* left =
        b.CreateIntCast(codegen::LanesOf(b, x, side * kHalf, kHalf), halves, dot.a_signed);
    Value* right =
        b.CreateIntCast(codegen::LanesOf(b, y, side * kHalf, kHalf), halves, dot.b_signed);
    pairs[side] = b.CreateIntrinsic(add_pairs, {words, halves}, {b.CreateMul(left, right)});
  }
  return b.CreateAdd(
      sum, b.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_addp, {words}, {pairs[0], pairs[1]}));
}

Value* DotOfRegister(IRBuilderBase& b, const target::Target& target, const Dot4& dot, Value* sum,
                     Value* x, Value* y) {
  if (!target.machine.Has("dotprod")) return WideDot(b, dot, sum, x, y);
  if (dot.a_signed == dot.b_signed || (dot.a_signed && dot.b_most < 128)) {
    return DotInstruction(
        b, dot.a_signed ? llvm::Intrinsic::aarch64_neon_sdot : llvm::Intrinsic::aarch64_neon_udot,
        sum, x, y);
  }
  if (dot.a_signed) std::swap(x, y);
  if (!target.machine.Has("i8mm")) return MixedDot(b, sum, x, y);
  return DotInstruction(b, llvm::Intrinsic::aarch64_neon_usdot, sum, x, y);
}

// The vector with zeros behind it.
Value* Padded(IRBuilderBase& b, Value* vector, int lanes) {
  std::vector<int> from(static_cast<size_t>(lanes));
  std::iota(from.begin(), from.end(), 0);
  const auto* type = llvm::cast<llvm::FixedVectorType>(vector->getType());
  const int kept = static_cast<int>(type->getNumElements());
  for (int i = kept; i < lanes; ++i) from[static_cast<size_t>(i)] = kept;
  return b.CreateShuffleVector(vector, llvm::Constant::getNullValue(vector->getType()), from);
}

Value* EmitDot4(IRBuilderBase& b, const target::Target& target, const Dot4& dot) {
  int registers = 1;
  while (registers * kWords < dot.lanes) registers *= 2;
  const int lanes = registers * kWords;
  llvm::Type* words = Lanes(b.getInt32Ty(), dot.lanes);
  llvm::Type* bytes = Lanes(b.getInt8Ty(), kWords * dot.lanes);
  Value* sum = b.CreateBitCast(dot.sum, words);  // of one lane: a scalar
  Value* x = b.CreateBitCast(dot.a, bytes);
  Value* y = dot.b;
  if (lanes != dot.lanes) {
    sum = Padded(b, sum, lanes);
    x = Padded(b, x, kWords * lanes);
    y = Padded(b, y, kWords * lanes);
  }
  std::vector<Value*> sums;
  for (int at = 0; at < lanes; at += kWords) {
    sums.push_back(DotOfRegister(b, target, dot, codegen::LanesOf(b, sum, at, kWords),
                                 codegen::LanesOf(b, x, kWords * at, kBytes),
                                 codegen::LanesOf(b, y, kWords * at, kBytes)));
  }
  Value* all = codegen::JoinLanes(b, std::move(sums));
  if (lanes != dot.lanes) all = codegen::LanesOf(b, all, 0, dot.lanes);
  return b.CreateBitCast(all, dot.sum->getType());
}

Value* EmitPairDot(IRBuilderBase& b, const target::Target& target, const codegen::PairDot& dot) {
  if (!target.machine.Has("bf16") || dot.lanes % kWords != 0) return nullptr;
  llvm::Type* pairs = Lanes(b.getBFloatTy(), 2 * kWords);
  std::vector<Value*> sums;
  for (int at = 0; at < dot.lanes; at += kWords) {
    const auto part = [&](Value* words) {
      return b.CreateBitCast(codegen::LanesOf(b, words, at, kWords), pairs);
    };
    sums.push_back(DotInstruction(b, llvm::Intrinsic::aarch64_neon_bfdot,
                                  codegen::LanesOf(b, dot.sum, at, kWords), part(dot.a),
                                  part(dot.b)));
  }
  return codegen::JoinLanes(b, std::move(sums));
}

// fmlal takes the lower four of eight f16, fmlal2 the upper four.
Value* AddHalfProducts(IRBuilderBase& b, Value* x, Value* y, Value* sum) {
  constexpr int kHalves = 2 * kWords;
  const auto* type = llvm::cast<llvm::FixedVectorType>(sum->getType());
  const int lanes = static_cast<int>(type->getNumElements());
  const auto eight = [&](Value* halves, int at) {
    return lanes < kHalves ? b.CreateShuffleVector(halves, {0, 1, 2, 3, -1, -1, -1, -1})
                           : codegen::LanesOf(b, halves, at / kHalves * kHalves, kHalves);
  };
  std::vector<Value*> sums;
  for (int at = 0; at < lanes; at += kWords) {
    const auto id = at % kHalves == 0 ? llvm::Intrinsic::aarch64_neon_fmlal
                                      : llvm::Intrinsic::aarch64_neon_fmlal2;
    sums.push_back(
        DotInstruction(b, id, codegen::LanesOf(b, sum, at, kWords), eight(x, at), eight(y, at)));
  }
  return codegen::JoinLanes(b, std::move(sums));
}

codegen::HalfProducts FindHalfProducts(const target::Target& target, int lanes) {
  const bool whole = lanes >= kWords && (lanes & (lanes - 1)) == 0;
  return target.machine.multiplies_f16 && whole ? AddHalfProducts : nullptr;
}

// Two rows times two columns at a time. A group of four terms of four columns is a register; the
// instruction wants all eight terms of two columns in one: it takes the words of both in turn.
Value* EmitDotTile(IRBuilderBase& b, const target::Target& target, const codegen::DotTile& tile) {
  if (!target.machine.Has("i8mm") || tile.columns != kWords || !tile.b_signed) return nullptr;
  const auto id =
      tile.a_signed ? llvm::Intrinsic::aarch64_neon_smmla : llvm::Intrinsic::aarch64_neon_usmmla;
  llvm::Type* bytes = Lanes(b.getInt8Ty(), kBytes);
  Value* rows = codegen::JoinLanes(b, {tile.rows[0], tile.rows[1]});
  llvm::Type* words = Lanes(b.getInt32Ty(), tile.columns);
  Value* low = b.CreateBitCast(tile.terms[0], words);
  Value* high = b.CreateBitCast(tile.terms[1], words);
  std::vector<Value*> squares;
  for (int column = 0; column < tile.columns; column += 2) {
    const int other = tile.columns + column;
    Value* columns = b.CreateBitCast(
        b.CreateShuffleVector(low, high, {column, other, column + 1, other + 1}), bytes);
    Value* sum = codegen::LanesOf(b, tile.sum, 2 * column, kWords);
    squares.push_back(DotInstruction(b, id, sum, rows, columns));
  }
  return codegen::JoinLanes(b, std::move(squares));
}

Value* RoundWords(IRBuilderBase& b, Value* value) {
  const auto* type = llvm::cast<llvm::FixedVectorType>(value->getType());
  llvm::Type* words = Lanes(b.getInt32Ty(), kWords);
  std::vector<Value*> rounded;
  for (int at = 0; at < static_cast<int>(type->getNumElements()); at += kWords) {
    Value* part = codegen::LanesOf(b, value, at, kWords);
    rounded.push_back(
        b.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_fcvtns, {words, part->getType()}, {part}));
  }
  return codegen::JoinLanes(b, std::move(rounded));
}

codegen::WordRounding FindWordRounding(const target::Target& target, int lanes) {
  const bool is_sve = target.machine.vector_bytes > kBytes;  // which would be cut into quarters
  return !is_sve && lanes >= kWords && (lanes & (lanes - 1)) == 0 ? RoundWords : nullptr;
}

codegen::PowerScaling FindPowerScaling(const target::Target&, int) { return nullptr; }

void FenceStores(IRBuilderBase& b) {
  constexpr uint32_t kInnerShareableStores = 0xa;
  b.CreateIntrinsic(llvm::Intrinsic::aarch64_dmb, {}, {b.getInt32(kInnerShareableStores)});
}

}  // namespace

constinit const codegen::LlvmTarget kLlvmTarget = {
    .arch = "aarch64",
    .triple = "aarch64-unknown-linux-gnu",
    .initialize = Initialize,
    .add_attributes = AddAttributes,
    .dot4 = EmitDot4,
    .pair_dot = EmitPairDot,
    .dot_tile = EmitDotTile,
    .word_rounding = FindWordRounding,
    .power_scaling = FindPowerScaling,
    .half_products = FindHalfProducts,
    .fence_stores = FenceStores,
    .saturates = true,
};

}  // namespace tilewright::arm
