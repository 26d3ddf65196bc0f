#include "compiler/codegen/llvm_target.h"

#include <numeric>

namespace tilewright::codegen {
namespace {

std::vector<int> Run(int first, int count) {
  std::vector<int> lanes(static_cast<size_t>(count));
  std::iota(lanes.begin(), lanes.end(), first);
  return lanes;
}

}  // namespace

const LlvmTarget* FindLlvmTarget(std::string_view arch) {
  for (const LlvmTarget& row : LlvmTargets()) {
    if (row.arch == arch) return &row;
  }
  return nullptr;
}

llvm::Value* LanesOf(llvm::IRBuilderBase& builder, llvm::Value* vector, int first, int count) {
  return builder.CreateShuffleVector(vector, Run(first, count));
}

llvm::Value* JoinLanes(llvm::IRBuilderBase& builder, std::vector<llvm::Value*> pieces) {
  while (pieces.size() > 1) {
    const auto* type = llvm::cast<llvm::FixedVectorType>(pieces[0]->getType());
    const int width = 2 * static_cast<int>(type->getNumElements());
    std::vector<llvm::Value*> wider;
    for (size_t i = 0; i < pieces.size(); i += 2) {
      wider.push_back(builder.CreateShuffleVector(pieces[i], pieces[i + 1], Run(0, width)));
    }
    pieces = std::move(wider);
  }
  return pieces[0];
}

}  // namespace tilewright::codegen
