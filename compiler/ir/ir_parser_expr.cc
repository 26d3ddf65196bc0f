// Expressions of the IR text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/ir/ir_parser.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

struct InfixRow {
  std::string_view text;
  ExprKind kind;
};
constexpr InfixRow kInfix[] = {
    {"+", ExprKind::kAdd}, {"-", ExprKind::kSub}, {"*", ExprKind::kMul}, {"/", ExprKind::kDiv},
    {"%", ExprKind::kMod}, {"==", ExprKind::kEq}, {"!=", ExprKind::kNe}, {"<", ExprKind::kLt},
    {"<=", ExprKind::kLe}, {">", ExprKind::kGt},  {">=", ExprKind::kGe}, {"&&", ExprKind::kAnd},
    {"||", ExprKind::kOr},
};

}  // namespace

// Never null: after an error a constant stands in.
Expr Parser::ParseExpr() { return Infix(0).e; }

Parser::Deep Parser::Finish(ExprNode node, int height, const Token& at) {
  std::string error = TypeErrorOf(node);
  if (!error.empty()) FailAt(at, "type", error);
  if (height > kMaxExprDepth)
    FailAt(at, "depth", "expected an expression of depth at most " + std::to_string(kMaxExprDepth));
  if (failed()) return {Int(0), 1};
  return {std::make_shared<const ExprNode>(std::move(node)), height};
}

// Operators that bind tighter than `min_precedence`, to the left.
Parser::Deep Parser::Infix(int min_precedence) {
  Deep left = Unary();
  bool compared = false;  // a < b < c is refused
  while (token_.kind == TokenKind::kPunctuation) {
    const InfixRow* row = nullptr;
    for (const InfixRow& r : kInfix) {
      if (r.text == token_.text) row = &r;
    }
    if (row == nullptr || PrecedenceOf(row->kind) <= min_precedence) break;
    if (compared && IsComparison(row->kind)) Fail("syntax", "parentheses around a comparison");
    Token at = Take();
    Deep right = Infix(PrecedenceOf(row->kind));
    ExprNode node{.kind = row->kind, .dtype = left.e->dtype};
    if (IsComparison(row->kind)) node.dtype = kBool.WithLanes(left.e->dtype.lanes);
    node.args = {left.e, right.e};
    left = Finish(std::move(node), std::max(left.height, right.height) + 1, at);
    compared |= IsComparison(row->kind);
  }
  return left;
}

Parser::Deep Parser::Unary() {
  if (!Is("!")) return Primary();
  Token at = Take();
  if (++expr_depth_ > kMaxExprDepth)
    FailAt(at, "depth", "expected an expression of depth at most " + std::to_string(kMaxExprDepth));
  Deep operand = Unary();
  --expr_depth_;
  ExprNode node{.kind = ExprKind::kNot, .dtype = operand.e->dtype};
  node.args = {operand.e};
  return Finish(std::move(node), operand.height + 1, at);
}

Parser::Deep Parser::Primary() {
  if (++expr_depth_ > kMaxExprDepth)
    FailAt(token_, "depth",
           "expected an expression of depth at most " + std::to_string(kMaxExprDepth));
  Deep result{Int(0), 1};
  if (Accept("(")) {
    result = Infix(0);
    Expect(")");
  } else if (Accept("-")) {
    result = Numeric(/*negative=*/true);
  } else if (token_.kind == TokenKind::kNumber) {
    result = Numeric(/*negative=*/false);
  } else if (token_.kind == TokenKind::kWord) {
    result = WordExpr();
  } else {
    Fail("syntax", "an expression");
  }
  --expr_depth_;
  return result;
}

Parser::Deep Parser::Numeric(bool negative) {
  if (token_.kind == TokenKind::kNumber) return NumberOf(Take(), negative);
  if (!Is("inf")) {
    Fail("syntax", "a number after '-'");
    return {Int(0), 1};
  }
  Take();
  Expect("(");
  Token type_at = Take();
  DType type;
  if (!ParseType(type_at.text, &type) || !type.is_float() || type.is_vector())
    FailAt(type_at, "type", "expected a float type in inf(...)");
  Expect(")");
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return failed() ? Deep{Int(0), 1} : Deep{Float(negative ? -kInf : kInf, type), 1};
}

Parser::Deep Parser::NumberOf(const Token& token, bool negative) {
  DType type = kI64;
  if (!token.suffix.empty() &&
      (!ParseType(token.suffix, &type) || type.is_vector() || type.is_bool())) {
    FailAt(token, "number",
           support::StrCat("expected a numeric type after the digits, found ",
                           support::Quote(token.suffix, 40)));
    return {Int(0), 1};
  }
  std::string text = (negative ? "-" : "") + std::string(token.text);
  if (type.is_float()) {
    std::optional<double> value = support::ParseDouble(text);
    if (value && type.bits != 64) {  // the digits are the shortest ones of a float
      float narrow = 0;
      auto parsed = std::from_chars(text.data(), text.data() + text.size(), narrow);
      value = parsed.ec == std::errc() ? std::optional<double>(narrow) : std::nullopt;
    }
    if (value && !std::isfinite(RoundFloat(*value, type))) value = std::nullopt;
    if (value) return {Float(*value, type), 1};
    FailAt(token, "number", "expected a number in the range of its type");
    return {Int(0), 1};
  }
  if (type.code == TypeCode::kUInt && type.bits == 64) {
    if (std::optional<uint64_t> value = support::ParseUint64(text))
      return {Int(static_cast<int64_t>(*value), type), 1};
  } else if (std::optional<int64_t> value = support::ParseInt64(text)) {
    if (WrapInt(*value, type) == *value) return {Int(*value, type), 1};
  }
  FailAt(token, "number",
         support::StrCat("expected a value of ", TypeName(type), ", found ",
                         support::Quote(text, 40)));
  return {Int(0), 1};
}

