// Which operands a scheduled kernel may overwrite with its output: the output is written by one
// block, each element once, and the operand is read nowhere but there, at the element that is
// written next. Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::driver {

// Positions among the function's parameters, in order; none where a step computes elements twice
// (`tail=overlap`). REQUIRES: `steps` made `scheduled`, stage kScheduled.
std::vector<int> InPlaceOperands(const ir::Function& scheduled, std::string_view steps);

}  // namespace tilewright::driver
