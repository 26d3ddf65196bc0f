#include "compiler/targets/llvm_targets.h"

namespace tilewright::codegen {

std::span<const LlvmTarget> LlvmTargets() {
  static const LlvmTarget kRows[] = {
#define TW_CPU(name) name::kLlvmTarget,
#include "compiler/targets/targets.def"
  };
  return kRows;
}

}  // namespace tilewright::codegen
