// The processors that the LLVM back end makes code for.
#include "compiler/codegen/llvm_target.h"
#include "compiler/targets/arm/llvm_arm.h"
#include "compiler/targets/x86/llvm_x86.h"

namespace tilewright::codegen {

std::span<const LlvmTarget> LlvmTargets() {
  static const LlvmTarget kRows[] = {arm::kLlvmTarget, x86::kLlvmTarget};
  return kRows;
}

}  // namespace tilewright::codegen
