// Text → definitions: recursive descent over the tokens of the IR text.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "compiler/ir/text_lexer.h"
#include "compiler/ir/text_words.h"
#include "compiler/op/custom_text.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op::custom {
namespace {

using ir::Token;
using ir::TokenKind;
using support::StrCat;

constexpr std::array<std::string_view, 6> kReductions = {"sum", "prod",   "max",
                                                         "min", "argmax", "argmin"};
constexpr size_t kMaxWord = 64;

bool IsReduction(std::string_view word) {
  return std::find(kReductions.begin(), kReductions.end(), word) != kReductions.end();
}
int Precedence(std::string_view symbol) {
  if (symbol == "||") return 1;
  if (symbol == "&&") return 2;
  for (std::string_view s : {"==", "!=", "<", "<=", ">", ">="}) {
    if (symbol == s) return 3;
  }
  if (symbol == "+" || symbol == "-") return 4;
  return symbol == "*" || symbol == "/" || symbol == "%" ? 5 : 0;
}
constexpr int kComparison = 3;

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {
    token_ = lexer_.Next();
    next_ = lexer_.Next();
  }

  absl::StatusOr<std::vector<Definition>> File() {
    std::vector<Definition> definitions;
    while (token_.kind != TokenKind::kEnd) {
      if (definitions.size() == kMaxDefinitions) return Limit("definitions", kMaxDefinitions);
      TW_ASSIGN(Definition definition, One());
      definitions.push_back(std::move(definition));
    }
    if (definitions.empty()) return Error("syntax", "expected a definition (operator ...)");
    return definitions;
  }
  absl::StatusOr<NodeRef> Whole() {
    TW_ASSIGN(NodeRef value, Expression(1));
    if (token_.kind != TokenKind::kEnd)
      return Error("syntax", "expected the end of the expression");
    return value;
  }

 private:
  absl::Status Error(std::string_view reason, std::string_view expected) const {
    const std::string found =
        token_.kind == TokenKind::kEnd ? "the end" : support::Quote(token_.text, 40);
    return OpError("custom", reason,
                   StrCat("line ", token_.line, ", column ", token_.column, ": ", expected,
                          ", found ", found));
  }
  absl::Status Limit(std::string_view what, size_t most) const {
    return OpError(
        "custom", "limit",
        StrCat("line ", token_.line, ": expected at most ", most, " ", what, ", found more"));
  }
  void Advance() {
    token_ = next_;
    next_ = lexer_.Next();
  }
  bool Is(std::string_view text) const {
    return (token_.kind == TokenKind::kWord || token_.kind == TokenKind::kPunctuation) &&
           token_.text == text;
  }
  bool Accept(std::string_view text) {
    if (!Is(text)) return false;
    Advance();
    return true;
  }
  absl::Status Expect(std::string_view text) {
    if (Accept(text)) return absl::OkStatus();
    return Error("syntax", StrCat("expected ", support::Quote(text)));
  }
  absl::StatusOr<std::string> Word(std::string_view what) {
    const bool plain = token_.kind == TokenKind::kWord && ir::IsPlainWord(token_.text);
    if (!plain) return Error("syntax", StrCat("expected ", what));
    if (token_.text.size() > kMaxWord) return Limit("characters in a name", kMaxWord);
    std::string word(token_.text);
    Advance();
    return word;
  }
  // A word that the definition has not used yet, and that means nothing by itself.
  absl::StatusOr<std::string> NewName(std::string_view what) {
    ir::DType type;
    if (ir::ParseType(token_.text, &type) || Is("inf") || Is("nan") || Is("true") || Is("false")) {
      return Error("name", StrCat("expected a name for ", what, " that means nothing else"));
    }
    if (names_.count(std::string(token_.text)) > 0) {
      return Error("name", StrCat("expected a new name for ", what));
    }
    TW_ASSIGN(std::string word, Word(StrCat("a name for ", what)));
    names_.insert(word);
    return word;
  }

  // ------------------------------------------------------------ definitions

