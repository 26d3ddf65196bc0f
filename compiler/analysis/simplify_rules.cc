#include "compiler/analysis/simplify_rules.h"

#include <string>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

constexpr size_t kUnbound = kRuleVariables.size();

// A variable of a pattern by its name; each has one, and a name has one letter.
size_t VariableOf(const Expr& e) {
  return e->kind == ExprKind::kVar ? kRuleVariables.find(e->name[0]) : kUnbound;
}

// Patterns are IR text: integers are size parameters, conditions and the rest are let variables.
// `u v w` are parsed as integers, too; only matching tells them apart.
RuleRow ParseRow(std::string_view name, std::string_view pattern, std::string_view replacement,
                 std::string_view condition) {
  std::string text =
      "fn rule(x: size, y: size, z: size, c: size, d: size, u: size, v: size, w: size) stage=loops "
      "{ let p = true { let q = true { let r = true { eval ";
  text.append(pattern).append("; eval ").append(replacement).append("; eval ");
  text.append(condition).append("; } } } }");
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  TW_CHECK(f.ok()) << "simplification rule " << name << ": " << support::StatusText(f.status());
  const Stmt& evals = f->body->body->body->body;
  TW_CHECK(evals->kind == StmtKind::kSeq && evals->stmts.size() == 3) << "rule " << name;
  for (const Stmt& eval : evals->stmts) {
    ir::VisitExprs(eval->value, [&](const Expr& e) {
      TW_CHECK(e->args.size() <= 3 && (e->kind != ExprKind::kIntImm || e->dtype.is_bool()))
          << "rule " << name << ": expected operators and conditions, found " << ir::Print(e);
      return true;
    });
  }
  return {name,
          pattern,
          replacement,
          condition,
          evals->stmts[0]->value,
          evals->stmts[1]->value,
          evals->stmts[2]->value};
}

std::vector<RuleRow> ParseRows() {
  return {
#define TW_RULE(name, pattern, replacement, condition) \
  ParseRow(#name, pattern, replacement, condition),
#include "compiler/analysis/simplify_rules.def"
  };
}

const std::vector<RuleRow>& Rows() {
  static const std::vector<RuleRow>* rows = new std::vector<RuleRow>(ParseRows());
  return *rows;
}

// Rows by the kind of their root, in table order.
const std::vector<const RuleRow*>& RowsOf(ExprKind kind) {
  using Index = std::array<std::vector<const RuleRow*>, 64>;
  static const Index* index = [] {
    auto* made = new Index();
    for (const RuleRow& row : Rows())
      (*made)[static_cast<size_t>(row.pattern->kind)].push_back(&row);
    return made;
  }();
  return (*index)[static_cast<size_t>(kind)];
}

bool Commutes(ExprKind kind) {
  return kind == ExprKind::kMin || kind == ExprKind::kMax || kind == ExprKind::kAnd ||
         kind == ExprKind::kOr || kind == ExprKind::kEq || kind == ExprKind::kNe;
}

bool Admits(char variable, const Expr& e) {
  switch (variable) {
    case 'x':
    case 'y':
    case 'z':
      return e->dtype.code == ir::TypeCode::kInt && !e->dtype.is_vector();
    case 'c':
    case 'd':
      return e->kind == ExprKind::kIntImm && e->dtype.code == ir::TypeCode::kInt;
    case 'p':
    case 'q':
    case 'r':
      return e->dtype == ir::kBool;
    default:
      return !e->dtype.is_vector();
  }
}

// What is left to match: pairs of pattern and expression, and where the next ones are. Lists share
// their tails, so that another order can be tried from any point.
struct Goal {
  const Expr* pattern;
  const Expr* e;
  const Goal* rest;
};

bool Match(const Goal* goal, RuleBinding* binding) {
  if (goal == nullptr) return true;
  const Expr &pattern = *goal->pattern, &e = *goal->e;
  size_t variable = VariableOf(pattern);
  if (variable != kUnbound) {
    Expr& bound = (*binding)[variable];
    if (bound != nullptr) return ir::StructuralEqual(bound, e) && Match(goal->rest, binding);
    if (!Admits(kRuleVariables[variable], e)) return false;
    bound = e;
    if (Match(goal->rest, binding)) return true;
    bound = nullptr;
    return false;
  }
  if (pattern->kind != e->kind) return false;
  if (pattern->kind == ExprKind::kIntImm) {  // literals are conditions
    return e->dtype.is_bool() && pattern->int_value == e->int_value && Match(goal->rest, binding);
  }
  Goal goals[3];
  auto try_order = [&](bool swapped) {
    const Goal* next = goal->rest;
    for (size_t i = e->args.size(); i-- > 0;) {
      goals[i] = {&pattern->args[i], &e->args[swapped ? 1 - i : i], next};
      next = &goals[i];
    }
    return Match(next, binding);
  };
  return try_order(false) || (Commutes(e->kind) && try_order(true));
}

Expr Build(const Expr& e, const RuleBinding& binding) {
  size_t variable = VariableOf(e);
  if (variable != kUnbound) return binding[variable];
  if (e->kind == ExprKind::kIntImm) return e;
  ir::ExprNode node{.kind = e->kind, .dtype = e->dtype};
  for (const Expr& a : e->args) {
    node.args.push_back(Build(a, binding));
    if (node.args.back() == nullptr) return nullptr;
  }
  if (e->kind == ExprKind::kSelect) {
    node.dtype = node.args[1]->dtype;
  } else if (!e->dtype.is_bool()) {
    node.dtype = node.args[0]->dtype;
  }
  if (!ir::TypeErrorOf(node).empty()) return nullptr;
  if (e->kind == ExprKind::kNot) return ir::Not(node.args[0]);
  if (e->kind == ExprKind::kSelect) return ir::Select(node.args[0], node.args[1], node.args[2]);
  return ir::Binary(e->kind, node.args[0], node.args[1]);
}

}  // namespace

std::span<const RuleRow> SimplifyRules() { return Rows(); }

Expr Instantiate(const Expr& e, const RuleBinding& binding) { return Build(e, binding); }

Expr RewriteByRule(const Expr& e, const RuleRow** row) {
  for (const RuleRow* candidate : RowsOf(e->kind)) {
    RuleBinding binding;
    const Goal root{&candidate->pattern, &e, nullptr};
    if (!Match(&root, &binding)) continue;
    Expr condition = Instantiate(candidate->condition, binding);
    if (condition == nullptr || !ir::IsInt(condition, 1)) continue;
    Expr result = Instantiate(candidate->replacement, binding);
    if (result == nullptr) continue;
    if (row != nullptr) *row = candidate;
    return result;
  }
  return nullptr;
}

}  // namespace tilewright::analysis
