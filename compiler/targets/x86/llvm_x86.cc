// Dot products are vpdpbusd where the target has VNNI (AVX-512's or AVX's), else vpmaddwd on 16-bit
// numbers. Both are exact: vpmaddubsw, which saturates at 16 bits, is never used, and a pair of
// products of 8-bit numbers is far from 32 bits.
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/Support/TargetSelect.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/targets/llvm_targets.h"

namespace tilewright::x86 {
namespace {

using codegen::Dot4;
using llvm::IRBuilderBase;
using llvm::Value;

constexpr int kAllLanes16 = 0xffff;
constexpr int kCurrentRounding = 4;  // of instructions that name one: the current one

void Initialize() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
}

void AddAttributes(const target::Target& target, llvm::Function& function) {
  // x86-64-v4, skylake-avx512 and others would split 64-byte vectors in two.
  if (target.machine.vector_bytes == 64) function.addFnAttr("prefer-vector-width", "512");
}

// For each 32-bit lane the sum of the products of its two 16-bit halves, in pieces as wide as the
// target's instruction.
Value* PairSums(IRBuilderBase& b, const target::Target& target, Value* x, Value* y) {
  const int lanes =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements());
  constexpr int kLeast = 8;  // 16-bit numbers of the narrowest instruction
  if (lanes < kLeast) {
    std::vector<int> padded(kLeast, llvm::PoisonMaskElem);
    std::iota(padded.begin(), padded.begin() + lanes, 0);
    Value* sums =
        PairSums(b, target, b.CreateShuffleVector(x, padded), b.CreateShuffleVector(y, padded));
    return codegen::LanesOf(b, sums, 0, lanes / 2);
  }
  int piece = target.machine.Has("avx512bw") ? 32 : target.machine.Has("avx2") ? 16 : kLeast;
  piece = std::min(piece, lanes & -lanes);
  const llvm::Intrinsic::ID id = piece == 32   ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                                 : piece == 16 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                               : llvm::Intrinsic::x86_sse2_pmadd_wd;
  std::vector<Value*> sums;
  for (int at = 0; at < lanes; at += piece) {
    Value* parts[2] = {x, y};
    for (Value*& part : parts) {
      if (piece < lanes) part = codegen::LanesOf(b, part, at, piece);
    }
    sums.push_back(b.CreateIntrinsic(id, {}, {parts[0], parts[1]}));
  }
  return codegen::JoinLanes(b, std::move(sums));
}

// vpdpbusd of `lanes` words, or nothing where the target has none.
std::optional<llvm::Intrinsic::ID> ByteDotInstruction(const target::Target& target, int lanes) {
  const bool narrow = target.machine.Has("avx512vnni") || target.machine.Has("avxvnni");
  if (lanes == 16 && target.machine.Has("avx512vnni")) {
    return llvm::Intrinsic::x86_avx512_vpdpbusd_512;
  }
  if (lanes == 8 && narrow) return llvm::Intrinsic::x86_avx512_vpdpbusd_256;
  if (lanes == 4 && narrow) return llvm::Intrinsic::x86_avx512_vpdpbusd_128;
  return std::nullopt;
}