Parser::Deep Parser::WordExpr() {
  Token word = token_;
  if (Is("inf")) return Numeric(/*negative=*/false);
  Take();
  if (word.text == "true" || word.text == "false") return {Bool(word.text == "true"), 1};
  if (word.text == "nan") {
    Expect("(");
    Token type_at = Take();
    DType type;
    if (!ParseType(type_at.text, &type) || !type.is_float() || type.is_vector())
      FailAt(type_at, "type", "expected a float type in nan(...)");
    Expect(")");
    if (failed()) return {Int(0), 1};
    return {Float(std::numeric_limits<double>::quiet_NaN(), type), 1};
  }
  if (Is("(")) return FunctionLike(word);
  if (Is("[")) return BufferAccess(word);
  auto it = symbols_.find(std::string(word.text));
  if (it == symbols_.end() || it->second.var == nullptr) {
    FailAt(word, "undeclared",
           support::StrCat("expected a variable in scope, found ", support::Quote(word.text, 40)));
    return {Int(0), 1};
  }
  return {it->second.var, 1};
}

std::vector<Expr> Parser::List(std::string_view close, int* height) {
  std::vector<Expr> list;
  if (Accept(close)) return list;
  do {
    Deep item = Infix(0);
    *height = std::max(*height, item.height);
    list.push_back(std::move(item.e));
  } while (Accept(","));
  Expect(close);
  return list;
}

// word(args): casts, infix-less operators, intrinsics, ramp and broadcast.
Parser::Deep Parser::FunctionLike(const Token& word) {
  Expect("(");
  int height = 0;
  ExprNode node;
  node.args = List(")", &height);
  ++height;
  if (failed() || node.args.empty()) {
    FailAt(word, "syntax",
           support::StrCat("expected arguments of ", support::Quote(word.text, 40)));
    return {Int(0), 1};
  }
  DType type;
  if (ParseType(word.text, &type)) {
    node.kind = ExprKind::kCast;
    node.dtype = type;
    return Finish(std::move(node), height, word);
  }
  node.dtype = node.args[0]->dtype;
  if (word.text == "ramp" || word.text == "broadcast") {
    node.kind = word.text == "ramp" ? ExprKind::kRamp : ExprKind::kBroadcast;
    const int64_t* lanes = AsInt(node.args.back());
    if (lanes == nullptr || *lanes < 2 || *lanes > 65535) {
      FailAt(word, "type",
             support::StrCat("expected a number of lanes as the last argument of ", word.text));
      return {Int(0), 1};
    }
    node.dtype = node.dtype.WithLanes(static_cast<int>(*lanes));
    node.args.pop_back();
    return Finish(std::move(node), height, word);
  }
  if (word.text == "select" && node.args.size() == 3) node.dtype = node.args[1]->dtype;
  for (ExprKind kind : {ExprKind::kFloorDiv, ExprKind::kFloorMod, ExprKind::kMin, ExprKind::kMax,
                        ExprKind::kSelect}) {
    if (KindText(kind) != word.text) continue;
    node.kind = kind;
    return Finish(std::move(node), height, word);
  }
  for (int i = 0; i < static_cast<int>(Intrinsic::kNone); ++i) {
    if (IntrinsicText(static_cast<Intrinsic>(i)) != word.text) continue;
    node.kind = ExprKind::kCall;
    node.intrinsic = static_cast<Intrinsic>(i);
    node.dtype = CallType(node.intrinsic, node.dtype);
    return Finish(std::move(node), height, word);
  }
  FailAt(word, "syntax",
         support::StrCat("expected a function, found ", support::Quote(word.text, 40)));
  return {Int(0), 1};
}

Buffer Parser::FindBuffer(const Token& word) {
  auto it = symbols_.find(std::string(word.text));
  if (word.kind == TokenKind::kWord && it != symbols_.end() && it->second.buffer != nullptr)
    return it->second.buffer;
  FailAt(word, "undeclared",
         support::StrCat("expected a buffer in scope, found ", support::Quote(word.text, 40)));
  return MakeBuffer("undeclared", kF32, {});
}

Parser::Deep Parser::BufferAccess(const Token& word) {
  ExprNode node{.kind = ExprKind::kLoad, .dtype = kI64};
  node.buffer = FindBuffer(word);
  int height = 0;
  Expect("[");
  node.args = List("]", &height);
  if (Accept("masked")) {
    Expect("(");
    Deep mask = Infix(0);
    height = std::max(height, mask.height);
    node.mask = std::move(mask.e);
    Expect(")");
  }
  node.dtype = node.buffer->dtype.WithLanes(LanesOf(node.args));
  return Finish(std::move(node), height + 1, word);
}

}  // namespace tilewright::ir
