// Tensor intrinsics as machine instructions: dot4 is vpdpbusd where the target has VNNI, else
// vpmaddwd on 16-bit numbers. Both are exact: vpmaddubsw, which saturates at 16 bits, is never
// used, and a pair of products of 8-bit numbers is far from 32 bits.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <numeric>

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

// Σ of neighbouring products: <2N x i16> · <2N x i16> → <N x i32>, in pieces as wide as the
// target's instruction.
Value* FunctionEmitter::EmitPairSums(Value* a, Value* b) {
  int lanes = static_cast<int>(llvm::cast<llvm::FixedVectorType>(a->getType())->getNumElements());
  int piece = HasFeature("avx512bw") ? 32 : HasFeature("avx2") ? 16 : 8;
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

Value* FunctionEmitter::EmitDot4(const ir::Expr& e, const std::vector<Value*>& args) {
  const int lanes = e->dtype.lanes;
  llvm::Type* words = Lanes(builder_.getInt32Ty(), lanes);
  Value* a = args[1];
  if (e->args[1]->dtype.lanes == 4 && lanes > 1) {
    a = builder_.CreateVectorSplat(lanes, builder_.CreateBitCast(a, builder_.getInt32Ty()));
  } else {
    a = builder_.CreateBitCast(a, words);
  }
  bool mixed =
      e->args[1]->dtype.code == ir::TypeCode::kUInt && e->args[2]->dtype.code == ir::TypeCode::kInt;
  bool one_register = lanes == 4 || lanes == 8 || lanes == 16;
  if (mixed && one_register && HasFeature("avx512vnni")) {
    llvm::Intrinsic::ID id = lanes == 16  ? llvm::Intrinsic::x86_avx512_vpdpbusd_512
                             : lanes == 8 ? llvm::Intrinsic::x86_avx512_vpdpbusd_256
                                          : llvm::Intrinsic::x86_avx512_vpdpbusd_128;
    return builder_.CreateIntrinsic(id, {}, {args[0], a, builder_.CreateBitCast(args[2], words)});
  }
  Value* halves[2] = {builder_.CreateBitCast(a, Lanes(builder_.getInt8Ty(), 4 * lanes)), args[2]};
  for (int side = 0; side < 2; ++side) {
    bool is_signed = e->args[side + 1]->dtype.code == ir::TypeCode::kInt;
    halves[side] =
        builder_.CreateIntCast(halves[side], Lanes(builder_.getInt16Ty(), 4 * lanes), is_signed);
  }
  Value* pairs = EmitPairSums(halves[0], halves[1]);
  Value* even = builder_.CreateShuffleVector(pairs, Steps(0, 2, lanes));
  Value* odd = builder_.CreateShuffleVector(pairs, Steps(1, 2, lanes));
  return builder_.CreateAdd(args[0], builder_.CreateAdd(even, odd));
}

}  // namespace tilewright::codegen
