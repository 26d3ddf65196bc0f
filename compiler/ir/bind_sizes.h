// A function of open sizes at some sizes, or with those of another one. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// The function with the size parameters of these names replaced by numbers, in its body and in the
// shapes of its buffers. The others stay.
Function BindSizes(const Function& f, const std::map<std::string, int64_t>& sizes);
// The function with these size parameters in place of its own, which are as many.
Function WithSizeParams(const Function& f, const std::vector<Var>& sizes);
// Those of its size parameters that `sizes` names, for EvalIntExpr.
std::vector<std::pair<Var, int64_t>> SizeValues(const Function& f,
                                                const std::map<std::string, int64_t>& sizes);

}  // namespace tilewright::ir
