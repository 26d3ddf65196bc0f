// The words of the IR text, shared by printer and parser so that they cannot drift apart. Pure
// functions over constant tables; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

std::string_view ScopeText(Scope scope);
std::string_view RoleText(Role role);
std::string_view ForKindText(ForKind kind);
std::string_view SyncText(SyncKind kind);
std::string_view IterTypeText(IterType type);
std::string_view StageText(Stage stage);
std::optional<Scope> ParseScope(std::string_view text);
std::optional<Role> ParseRole(std::string_view text);
std::optional<ForKind> ParseForKind(std::string_view text);
std::optional<SyncKind> ParseSyncKind(std::string_view text);
std::optional<IterType> ParseIterType(std::string_view text);
std::optional<Stage> ParseStage(std::string_view text);

// How tightly an infix operator binds; 0 for nodes that are not infix. || 1, && 2, comparisons 3, +
// - 4, * / % 5.
int PrecedenceOf(ExprKind kind);
inline constexpr int kRangePrecedence =
    3;  // the ends of a range are sums; anything looser stands in parentheses
inline constexpr int kUnaryPrecedence = 6;

bool IsReserved(
    std::string_view word);  // keywords, type names, function-like words: never names of variables
bool IsWordStart(char c);    // [A-Za-z_]
bool IsWordChar(char c);     // [A-Za-z0-9_]
bool IsPlainWord(std::string_view word);  // [A-Za-z_][A-Za-z0-9_]*
// A plain, unreserved word that resembles `name`.
std::string Sanitise(std::string_view name);
// A number with a point, an exponent or a name (inf), so that it differs from an integer.
std::string DoubleText(double value);
// In double quotes; everything but printable ASCII as \xHH.
std::string QuoteText(std::string_view text);

}  // namespace tilewright::ir
