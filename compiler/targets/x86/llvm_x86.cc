// The row of x86-64: rounding, scaling and look-ups by instruction, dot products (dots_x86.h).
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/Support/TargetSelect.h>

#include <vector>

#include "compiler/targets/llvm_targets.h"
#include "compiler/targets/x86/dots_x86.h"

namespace tilewright::x86 {
namespace {

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
    .finish = FoldPairSums,
    // It reorders sums of integers, so that more of them are alive than there are registers.
    .option = "-x86-machine-combiner=false",
};

}  // namespace tilewright::x86
