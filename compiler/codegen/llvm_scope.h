// The position guard of FunctionEmitter. Included by the llvm_*.cc files only.
#pragma once

#include "compiler/codegen/llvm_emitter.h"

namespace tilewright::codegen {

// Code of an outer scope goes before the branch that left it; code of the current scope stays where
// the builder is.
class FunctionEmitter::AtLevel {
 public:
  AtLevel(FunctionEmitter& emitter, int level) : guard_(emitter.builder_) {
    if (level < emitter.top())
      emitter.builder_.SetInsertPoint(emitter.scopes_[level + 1].entry_branch);
  }

 private:
  llvm::IRBuilderBase::InsertPointGuard guard_;
};

}  // namespace tilewright::codegen
