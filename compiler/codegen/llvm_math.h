// exp, log, tanh and erf of f32 as straight-line LLVM IR, for any number of lanes: a call of libm
// per lane costs twenty times as much, and differs between machines. Argument reduction to a short
// interval and a polynomial there (J.-M. Muller, Elementary Functions, chapters 3 and 11); the
// coefficients are the output of fit_math.py. Errors below 1.5 units in the last place,
// infinities, NaN, signed zeros and denormals as in C; tests/differential/math_test.cc measures it.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "compiler/codegen/llvm_target.h"
#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// The value of `intrinsic` at `x`, a float or a vector of floats; null where libm has to do it.
// `scale` is null where the target has no instruction for it.
llvm::Value* EmitMath(llvm::IRBuilderBase& builder, ir::Intrinsic intrinsic, llvm::Value* x,
                      PowerScaling scale);

}  // namespace tilewright::codegen
