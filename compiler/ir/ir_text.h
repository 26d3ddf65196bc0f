// Text form of the tensor IR: Print and Parse are inverse (print∘parse = id on printed text;
// parse∘print gives a structurally equal function). Grammar in the .cc and in README.md. Hostile
// text gives an error with line and column.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace tilewright::ir {

std::string Print(const Function& function);
std::string Print(const Stmt& stmt);
std::string Print(const Expr& expr);
absl::StatusOr<Function> ParseFunction(std::string_view text);  // ir.parse.*

}  // namespace tilewright::ir
