// The rule table of the simplifier (simplify_rules.def): patterns are parsed once and matched at
// the root of an expression whose operands are simplified. Internal to compiler/analysis, and for
// its tests. Pure functions; thread-safe.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// Variables of patterns, in this order.
inline constexpr std::string_view kRuleVariables = "xyzcdpqruvw";
using RuleBinding = std::array<ir::Expr, kRuleVariables.size()>;

struct RuleRow {
  std::string_view name;
  std::string_view pattern_text, replacement_text, condition_text;
  ir::Expr pattern, replacement, condition;  // over the variables, integers as i64
};
std::span<const RuleRow> SimplifyRules();

// `e` with its variables bound. Null where the types do not fit (the row is not for them).
ir::Expr Instantiate(const ir::Expr& e, const RuleBinding& binding);

// What the first matching row makes of `e`; null when none does. `row` (optional) gets the row.
ir::Expr RewriteByRule(const ir::Expr& e, const RuleRow** row = nullptr);

}  // namespace tilewright::analysis
