// Sums of four products of bytes on x86-64, exact for all operands. Pure functions.
#pragma once

#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>

#include "compiler/codegen/llvm_target.h"
#include "compiler/target/target.h"

namespace tilewright::x86 {

// As LlvmTarget::dot4.
llvm::Value* EmitDot4(llvm::IRBuilderBase& builder, const target::Target& target,
                      const codegen::Dot4& dot);

// Sums of small products that follow each other stay in 16 bits as long as they fit: one
// instruction widens all of them. As LlvmTarget::finish.
void FoldPairSums(llvm::Function& function);

}  // namespace tilewright::x86
