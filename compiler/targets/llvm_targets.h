// What each family of processors gives to the LLVM back end: its row of
// compiler/codegen/llvm_target.h. For llvm_targets.cc and the folders' own llvm_*.cc.
#pragma once

#include "compiler/codegen/llvm_target.h"

#define TW_CPU(name)                            \
  namespace tilewright::name {                  \
  extern const codegen::LlvmTarget kLlvmTarget; \
  }
#include "compiler/targets/targets.def"