  absl::StatusOr<Definition> One() {
    Definition d;
    names_.clear();
    nodes_ = 0;
    TW_TRY(Expect("operator"));
    if (token_.kind != TokenKind::kWord || token_.text.size() > 4 * kMaxWord) {
      return Error("syntax", "expected the operator's name, domain::Type");
    }
    d.domain = std::string(token_.text);
    Advance();
    TW_TRY(Expect(":"));
    TW_TRY(Expect(":"));
    TW_ASSIGN(d.op_type, Word("the operator's type"));
    TW_TRY(Expect("("));
    TW_ASSIGN(d.operands, Operands("an operand"));
    TW_TRY(Expect("-"));
    TW_TRY(Expect(">"));
    TW_TRY(Expect("("));
    TW_ASSIGN(d.results, Operands("a result"));
    while (!Is("{") && !Is("library")) TW_TRY(Clause(&d));
    if (Is("library")) {
      TW_TRY(External(&d));
      if (Accept(";")) return d;
    }
    TW_TRY(Expect("{"));
    while (!Accept("}")) {
      if (d.stages.size() == kMaxNames) return Limit("stages", kMaxNames);
      TW_TRY(AddStage(&d));
    }
    for (const Operand& result : d.results) {
      if (std::any_of(d.stages.begin(), d.stages.end(),
                      [&](const Stage& s) { return s.name == result.name; })) {
        continue;
      }
      return Error("name",
                   StrCat("expected a stage that computes result ", support::Quote(result.name),
                          " before the end of ", d.domain, "::", d.op_type));
    }
    return d;
  }

