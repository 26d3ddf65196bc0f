#include "compiler/ir/verify.h"

#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::ir {

absl::Status Verify(const Function& function) {
  if (function.body == nullptr) return support::InvalidArgument("ir.verify.no_body", function.name);
  std::string error;
  VisitExprsIn(function.body, [&](const Expr& e) {
    if (error.empty()) error = TypeErrorOf(*e);
    return error.empty();
  });
  return error.empty() ? absl::OkStatus() : support::InvalidArgument("ir.verify.type", error);
}

}  // namespace tilewright::ir
