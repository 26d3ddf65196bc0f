// Functions that spirv_math.cc puts into modules: those of 64-bit floats, and what both widths
// share.
#pragma once

#include "compiler/targets/vulkan/spirv_value.h"

namespace tilewright::vulkan {

// Within a few units of the last place of 64-bit floats; Taylor's series after a reduction.
Value WideExp(Value x);
Value WideLog(Value x);
Value WideTanh(Value x);

// x^y, given |x|^y: its sign, and the cases that logarithms do not tell.
Value PowerOf(Value x, Value y, Value power);

}  // namespace tilewright::vulkan
