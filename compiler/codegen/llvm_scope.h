// The position guard of FunctionEmitter. Included by the llvm_*.cc files only.
#pragma once

#include <optional>

#include "compiler/codegen/llvm_emitter.h"

namespace tilewright::codegen {

// Code of an outer scope goes before the branch that left it; code of the current scope stays where
// the builder is.
class FunctionEmitter::AtLevel {
 public:
  AtLevel(FunctionEmitter& emitter, int level) {
    // At the current level the builder moves on by itself, possibly into a new block.
    if (level >= emitter.top()) return;
    guard_.emplace(emitter.builder_);
    emitter.builder_.SetInsertPoint(emitter.scopes_[level + 1].entry_branch);
  }

 private:
  std::optional<llvm::IRBuilderBase::InsertPointGuard> guard_;
};

}  // namespace tilewright::codegen
