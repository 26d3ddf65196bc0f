// x86-64 in the LLVM back end: its row of compiler/codegen/llvm_target.h. Pure functions.
#pragma once

#include "compiler/codegen/llvm_target.h"

namespace tilewright::x86 {

extern const codegen::LlvmTarget kLlvmTarget;

}  // namespace tilewright::x86
