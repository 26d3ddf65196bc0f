// The row of the LLVM back end. Dot products are i32x4.dot_i16x8_s on halves of words, which is
// exact: a product of two bytes fits 16 bits, and a pair of them 32.
#include <llvm/IR/IntrinsicsWebAssembly.h>
#include <llvm/Support/TargetSelect.h>

#include <numeric>

#include "compiler/targets/llvm_targets.h"
#include "compiler/targets/wasm/link_wasm.h"

namespace tilewright::wasm {
namespace {

using llvm::IRBuilderBase;
using llvm::Value;

constexpr int kWords = 4;  // 32-bit lanes of a register
// Engines with vectors have the others, too (WebAssembly 2.0).
constexpr char kFeatures[] =
    "+bulk-memory,+mutable-globals,+nontrapping-fptoint,+sign-ext,+simd128";
constexpr char kRelaxedFeatures[] =
    "+bulk-memory,+mutable-globals,+nontrapping-fptoint,+relaxed-simd,+sign-ext,+simd128";

void Initialize() {
  LLVMInitializeWebAssemblyTargetInfo();
  LLVMInitializeWebAssemblyTarget();
  LLVMInitializeWebAssemblyTargetMC();
  LLVMInitializeWebAssemblyAsmPrinter();
}

bool IsRelaxed(const target::Target& target) { return target.machine.Has("relaxed_simd"); }

const char* Features(const target::Target& target) {
  return IsRelaxed(target) ? kRelaxedFeatures : kFeatures;
}

// The linker exports what has a name for it: the entries.
void AddAttributes(const target::Target&, llvm::Function& function) {
  if (function.hasExternalLinkage()) {
    function.addFnAttr("wasm-export-name", function.getName());
  }
}

// The lanes in whole registers; lanes that were added are undefined.
std::vector<Value*> Registers(IRBuilderBase& b, Value* vector, int lanes_of_register) {
  const auto* type = llvm::cast<llvm::FixedVectorType>(vector->getType());
  const int lanes = static_cast<int>(type->getNumElements());
  std::vector<Value*> registers;
  for (int at = 0; at < lanes; at += lanes_of_register) {
    std::vector<int> from(static_cast<size_t>(lanes_of_register), llvm::PoisonMaskElem);
    for (int i = 0; i < lanes_of_register && at + i < lanes; ++i) {
      from[static_cast<size_t>(i)] = at + i;
    }
    registers.push_back(b.CreateShuffleVector(vector, from));
  }
  return registers;
}

// The first `lanes` of the registers side by side.
Value* Joined(IRBuilderBase& b, std::vector<Value*> registers, int lanes) {
  const auto* type = llvm::cast<llvm::FixedVectorType>(registers[0]->getType());
  while ((registers.size() & (registers.size() - 1)) != 0) {
    registers.push_back(llvm::PoisonValue::get(registers[0]->getType()));
  }
  const auto all = static_cast<int>(registers.size() * type->getNumElements());
  Value* joined = codegen::JoinLanes(b, std::move(registers));
  return lanes == all ? joined : codegen::LanesOf(b, joined, 0, lanes);
}

// Bytes of even places as 16-bit numbers in one vector, of odd places in another: the sums of pairs
// lie in the lanes where they belong.
Value* EmitDot4(IRBuilderBase& b, const target::Target&, const codegen::Dot4& dot) {
  llvm::Type* halves =
      llvm::FixedVectorType::get(b.getInt16Ty(), 2 * static_cast<unsigned>(dot.lanes));
  Value* eight = llvm::ConstantInt::get(halves, 8);
  std::vector<Value*> even[2], odd[2];
  for (int side = 0; side < 2; ++side) {
    Value* both = b.CreateBitCast(side == 0 ? dot.a : dot.b, halves);
    const bool is_signed = side == 0 ? dot.a_signed : dot.b_signed;
    Value* low = is_signed ? b.CreateAShr(b.CreateShl(both, eight), eight)
                           : b.CreateAnd(both, llvm::ConstantInt::get(halves, 0xff));
    Value* high = is_signed ? b.CreateAShr(both, eight) : b.CreateLShr(both, eight);
    even[side] = Registers(b, low, 2 * kWords);
    odd[side] = Registers(b, high, 2 * kWords);
  }
  std::vector<Value*> sums;
  for (size_t i = 0; i < even[0].size(); ++i) {
    const auto pairs = [&](const std::vector<Value*>(&sides)[2]) {
      return b.CreateIntrinsic(llvm::Intrinsic::wasm_dot, {}, {sides[0][i], sides[1][i]});
    };
    sums.push_back(b.CreateAdd(pairs(even), pairs(odd)));
  }
  llvm::Type* words = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(dot.lanes));
  Value* sum = b.CreateAdd(b.CreateBitCast(dot.sum, words), Joined(b, std::move(sums), dot.lanes));
  return b.CreateBitCast(sum, dot.sum->getType());  // of one lane: a scalar
}

// Scalars take a lane: there is no scalar instruction.
Value* EmitFused(IRBuilderBase& b, const target::Target& target, Value* x, Value* y, Value* z) {
  if (!IsRelaxed(target)) return nullptr;
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  llvm::Type* floats = llvm::FixedVectorType::get(b.getFloatTy(), kWords);
  std::vector<Value*> operands[3];
  Value* const values[3] = {x, y, z};
  for (int i = 0; i < 3; ++i) {
    operands[i] = type != nullptr ? Registers(b, values[i], kWords)
                                  : std::vector<Value*>{b.CreateVectorSplat(kWords, values[i])};
  }
  std::vector<Value*> sums;
  for (size_t i = 0; i < operands[0].size(); ++i) {
    sums.push_back(b.CreateIntrinsic(llvm::Intrinsic::wasm_relaxed_madd, {floats},
                                     {operands[0][i], operands[1][i], operands[2][i]}));
  }
  if (type == nullptr) return b.CreateExtractElement(sums[0], uint64_t{0});
  return Joined(b, std::move(sums), static_cast<int>(type->getNumElements()));
}

// Rounding and conversion are two instructions, which the base makes.
codegen::WordRounding FindWordRounding(const target::Target&, int) { return nullptr; }
codegen::PowerScaling FindPowerScaling(const target::Target&, int) { return nullptr; }
void FenceStores(IRBuilderBase&) {}  // all stores go through the caches

}  // namespace

constinit const codegen::LlvmTarget kLlvmTarget = {
    .arch = "wasm",
    .triple = "wasm32-unknown-unknown",
    .initialize = Initialize,
    .add_attributes = AddAttributes,
    .dot4 = EmitDot4,
    .word_rounding = FindWordRounding,
    .power_scaling = FindPowerScaling,
    .fence_stores = FenceStores,
    .fused = EmitFused,
    .saturates = true,
    .has_maxnum = false,
    .cpu = "generic",
    .features = Features,
    .relocation = llvm::Reloc::Static,
    .most_bytes = int64_t{UINT32_MAX},
    .threads = false,
    .link = Link,
};

}  // namespace tilewright::wasm
