// Tensor intrinsics as machine instructions: dot4 is vpdpbusd where the target has VNNI (AVX-512's
// or AVX's), else vpmaddwd on 16-bit numbers. Both are exact: vpmaddubsw, which saturates at 16
// bits, is never used, and a pair of products of 8-bit numbers is far from 32 bits.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/codegen/llvm_emitter.h"

namespace tilewright::codegen {

using llvm::Value;

namespace {

std::vector<int> Steps(int first, int step, int count) {
  std::vector<int> lanes(count);
  for (int i = 0; i < count; ++i) lanes[i] = first + step * i;
  return lanes;
}

llvm::FixedVectorType* Lanes(llvm::Type* element, int lanes) {
  return llvm::FixedVectorType::get(element, lanes);
}

}  // namespace

bool FunctionEmitter::HasFeature(std::string_view name) const {
  const std::vector<std::string>& features = module_.target().required_features;
  return std::find(features.begin(), features.end(), name) != features.end();
}

// For each 32-bit lane the sum of the products of its two 16-bit halves, in pieces as wide as the
// target's instruction.
Value* FunctionEmitter::EmitPairSums(Value* a, Value* b) {
  const int lanes =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(a->getType())->getNumElements());
  constexpr int kLeast = 8;  // 16-bit numbers of the narrowest instruction
  if (lanes < kLeast) {
    std::vector<int> padded(kLeast, llvm::PoisonMaskElem);
    std::iota(padded.begin(), padded.begin() + lanes, 0);
    Value* sums = EmitPairSums(builder_.CreateShuffleVector(a, padded),
                               builder_.CreateShuffleVector(b, padded));
    return builder_.CreateShuffleVector(sums, Steps(0, 1, lanes / 2));
  }
  int piece = HasFeature("avx512bw") ? 32 : HasFeature("avx2") ? 16 : kLeast;
  piece = std::min(piece, lanes & -lanes);
  llvm::Intrinsic::ID id = piece == 32   ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                           : piece == 16 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                         : llvm::Intrinsic::x86_sse2_pmadd_wd;
  std::vector<Value*> sums;
  for (int at = 0; at < lanes; at += piece) {
    Value* parts[2] = {a, b};
    for (Value*& part : parts) {
      if (piece < lanes) part = builder_.CreateShuffleVector(part, Steps(at, 1, piece));
    }
    sums.push_back(builder_.CreateIntrinsic(id, {}, {parts[0], parts[1]}));
  }
  for (int width = piece / 2; sums.size() > 1; width *= 2) {
    std::vector<Value*> wider;
    for (size_t i = 0; i < sums.size(); i += 2) {
      wider.push_back(builder_.CreateShuffleVector(sums[i], sums[i + 1], Steps(0, 1, 2 * width)));
    }
    sums = std::move(wider);
  }
  return sums[0];
}

// vpdpbusd of `lanes` words, or nothing where the target has none.
std::optional<llvm::Intrinsic::ID> FunctionEmitter::ByteDotInstruction(int lanes) const {
  const bool narrow = HasFeature("avx512vnni") || HasFeature("avxvnni");
  if (lanes == 16 && HasFeature("avx512vnni")) return llvm::Intrinsic::x86_avx512_vpdpbusd_512;
  if (lanes == 8 && narrow) return llvm::Intrinsic::x86_avx512_vpdpbusd_256;
  if (lanes == 4 && narrow) return llvm::Intrinsic::x86_avx512_vpdpbusd_128;
  return std::nullopt;
}

Value* FunctionEmitter::EmitDot4(const ir::Expr& e, const std::vector<Value*>& args) {
  const int lanes = e->dtype.lanes;
  llvm::Type* words = Lanes(builder_.getInt32Ty(), lanes);
  Value* a = args[1];
  if (e->args[1]->dtype.lanes == 4 && lanes > 1) {
    a = builder_.CreateVectorSplat(lanes, builder_.CreateBitCast(a, builder_.getInt32Ty()));
  } else {
    a = builder_.CreateBitCast(a, words);
  }
  const bool mixed =
      e->args[1]->dtype.code == ir::TypeCode::kUInt && e->args[2]->dtype.code == ir::TypeCode::kInt;
  if (const auto id = ByteDotInstruction(lanes); mixed && id.has_value()) {
    return builder_.CreateIntrinsic(*id, {}, {args[0], a, builder_.CreateBitCast(args[2], words)});
  }
  // Bytes of even places in one vector of 16-bit numbers, of odd places in another: their sums of
  // pairs lie in the lanes where they belong, no shuffle is needed.
  llvm::Type* halves = Lanes(builder_.getInt16Ty(), 2 * lanes);
  Value* eight = llvm::ConstantInt::get(halves, 8);
  Value* even[2];
  Value* odd[2];
  for (int side = 0; side < 2; ++side) {
    Value* both = builder_.CreateBitCast(side == 0 ? a : args[2], halves);
    if (e->args[side + 1]->dtype.code == ir::TypeCode::kInt) {
      even[side] = builder_.CreateAShr(builder_.CreateShl(both, eight), eight);
      odd[side] = builder_.CreateAShr(both, eight);
    } else {
      even[side] = builder_.CreateAnd(both, llvm::ConstantInt::get(halves, 0xff));
      odd[side] = builder_.CreateLShr(both, eight);
    }
  }
  Value* sum = builder_.CreateAdd(args[0], EmitPairSums(even[0], even[1]));
  return builder_.CreateAdd(sum, EmitPairSums(odd[0], odd[1]));
}

}  // namespace tilewright::codegen
