#include "compiler/ir/text_words.h"

#include <algorithm>
#include <array>

#include "compiler/ir/type_rules.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

constexpr std::string_view kScopes[] = {
#define TW_SCOPE(Name, text, engine, rank) text,
#include "compiler/ir/scopes.def"
};
constexpr std::string_view kRoles[] = {"input", "constant", "output", "intermediate"};
constexpr std::string_view kForKinds[] = {
#define TW_FOR_KIND(Name, text) text,
#include "compiler/ir/nodes.def"
};
constexpr std::string_view kSyncKinds[] = {
#define TW_SYNC(Name, text) text,
#include "compiler/ir/nodes.def"
};
constexpr std::string_view kIterTypes[] = {"spatial", "reduce", "sequential", "opaque"};
constexpr std::string_view kStages[] = {"scheduled", "loops", "flat"};

constexpr std::string_view kKeywords[] = {
    "alloc", "attrs", "block", "combine", "else",   "eval",   "false", "fn",    "for",
    "if",    "in",    "inf",   "init",    "let",    "masked", "nan",   "reads", "scope",
    "size",  "stage", "true",  "where",   "writes", "align",  "async", "sync"};

template <typename Enum, size_t N>
std::optional<Enum> Find(const std::string_view (&table)[N], std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    if (table[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view ScopeText(Scope scope) { return kScopes[static_cast<int>(scope)]; }
std::string_view RoleText(Role role) { return kRoles[static_cast<int>(role)]; }
std::string_view ForKindText(ForKind kind) { return kForKinds[static_cast<int>(kind)]; }
std::string_view SyncText(SyncKind kind) { return kSyncKinds[static_cast<int>(kind)]; }
std::string_view IterTypeText(IterType type) { return kIterTypes[static_cast<int>(type)]; }
std::string_view StageText(Stage stage) { return kStages[static_cast<int>(stage)]; }
std::optional<Scope> ParseScope(std::string_view text) { return Find<Scope>(kScopes, text); }
std::optional<Role> ParseRole(std::string_view text) { return Find<Role>(kRoles, text); }
std::optional<ForKind> ParseForKind(std::string_view text) {
  return Find<ForKind>(kForKinds, text);
}
std::optional<SyncKind> ParseSyncKind(std::string_view text) {
  return Find<SyncKind>(kSyncKinds, text);
}
std::optional<IterType> ParseIterType(std::string_view text) {
  return Find<IterType>(kIterTypes, text);
}
std::optional<Stage> ParseStage(std::string_view text) { return Find<Stage>(kStages, text); }

int PrecedenceOf(ExprKind kind) {
  switch (kind) {
    case ExprKind::kOr:
      return 1;
    case ExprKind::kAnd:
      return 2;
    case ExprKind::kAdd:
    case ExprKind::kSub:
      return 4;
    case ExprKind::kMul:
    case ExprKind::kDiv:
    case ExprKind::kMod:
      return 5;
    default:
      return IsComparison(kind) ? 3 : 0;
  }
}

bool IsReserved(std::string_view word) {
  if (std::find(std::begin(kKeywords), std::end(kKeywords), word) != std::end(kKeywords))
    return true;
  DType type;
  if (ParseType(word, &type)) return true;
  static constexpr std::string_view kFunctions[] = {
#define TW_EXPR(Kind, text, arity) text,
#include "compiler/ir/nodes.def"
#define TW_INTRINSIC(Name, text, arity) text,
#include "compiler/ir/nodes.def"
  };
  return std::find(std::begin(kFunctions), std::end(kFunctions), word) != std::end(kFunctions);
}

bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordChar(char c) { return IsWordStart(c) || (c >= '0' && c <= '9'); }

bool IsPlainWord(std::string_view word) {
  return !word.empty() && IsWordStart(word[0]) && std::all_of(word.begin(), word.end(), IsWordChar);
}

std::string Sanitise(std::string_view name) {
  std::string text(name);
  std::replace_if(text.begin(), text.end(), [](char c) { return !IsWordChar(c); }, '_');
  if (text.empty() || !IsWordStart(text[0])) text.insert(text.begin(), '_');
  if (IsReserved(text)) text += '_';
  return text;
}

std::string DoubleText(double value) {
  std::string text = support::FormatDouble(value);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string QuoteText(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c >= ' ' && c <= '~') {
      quoted += c;
    } else {
      quoted += "\\x";
      quoted += kHex[static_cast<uint8_t>(c) >> 4];
      quoted += kHex[static_cast<uint8_t>(c) & 15];
    }
  }
  return quoted + '"';
}

}  // namespace tilewright::ir
