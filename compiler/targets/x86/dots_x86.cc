// Sums of four products of bytes on x86-64: vpdpbusd where the target has VNNI (AVX-512's, AVX's),
// else vpmaddwd on 16-bit numbers. vpmaddubsw saturates at 16 bits: it multiplies only where one
// factor is known to be below 128 (the fields of weights), whose pairs of products fit. So all of
// them are exact.
#include "compiler/targets/x86/dots_x86.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

namespace tilewright::x86 {
namespace {

using codegen::Dot4;
using llvm::IRBuilderBase;
using llvm::Value;

// What the magnitude of a vector's numbers of 16 bits is at most, on sums of pairs of products.
constexpr char kMost[] = "tilewright.most";

void SetMost(Value* sums, int most) {
  auto* call = llvm::cast<llvm::CallInst>(sums);
  llvm::LLVMContext& context = call->getContext();
  llvm::Metadata* number = llvm::ConstantAsMetadata::get(
      llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<uint64_t>(most)));
  call->setMetadata(kMost, llvm::MDNode::get(context, number));
}

// Of a call that SetMost has marked.
std::optional<int> MostOf(const Value* value) {
  const auto* call = llvm::dyn_cast<llvm::CallInst>(value);
  const llvm::MDNode* node = call == nullptr ? nullptr : call->getMetadata(kMost);
  if (node == nullptr) return std::nullopt;
  const auto* number = llvm::mdconst::extract<llvm::ConstantInt>(node->getOperand(0));
  return static_cast<int>(number->getSExtValue());
}

// One instruction of each width: of 128, 256 and 512 bits.
struct PairInstructions {
  llvm::Intrinsic::ID narrow, middle, wide;
};
constexpr PairInstructions kWordPairs = {llvm::Intrinsic::x86_sse2_pmadd_wd,
                                         llvm::Intrinsic::x86_avx2_pmadd_wd,
                                         llvm::Intrinsic::x86_avx512_pmaddw_d_512};
constexpr PairInstructions kBytePairs = {llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128,
                                         llvm::Intrinsic::x86_avx2_pmadd_ub_sw,
                                         llvm::Intrinsic::x86_avx512_pmaddubs_w_512};

// The sums of products of neighbours in pieces as wide as the target's instruction.
Value* PairSums(IRBuilderBase& b, const target::Target& target, const PairInstructions& widths,
                Value* x, Value* y) {
  const auto* type = llvm::cast<llvm::FixedVectorType>(x->getType());
  const int lanes = static_cast<int>(type->getNumElements());
  const int least = 128 / static_cast<int>(type->getScalarSizeInBits());
  if (lanes < least) {
    std::vector<int> padded(static_cast<size_t>(least), llvm::PoisonMaskElem);
    std::iota(padded.begin(), padded.begin() + lanes, 0);
    Value* sums = PairSums(b, target, widths, b.CreateShuffleVector(x, padded),
                           b.CreateShuffleVector(y, padded));
    return codegen::LanesOf(b, sums, 0, lanes / 2);
  }
  const int most = target.machine.Has("avx512bw") ? 4 : target.machine.Has("avx2") ? 2 : 1;
  const int piece = std::min(most * least, lanes & -lanes);
  const llvm::Intrinsic::ID id = piece == 4 * least   ? widths.wide
                                 : piece == 2 * least ? widths.middle
                                                      : widths.narrow;
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

// Bytes of even places in one vector of 16-bit numbers, of odd places in another: their sums of
// pairs lie in the lanes where they belong, no shuffle is needed.
Value* WideDot(IRBuilderBase& b, const target::Target& target, const Dot4& dot) {
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
  Value* sum = b.CreateAdd(dot.sum, PairSums(b, target, kWordPairs, even[0], even[1]));
  return b.CreateAdd(sum, PairSums(b, target, kWordPairs, odd[0], odd[1]));
}

// Of bytes b below 128: |a0 b0 + a1 b1| <= 2 * 128 * 127, which fits 16 bits.
Value* SmallDot(IRBuilderBase& b, const target::Target& target, const Dot4& dot) {
  Value* pairs = PairSums(b, target, kBytePairs, dot.b, b.CreateBitCast(dot.a, dot.b->getType()));
  Value* ones = llvm::ConstantInt::get(pairs->getType(), 1);
  Value* sums = PairSums(b, target, kWordPairs, pairs, ones);
  if (llvm::isa<llvm::CallInst>(sums)) SetMost(sums, 2 * 128 * dot.b_most);
  return b.CreateAdd(dot.sum, sums);
}

// The operand of a sum that is a marked call; the other one is the sum before it.
struct Link {
  llvm::BinaryOperator* sum = nullptr;
  unsigned side = 0;
  int most = 0;

  llvm::CallInst* pairs() const { return llvm::cast<llvm::CallInst>(sum->getOperand(side)); }
  Value* before() const { return sum->getOperand(1 - side); }
};

std::optional<Link> AsLink(Value* value) {
  auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(value);
  if (sum == nullptr || sum->getOpcode() != llvm::Instruction::Add) return std::nullopt;
  for (const unsigned side : {1u, 0u}) {
    const std::optional<int> most = MostOf(sum->getOperand(side));
    if (most.has_value()) return Link{sum, side, *most};
  }
  return std::nullopt;
}

// (start + pairs(x)) + pairs(y) → start + pairs(x + y), where x + y fits 16 bits. The sum becomes
// the last one of a chain, so that a long one is folded from its begin on.
void Fold(const Link& link) {
  const std::optional<Link> before = AsLink(link.before());
  if (!before.has_value() || !before->sum->hasOneUse() ||
      before->sum->getParent() != link.sum->getParent() ||
      before->most + link.most > std::numeric_limits<int16_t>::max()) {
    return;
  }
  llvm::CallInst *first = before->pairs(), *second = link.pairs();
  if (first->getCalledFunction() != second->getCalledFunction()) return;
  llvm::IRBuilder<> b(link.sum);
  Value* both = b.CreateAdd(first->getArgOperand(0), second->getArgOperand(0));
  Value* pairs = b.CreateCall(first->getCalledFunction(), {both, first->getArgOperand(1)});
  SetMost(pairs, before->most + link.most);
  link.sum->setOperand(1 - link.side, before->before());
  link.sum->setOperand(link.side, pairs);
  before->sum->eraseFromParent();
  for (llvm::CallInst* call : {first, second}) {
    if (call->use_empty()) call->eraseFromParent();
  }
}

}  // namespace

Value* EmitDot4(IRBuilderBase& b, const target::Target& target, const Dot4& dot) {
  if (const auto id = ByteDotInstruction(target, dot.lanes);
      dot.a_signed != dot.b_signed && id.has_value()) {
    Value* other = b.CreateBitCast(dot.b, dot.a->getType());
    return b.CreateIntrinsic(*id, {},
                             {dot.sum, dot.a_signed ? other : dot.a, dot.a_signed ? dot.a : other});
  }
  const bool is_small = dot.a_signed && dot.b_most < 128 && target.machine.Has("ssse3");
  return is_small ? SmallDot(b, target, dot) : WideDot(b, target, dot);
}

void FoldPairSums(llvm::Function& function) {
  for (llvm::BasicBlock& block : function) {
    for (llvm::Instruction& instruction : llvm::make_early_inc_range(block)) {
      if (const std::optional<Link> link = AsLink(&instruction); link.has_value()) Fold(*link);
    }
  }
}

}  // namespace tilewright::x86