Value* EmitDot4(IRBuilderBase& b, const target::Target& target, const Dot4& dot) {
  if (const auto id = ByteDotInstruction(target, dot.lanes);
      dot.a_signed != dot.b_signed && id.has_value()) {
    Value* other = b.CreateBitCast(dot.b, dot.a->getType());
    return b.CreateIntrinsic(*id, {},
                             {dot.sum, dot.a_signed ? other : dot.a, dot.a_signed ? dot.a : other});
  }
  // Bytes of even places in one vector of 16-bit numbers, of odd places in another: their sums of
  // pairs lie in the lanes where they belong, no shuffle is needed.
  llvm::Type* halves =
      llvm::FixedVectorType::get(b.getInt16Ty(), 2 * static_cast<unsigned>(dot.lanes));
  Value* eight = llvm::ConstantInt::get(halves, 8);
  Value* even[2];
  Value* odd[2];
  for (int side = 0; side < 2; ++side) {
    Value* both = b.CreateBitCast(side == 0 ? dot.a : dot.b, halves);
    if (side == 0 ? dot.a_signed : dot.b_signed) {
      even[side] = b.CreateAShr(b.CreateShl(both, eight), eight);
      odd[side] = b.CreateAShr(both, eight);
    } else {
      even[side] = b.CreateAnd(both, llvm::ConstantInt::get(halves, 0xff));
      odd[side] = b.CreateLShr(both, eight);
    }
  }
  Value* sum = b.CreateAdd(dot.sum, PairSums(b, target, even[0], even[1]));
  return b.CreateAdd(sum, PairSums(b, target, odd[0], odd[1]));
}

Value* EmitPairDot(IRBuilderBase& b, const target::Target& target, const codegen::PairDot& dot) {
  if (!target.machine.Has("avx512bf16")) return nullptr;
  llvm::Intrinsic::ID id;
  if (dot.lanes == 16) {
    id = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
  } else if (dot.lanes == 8) {
    id = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256;
  } else if (dot.lanes == 4) {
    id = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
  } else {
    return nullptr;
  }
  llvm::Type* pairs =
      llvm::FixedVectorType::get(b.getBFloatTy(), 2 * static_cast<unsigned>(dot.lanes));
  return b.CreateIntrinsic(id, {},
                           {dot.sum, b.CreateBitCast(dot.a, pairs), b.CreateBitCast(dot.b, pairs)});
}

Value* RoundSixteen(IRBuilderBase& b, Value* value) {
  llvm::Type* words = llvm::FixedVectorType::get(b.getInt32Ty(), 16);
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512, {},
                           {value, llvm::Constant::getNullValue(words), b.getInt16(kAllLanes16),
                            b.getInt32(kCurrentRounding)});
}

Value* RoundEight(IRBuilderBase& b, Value* value) {
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx_cvt_ps2dq_256, {}, {value});
}

codegen::WordRounding FindWordRounding(const target::Target& target, int lanes) {
  if (lanes == 16 && target.machine.Has("avx512f")) return RoundSixteen;
  return lanes == 8 && target.machine.Has("avx2") ? RoundEight : nullptr;
}

Value* ScaleSixteen(IRBuilderBase& b, Value* p, Value* n) {
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                           {p, n, p, b.getInt16(kAllLanes16), b.getInt32(kCurrentRounding)});
}

codegen::PowerScaling FindPowerScaling(const target::Target& target, int lanes) {
  return lanes == 16 && target.machine.Has("avx512f") ? ScaleSixteen : nullptr;
}

// A permutation reads the lowest four bits of an index only, so a table of the sixteen numbers
// replaces a mask and a conversion.
Value* LookUpNibbles(IRBuilderBase& b, Value* words) {
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < 16; ++i) numbers.push_back(llvm::ConstantFP::get(b.getFloatTy(), i));
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                           {llvm::ConstantVector::get(numbers), words});
}

codegen::NibbleFloats FindNibbleFloats(const target::Target& target, int lanes) {
  return lanes == 16 && target.machine.Has("avx512f") ? LookUpNibbles : nullptr;
}

void FenceStores(IRBuilderBase& b) { b.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {}); }

}  // namespace

constinit const codegen::LlvmTarget kLlvmTarget = {
    .arch = "x86_64",
    .triple = "x86_64-unknown-linux-gnu",
    .initialize = Initialize,
    .add_attributes = AddAttributes,
    .dot4 = EmitDot4,
    .pair_dot = EmitPairDot,
    .word_rounding = FindWordRounding,
    .power_scaling = FindPowerScaling,
    .nibble_floats = FindNibbleFloats,
    .fence_stores = FenceStores,
};

}  // namespace tilewright::x86