  // library "libacme.so" function acme_fft
  absl::Status External(Definition* d) {
    TW_TRY(Expect("library"));
    const bool text = token_.kind == TokenKind::kText && ir::UnquoteText(token_.text, &d->library);
    const bool plain = std::all_of(d->library.begin(), d->library.end(), [](char c) {
      return c > ' ' && c <= '~' && c != '/' && c != '"' && c != '\\';
    });
    if (!text || !plain || d->library.empty() || d->library.size() > kMaxWord ||
        d->library.starts_with(".")) {
      return Error("syntax", "expected the file name of a library in quotes, without folders");
    }
    Advance();
    TW_TRY(Expect("function"));
    TW_ASSIGN(d->function, Word("the name of a function"));
    if (d->results.size() != 1) {
      return Error("syntax", "expected an external kernel to have one result");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Operand>> Operands(std::string_view what) {
    std::vector<Operand> operands;
    do {
      if (operands.size() == kMaxNames) return Limit("operands or results", kMaxNames);
      Operand o;
      TW_ASSIGN(o.name, NewName(what));
      TW_TRY(Expect(":"));
      TW_ASSIGN(o.type, Word("an element type or a type variable"));
      TW_TRY(Expect("["));
      TW_TRY(List(&o.leading, &o.dims));
      operands.push_back(std::move(o));
    } while (Accept(","));
    TW_TRY(Expect(")"));
    return operands;
  }

  // `.., a, b]` or `a, b]` or `]`.
  absl::Status List(bool* leading, std::vector<NodeRef>* items) {
    *leading = Accept("..");
    if (Accept("]")) return absl::OkStatus();
    if (*leading) TW_TRY(Expect(","));
    do {
      if (items->size() == kMaxNames) return Limit("dimensions", kMaxNames);
      TW_ASSIGN(NodeRef item, Expression(1));
      items->push_back(std::move(item));
    } while (Accept(","));
    return Expect("]");
  }

  absl::Status Clause(Definition* d) {
    if (Accept("type")) return AddTypes(d);
    if (Accept("attribute")) return AddAttribute(d);
    if (!Accept("require")) {
      return Error("syntax", "expected type, attribute, require, library or the stages in { }");
    }
    if (d->requirements.size() == kMaxNames) return Limit("requirements", kMaxNames);
    TW_ASSIGN(NodeRef condition, Expression(1));
    d->requirements.push_back(std::move(condition));
    return Expect(";");
  }

  absl::Status AddTypes(Definition* d) {
    if (d->types.size() == kMaxNames) return Limit("type variables", kMaxNames);
    TypeVariable variable;
    TW_ASSIGN(variable.name, NewName("a type variable"));
    TW_TRY(Expect("in"));
    do {
      ir::DType type;
      const bool good =
          token_.kind == TokenKind::kWord && ir::ParseType(token_.text, &type) && !type.is_vector();
      if (!good) return Error("syntax", "expected an element type such as f32");
      if (variable.types.size() == kMaxNames) return Limit("types", kMaxNames);
      variable.types.push_back(type);
      Advance();
    } while (Accept(","));
    d->types.push_back(std::move(variable));
    return Expect(";");
  }

  absl::Status AddAttribute(Definition* d) {
    if (d->attributes.size() == kMaxNames) return Limit("attributes", kMaxNames);
    Attribute attribute;
    TW_ASSIGN(attribute.name, NewName("an attribute"));
    TW_TRY(Expect(":"));
    bool known = false;
    for (const AttributeKind kind :
         {AttributeKind::kInt, AttributeKind::kFloat, AttributeKind::kInts, AttributeKind::kFloats,
          AttributeKind::kString}) {
      if (!Is(AttributeKindText(kind))) continue;
      attribute.kind = kind;
      known = true;
    }
    if (!known) return Error("syntax", "expected int, float, ints, floats or string");
    Advance();
    if (Accept("=")) {
      TW_ASSIGN(attribute.fallback, Fallback(attribute.kind));
    }
    d->attributes.push_back(std::move(attribute));
    return Expect(";");
  }

  absl::StatusOr<AttrValue> Fallback(AttributeKind kind) {
    if (kind == AttributeKind::kString) {
      std::string text;
      if (token_.kind != TokenKind::kText || !ir::UnquoteText(token_.text, &text)) {
        return Error("syntax", "expected a text in quotes");
      }
      if (text.size() > kMaxAttribute) return Limit("bytes in a text", kMaxAttribute);
      Advance();
      return AttrValue(std::move(text));
    }
    const bool whole = kind == AttributeKind::kInt || kind == AttributeKind::kInts;
    const bool list = kind == AttributeKind::kInts || kind == AttributeKind::kFloats;
    std::vector<int64_t> integers;
    std::vector<double> numbers;
    if (list) TW_TRY(Expect("["));
    while (!list || !Accept("]")) {
      if (list && integers.size() + numbers.size() > 0) TW_TRY(Expect(","));
      if (integers.size() + numbers.size() == kMaxAttribute) return Limit("numbers", kMaxAttribute);
      TW_TRY(Signed(whole, &integers, &numbers));
      if (!list) break;
    }
    if (kind == AttributeKind::kInt) return AttrValue(integers[0]);
    if (kind == AttributeKind::kFloat) return AttrValue(numbers[0]);
    return whole ? AttrValue(std::move(integers)) : AttrValue(std::move(numbers));
  }
  absl::Status Signed(bool whole, std::vector<int64_t>* integers, std::vector<double>* numbers) {
    const bool negative = Accept("-");
    TW_ASSIGN(const NodeRef literal, Number());
    if (whole && literal->kind != NodeKind::kInt) return Error("syntax", "expected an integer");
    const double number =
        literal->kind == NodeKind::kInt ? static_cast<double>(literal->integer) : literal->number;
    if (whole) integers->push_back(negative ? -literal->integer : literal->integer);
    if (!whole) numbers->push_back(negative ? -number : number);
    return absl::OkStatus();
  }

  absl::Status AddStage(Definition* d) {
    Stage stage;
    TW_ASSIGN(stage.name, Word("a stage (name[axes] = expression;)"));
    const bool is_result = std::any_of(d->results.begin(), d->results.end(),
                                       [&](const Operand& r) { return r.name == stage.name; });
    const bool computed = std::any_of(d->stages.begin(), d->stages.end(),
                                      [&](const Stage& s) { return s.name == stage.name; });
    if (computed || (!is_result && !names_.insert(stage.name).second)) {
      return Error("name", StrCat("expected a new name for a stage, found ",
                                  support::Quote(stage.name), " a second time before"));
    }
    TW_TRY(Expect("["));
    const size_t outer = axes_.size();
    stage.leading = Accept("..");
    if (!stage.leading || !Is("]")) {
      if (stage.leading) TW_TRY(Expect(","));
      while (!Is("]")) {
        if (!stage.axes.empty()) TW_TRY(Expect(","));
        TW_ASSIGN(Axis axis, OneAxis(/*sized=*/!is_result));
        stage.axes.push_back(std::move(axis));
      }
    }
    TW_TRY(Expect("]"));
    TW_TRY(Expect("="));
    TW_ASSIGN(stage.value, Expression(1));
    axes_.resize(outer);
    d->stages.push_back(std::move(stage));
    return Expect(";");
  }

  // An axis may have the name of another stage's, not of anything that it would hide.
  absl::StatusOr<Axis> OneAxis(bool sized) {
    if (axes_.size() == kMaxNames) return Limit("axes", kMaxNames);
    Axis axis;
    const bool taken = names_.count(std::string(token_.text)) > 0 ||
                       std::find(axes_.begin(), axes_.end(), token_.text) != axes_.end();
    if (taken) return Error("name", "expected a new name for an axis");
    TW_ASSIGN(axis.name, Word("a name for an axis"));
    if (sized) {
      TW_TRY(Expect(":"));
      TW_ASSIGN(axis.extent, Expression(1));
    }
    axes_.push_back(axis.name);
    return axis;
  }

  // ------------------------------------------------------------ expressions

  absl::StatusOr<NodeRef> Make(Node node) {
    if (++nodes_ > kMaxNodes) return Limit("nodes in the expressions of an operator", kMaxNodes);
    for (const NodeRef& arg : node.args) node.depth = std::max(node.depth, arg->depth + 1);
    if (node.depth > kMaxTree) return Limit("operations above each other", kMaxTree);
    return std::make_shared<const Node>(std::move(node));
  }

  absl::StatusOr<NodeRef> Expression(int least) {
    if (++depth_ > kMaxDepth) return Limit("levels of an expression", kMaxDepth);
    TW_ASSIGN(NodeRef left, Unary());
    while (token_.kind == TokenKind::kPunctuation) {
      const int precedence = Precedence(token_.text);
      if (precedence < least || precedence == 0) break;
      const std::string symbol(token_.text);
      Advance();
      TW_ASSIGN(NodeRef right, Expression(precedence + 1));
      TW_ASSIGN(left, Make({.kind = NodeKind::kOperation, .name = symbol, .args = {left, right}}));
      if (precedence == kComparison && Precedence(token_.text) == kComparison &&
          token_.kind == TokenKind::kPunctuation) {
        return Error("syntax", "expected && between two comparisons");
      }
    }
    --depth_;
    return left;
  }

  absl::StatusOr<NodeRef> Unary() {
    for (const std::string_view symbol : {"-", "!"}) {
      if (!Is(symbol)) continue;
      Advance();
      if (++depth_ > kMaxDepth) return Limit("levels of an expression", kMaxDepth);
      TW_ASSIGN(NodeRef arg, Unary());
      --depth_;
      return Make({.kind = NodeKind::kOperation, .name = std::string(symbol), .args = {arg}});
    }
    return Primary();
  }

  absl::StatusOr<NodeRef> Number() {
    if (token_.kind != TokenKind::kNumber && !Is("inf") && !Is("nan")) {
      return Error("syntax", "expected a number");
    }
    if (!token_.suffix.empty()) {
      return Error("syntax",
                   "expected a number without a type (numbers take the type of what they "
                   "meet)");
    }
    const std::string text(token_.text);
    const std::optional<int64_t> integer = support::ParseInt64(text);
    const std::optional<double> number = support::ParseDouble(text);
    if (!integer && !number) return Error("syntax", "expected a number that fits 64 bits");
    Advance();
    if (integer) return Make({.kind = NodeKind::kInt, .integer = *integer});
    return Make({.kind = NodeKind::kFloat, .number = *number});
  }

  absl::StatusOr<NodeRef> Primary() {
    if (Accept("(")) {
      TW_ASSIGN(NodeRef inner, Expression(1));
      TW_TRY(Expect(")"));
      return inner;
    }
    if (token_.kind == TokenKind::kNumber || Is("inf") || Is("nan")) return Number();
    if (Is("true") || Is("false")) {
      const bool value = Is("true");
      Advance();
      return Make({.kind = NodeKind::kBool, .integer = value});
    }
    if (token_.kind == TokenKind::kText) {
      std::string text;
      if (!ir::UnquoteText(token_.text, &text) || text.size() > kMaxAttribute) {
        return Error("syntax", "expected a text in quotes");
      }
      Advance();
      return Make({.kind = NodeKind::kText, .name = std::move(text)});
    }
    TW_ASSIGN(std::string word, Word("an expression"));
    if (Is("(")) return Call(std::move(word));
    if (!Accept("[")) return Make({.kind = NodeKind::kName, .name = std::move(word)});
    Node access{.kind = NodeKind::kAccess, .name = std::move(word)};
    TW_TRY(List(&access.leading, &access.args));
    return Make(std::move(access));
  }

  // f(a, b), or sum(k: n, value).
  absl::StatusOr<NodeRef> Call(std::string word) {
    TW_TRY(Expect("("));
    const size_t outer = axes_.size();
    Node node{.kind = NodeKind::kCall, .name = std::move(word)};
    while (IsReduction(node.name) && token_.kind == TokenKind::kWord && next_.text == ":") {
      node.kind = NodeKind::kReduce;
      TW_ASSIGN(Axis axis, OneAxis(/*sized=*/true));
      node.axes.push_back(std::move(axis));
      TW_TRY(Expect(","));
    }
    do {
      if (node.args.size() == kMaxNames) return Limit("arguments", kMaxNames);
      TW_ASSIGN(NodeRef arg, Expression(1));
      node.args.push_back(std::move(arg));
    } while (Accept(","));
    if (node.kind == NodeKind::kReduce && node.args.size() != 1) {
      return Error("syntax", "expected one value behind the axes");
    }
    if (FindsPosition(node.name) && node.kind == NodeKind::kReduce && node.axes.size() != 1) {
      return Error("syntax", StrCat("expected one axis of ", node.name));
    }
    axes_.resize(outer);
    TW_TRY(Expect(")"));
    return Make(std::move(node));
  }

  ir::Lexer lexer_;
  Token token_, next_;
  std::set<std::string> names_;    // of the definition
  std::vector<std::string> axes_;  // in scope
  int64_t nodes_ = 0;
  int depth_ = 0;
};

absl::Status CheckSize(std::string_view text) {
  if (text.size() <= kMaxText) return absl::OkStatus();
  return OpError("custom", "limit",
                 StrCat("expected a text of at most ", kMaxText, " bytes, found ", text.size()));
}

}  // namespace

absl::StatusOr<std::vector<Definition>> Parse(std::string_view text) {
  TW_TRY(CheckSize(text));
  return Parser(text).File();
}

bool FindsPosition(std::string_view reduction) {
  return reduction == "argmax" || reduction == "argmin";
}

absl::StatusOr<NodeRef> ParseExpression(std::string_view text) {
  TW_TRY(CheckSize(text));
  return Parser(text).Whole();
}

NodeRef IntNode(int64_t value) {
  // The smallest number has no positive literal.
  const int64_t least = std::numeric_limits<int64_t>::min();
  const int64_t magnitude = value == least ? std::numeric_limits<int64_t>::max()
                            : value < 0    ? -value
                                           : value;
  auto literal = std::make_shared<const Node>(Node{.kind = NodeKind::kInt, .integer = magnitude});
  if (value >= 0) return literal;
  auto negative = std::make_shared<const Node>(
      Node{.kind = NodeKind::kOperation, .name = "-", .args = {literal}});
  if (value != least) return negative;
  return std::make_shared<const Node>(
      Node{.kind = NodeKind::kOperation, .name = "-", .args = {negative, IntNode(1)}});
}

NodeRef FloatNode(double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  auto literal = std::make_shared<const Node>(
      Node{.kind = NodeKind::kFloat, .number = negative ? -value : value});
  if (!negative) return literal;
  return std::make_shared<const Node>(
      Node{.kind = NodeKind::kOperation, .name = "-", .args = {literal}});
}

}  // namespace tilewright::op::custom
