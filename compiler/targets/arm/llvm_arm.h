// AArch64 in the LLVM back end: its row of compiler/codegen/llvm_target.h. Pure functions.
#pragma once

#include "compiler/codegen/llvm_target.h"

namespace tilewright::arm {

extern const codegen::LlvmTarget kLlvmTarget;

}  // namespace tilewright::arm
