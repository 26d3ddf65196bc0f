// The parsing half of ir_text.h: recursive descent without exceptions. The first error stops
// everything: from then on every token reads as the end of the text. Nodes are made as written (no
// folding), so that printed text comes back the same.
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/text_lexer.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

// Trees are walked recursively everywhere: deeper ones than any real program are refused here.
constexpr int kMaxExprDepth = 1000;
constexpr int kMaxStmtDepth = 500;
constexpr size_t kMaxTextBytes = size_t{64} << 20;

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Take(); }
  absl::StatusOr<Function> Parse();

 private:
  struct Deep {  // an expression and the height of its tree
    Expr e;
    int height = 1;
  };

  // Tokens.
  Token Take();
  bool Is(std::string_view text) const {
    bool symbol = token_.kind == TokenKind::kWord || token_.kind == TokenKind::kPunctuation;
    return symbol && token_.text == text;
  }
  bool Accept(std::string_view text);
  bool Expect(std::string_view text);
  bool failed() const { return !error_.empty(); }
  void Fail(std::string_view reason, std::string_view expected);
  void FailAt(const Token& at, std::string_view reason, std::string text);
  std::optional<int64_t> SignedNumber();
  std::string Name(std::string_view what);

  // Scopes: a name means its innermost declaration.
  void Declare(const std::string& name, const Var& var);
  void Declare(const std::string& name, const Buffer& buffer);
  void Leave(size_t mark);
  size_t Mark() const { return declared_.size(); }

  // Expressions.
  Expr ParseExpr();
  Deep Infix(int min_precedence);
  Deep Unary();
  Deep Primary();
  Deep Numeric(bool negative);
  Deep NumberOf(const Token& token, bool negative);
  Deep WordExpr();
  Deep FunctionLike(const Token& word);
  Deep BufferAccess(const Token& word);
  Deep Finish(ExprNode node, int height, const Token& at);
  std::vector<Expr> List(std::string_view close, int* height);

  // Statements.
  Stmt Body();
  std::vector<Stmt> Statements();
  Stmt Statement();
  Stmt ParseFor();
  Stmt ParseBlock();
  void ParseIters(StmtNode* block);
  Stmt ParseStore();
  Stmt ParseIf();
  Stmt ParseLet();
  Stmt ParseAlloc();
  Range ParseRange();
  std::vector<BufferRegion> Regions();
  Annotations ParseAnnotations();

  // Function.
  Buffer ParseBuffer(Role default_role);
  void ParseParams(Function* f);
  Buffer FindBuffer(const Token& word);

  struct Symbol {
    Var var;
    Buffer buffer;
  };
  struct Shadowed {
    std::string name;
    std::optional<Symbol> before;
  };

  Lexer lexer_;
  Token token_;
  std::string error_;
  int stmt_depth_ = 0;
  int expr_depth_ = 0;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<Shadowed> declared_;
};

// ------------------------------------------------------------------------------------------------
// tokens

Token Parser::Take() {
  Token taken = token_;
  if (failed()) return taken;
  token_ = lexer_.Next();
  if (token_.kind == TokenKind::kBad) Fail("character", "a token");
  return taken;
}

bool Parser::Accept(std::string_view text) {
  if (!Is(text)) return false;
  Take();
  return true;
}

bool Parser::Expect(std::string_view text) {
  if (Accept(text)) return true;
  Fail("syntax", support::StrCat("'", text, "'"));
  return false;
}

void Parser::Fail(std::string_view reason, std::string_view expected) {
  std::string found =
      token_.kind == TokenKind::kEnd ? "the end of the text" : support::Quote(token_.text, 40);
  FailAt(token_, reason, support::StrCat("expected ", expected, ", found ", found));
}

void Parser::FailAt(const Token& at, std::string_view reason, std::string text) {
  if (failed()) return;
  error_ = support::StrCat(reason, "\n", at.line, ":", at.column, ": ", text);
  token_ = Token();  // the end: every loop stops
}

std::optional<int64_t> Parser::SignedNumber() {
  bool negative = Accept("-");
  if (token_.kind == TokenKind::kNumber && token_.suffix.empty()) {
    std::string text = (negative ? "-" : "") + std::string(token_.text);
    if (std::optional<int64_t> value = support::ParseInt64(text)) {
      Take();
      return value;
    }
  }
  Fail("number", "an integer");
  return std::nullopt;
}

std::string Parser::Name(std::string_view what) {
  if (token_.kind == TokenKind::kWord && !IsReserved(token_.text)) return std::string(Take().text);
  Fail("name", what);
  return "";
}

void Parser::Declare(const std::string& name, const Var& var) {
  auto it = symbols_.find(name);
  declared_.push_back(
      {name, it == symbols_.end() ? std::nullopt : std::optional<Symbol>(it->second)});
  symbols_[name] = {var, nullptr};
}

void Parser::Declare(const std::string& name, const Buffer& buffer) {
  auto it = symbols_.find(name);
  declared_.push_back(
      {name, it == symbols_.end() ? std::nullopt : std::optional<Symbol>(it->second)});
  symbols_[name] = {nullptr, buffer};
}

void Parser::Leave(size_t mark) {
  while (declared_.size() > mark) {
    Shadowed& s = declared_.back();
    if (s.before) {
      symbols_[s.name] = *s.before;
    } else {
      symbols_.erase(s.name);
    }
    declared_.pop_back();
  }
}

// ------------------------------------------------------------------------------------------------
// expressions

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

// ------------------------------------------------------------------------------------------------
// statements

std::vector<Stmt> Parser::Statements() {
  std::vector<Stmt> stmts;
  while (!failed() && !Is("}") && token_.kind != TokenKind::kEnd) stmts.push_back(Statement());
  return stmts;
}

// Never null.
Stmt Parser::Body() {
  if (++stmt_depth_ > kMaxStmtDepth)
    FailAt(token_, "depth",
           "expected statements nested at most " + std::to_string(kMaxStmtDepth) + " deep");
  Expect("{");
  Stmt body = MakeSeq(Statements());
  Expect("}");
  --stmt_depth_;
  return body;
}

Stmt Parser::Statement() {
  if (Is("for")) return ParseFor();
  if (Is("block")) return ParseBlock();
  if (Is("if")) return ParseIf();
  if (Is("let")) return ParseLet();
  if (Is("alloc")) return ParseAlloc();
  if (Accept("eval")) {
    Expr value = ParseExpr();
    Expect(";");
    return MakeEvaluate(value);
  }
  return ParseStore();
}

Range Parser::ParseRange() {
  Expr min = Infix(kRangePrecedence).e;
  bool length = Accept("..+");
  if (!length) Expect("..");
  Token at = token_;
  Expr end = Infix(kRangePrecedence).e;
  if (length || IsInt(min, 0)) return {min, end};
  const int64_t *a = AsInt(min), *b = AsInt(end);
  int64_t extent = 0;
  if (a == nullptr || b == nullptr || min->dtype != end->dtype ||
      __builtin_sub_overflow(*b, *a, &extent)) {
    FailAt(at, "range", "expected constant ends for '..'; use 'min ..+ extent'");
    return {Int(0), Int(0)};
  }
  return {min, Int(extent, min->dtype)};
}

Stmt Parser::ParseFor() {
  Expect("for");
  Token at = token_;
  std::string name = Name("a loop variable");
  Expect("in");
  Range range = ParseRange();
  StmtNode node{.kind = StmtKind::kFor};
  if (token_.kind == TokenKind::kWord) {
    std::optional<ForKind> kind = ParseForKind(token_.text);
    if (!kind) Fail("loop_kind", "a kind of loop");
    if (kind) node.for_kind = *kind;
    Take();
  }
  if (Accept("@")) node.annotations = ParseAnnotations();
  if (!range.min->dtype.is_int() || range.min->dtype.is_vector() ||
      range.extent->dtype != range.min->dtype) {
    FailAt(at, "type", "expected a range of one integer type");
    range = {Int(0), Int(0)};
  }
  Var var = MakeVar(name, range.min->dtype);
  size_t mark = Mark();
  Declare(name, var);
  Stmt body = Body();
  Leave(mark);
  return MakeFor(var, range.min, range.extent, body, node.for_kind, node.annotations);
}

void Parser::ParseIters(StmtNode* block) {
  Expect("(");
  // Iteration variables come into scope after the last binding: bindings speak of the loops
  // outside.
  std::unordered_set<std::string> names;
  while (!failed() && !Is(")")) {
    if (!block->iters.empty()) Expect(",");
    Token at = token_;
    IterVar iter;
    std::string name = Name("an iteration variable");
    if (!names.insert(name).second)
      FailAt(at, "name", "expected different iteration variables, found " + name + " twice");
    Expect(":");
    std::optional<IterType> type = ParseIterType(token_.text);
    if (!type) Fail("iter_type", "spatial, reduce, sequential or opaque");
    if (type) iter.type = *type;
    Take();
    iter.domain = ParseRange();
    Expect("=");
    iter.binding = ParseExpr();
    if (!iter.domain.min->dtype.is_int() || iter.domain.min->dtype.is_vector())
      FailAt(at, "type", "expected an integer domain");
    iter.var = MakeVar(name, iter.domain.min->dtype);
    block->iters.push_back(std::move(iter));
  }
  Expect(")");
}

std::vector<BufferRegion> Parser::Regions() {
  std::vector<BufferRegion> regions;
  do {
    BufferRegion r{FindBuffer(Take()), {}};
    Expect("[");
    while (!failed() && !Is("]")) {
      if (!r.region.empty()) Expect(",");
      Range dim;
      dim.min = ParseExpr();
      Expect(":");
      dim.extent = ParseExpr();
      r.region.push_back(std::move(dim));
    }
    Expect("]");
    regions.push_back(std::move(r));
  } while (Accept(","));
  Expect(";");
  return regions;
}

Stmt Parser::ParseBlock() {
  Expect("block");
  StmtNode node{.kind = StmtKind::kBlock};
  if (token_.kind == TokenKind::kWord) node.name = token_.text;
  Name("a block name");
  ParseIters(&node);
  if (Accept("where")) {
    Expect("(");
    node.predicate = ParseExpr();
    Expect(")");
  }
  if (Accept("@")) node.annotations = ParseAnnotations();
  if (++stmt_depth_ > kMaxStmtDepth)
    FailAt(token_, "depth",
           "expected statements nested at most " + std::to_string(kMaxStmtDepth) + " deep");
  Expect("{");
  size_t mark = Mark();
  for (const IterVar& iter : node.iters) Declare(iter.var->name, iter.var);
  if (Accept("reads")) node.reads = Regions();
  if (Accept("writes")) node.writes = Regions();
  if (Accept("init")) node.init = Body();
  node.body = MakeSeq(Statements());
  Leave(mark);
  Expect("}");
  --stmt_depth_;
  return MakeBlock(std::move(node));
}

Stmt Parser::ParseStore() {
  Token at = Take();
  StmtNode node{.kind = StmtKind::kStore};
  node.buffer = FindBuffer(at);
  int height = 0;
  Expect("[");
  node.indices = List("]", &height);
  if (Accept("masked")) {
    Expect("(");
    node.mask = ParseExpr();
    Expect(")");
  }
  Expect("=");
  node.value = ParseExpr();
  Expect(";");
  std::string error = StoreErrorOf(node);
  if (!error.empty()) FailAt(at, "type", error);
  return std::make_shared<const StmtNode>(std::move(node));
}

Stmt Parser::ParseIf() {
  Token at = Take();
  Expect("(");
  Expr condition = ParseExpr();
  Expect(")");
  if (condition->dtype != kBool) {
    FailAt(at, "type", "expected a bool condition, found " + TypeName(condition->dtype));
    condition = Bool(true);
  }
  Stmt body = Body(), else_body;
  if (Accept("else")) else_body = Body();
  return MakeIf(condition, body, else_body);
}

Stmt Parser::ParseLet() {
  Expect("let");
  std::string name = Name("a variable");
  Expect("=");
  Expr value = ParseExpr();
  Var var = MakeVar(name, value->dtype);
  size_t mark = Mark();
  Declare(name, var);
  Stmt body = Body();
  Leave(mark);
  return MakeLet(var, value, body);
}

Stmt Parser::ParseAlloc() {
  Expect("alloc");
  Buffer buffer = ParseBuffer(Role::kIntermediate);
  size_t mark = Mark();
  Declare(buffer->name, buffer);
  Stmt body = Body();
  Leave(mark);
  return MakeAlloc(buffer, body);
}

Annotations Parser::ParseAnnotations() {
  Annotations annotations;
  Expect("{");
  while (!failed() && !Is("}")) {
    if (!annotations.empty()) Expect(",");
    Token at = Take();
    std::string key(at.text);
    bool ok =
        at.kind == TokenKind::kWord || (at.kind == TokenKind::kText && UnquoteText(at.text, &key));
    if (!ok) FailAt(at, "annotation", "expected a word or a quoted text as key");
    Expect("=");
    AnnotationValue value;
    if (token_.kind == TokenKind::kText) {
      Token text_at = Take();
      std::string text;
      if (!UnquoteText(text_at.text, &text))
        FailAt(text_at, "annotation", "malformed escape in a quoted text");
      value = text;
    } else if (std::optional<int64_t> number = SignedNumber()) {
      value = *number;
    }
    if (!annotations.emplace(key, value).second)
      FailAt(at, "annotation",
             "expected different keys, found " + support::Quote(key, 40) + " twice");
  }
  Expect("}");
  return annotations;
}

// ------------------------------------------------------------------------------------------------
// functions

// name: type[shape] role scope=... align=...
Buffer Parser::ParseBuffer(Role default_role) {
  BufferNode node;
  Token name_at = token_;
  node.name = Name("a buffer name");
  node.role = default_role;
  Expect(":");
  Token type_at = Take();
  if (!ParseType(type_at.text, &node.dtype) || node.dtype.is_vector()) {
    FailAt(type_at, "type",
           support::StrCat("expected an element type, found ", support::Quote(type_at.text, 40)));
  }
  Expect("[");
  int height = 0;
  node.shape = List("]", &height);
  for (const Expr& extent : node.shape) {
    if (extent->dtype != kI64)
      FailAt(type_at, "type", "expected extents of i64, found " + TypeName(extent->dtype));
  }
  if (token_.kind == TokenKind::kWord) {
    if (std::optional<Role> role = ParseRole(token_.text)) {
      node.role = *role;
      Take();
    }
  }
  if (Accept("scope")) {
    Expect("=");
    std::optional<Scope> scope = ParseScope(token_.text);
    if (!scope) Fail("scope", "global, shared or local");
    if (scope) node.scope = *scope;
    Take();
  }
  if (Accept("align")) {
    Expect("=");
    std::optional<int64_t> bytes = SignedNumber();
    if (bytes && (*bytes < 1 || *bytes > 4096))
      FailAt(name_at, "alignment", "expected 1 to 4096 bytes, found " + std::to_string(*bytes));
    if (bytes && !failed()) node.alignment = static_cast<int>(*bytes);
  }
  return std::make_shared<const BufferNode>(std::move(node));
}

void Parser::ParseParams(Function* f) {
  Expect("(");
  bool first = true;
  while (!failed() && !Is(")")) {
    if (!first) Expect(",");
    first = false;
    // A size is told from a buffer by the word after the colon.
    Token name_at = token_;
    Lexer ahead = lexer_;
    bool size =
        token_.kind == TokenKind::kWord && ahead.Next().text == ":" && ahead.Next().text == "size";
    if (size) {
      std::string name = Name("a size parameter");
      Expect(":");
      Expect("size");
      if (!f->params.empty()) FailAt(name_at, "params", "expected sizes before buffers");
      f->size_params.push_back(MakeVar(name));
      Declare(name, f->size_params.back());
    } else {
      f->params.push_back(ParseBuffer(Role::kInput));
      Declare(f->params.back()->name, f->params.back());
    }
  }
  Expect(")");
}

absl::StatusOr<Function> Parser::Parse() {
  Function f;
  Expect("fn");
  f.name = Name("a function name");
  ParseParams(&f);
  if (Accept("stage")) {
    Expect("=");
    std::optional<Stage> stage = ParseStage(token_.text);
    if (!stage) Fail("stage", "scheduled, loops or flat");
    if (stage) f.stage = *stage;
    Take();
  }
  if (Accept("attrs")) f.attrs = ParseAnnotations();
  Expect("{");
  // `alloc ...;` declares an intermediate of the function, `alloc ... {` is a statement.
  std::vector<Stmt> stmts;
  while (!failed() && Is("alloc")) {
    Expect("alloc");
    Buffer buffer = ParseBuffer(Role::kIntermediate);
    size_t mark = Mark();
    Declare(buffer->name, buffer);
    if (Accept(";")) {
      f.allocs.push_back(buffer);
      continue;
    }
    Stmt body = Body();
    Leave(mark);
    stmts.push_back(MakeAlloc(buffer, body));
    break;
  }
  std::vector<Stmt> rest = Statements();
  stmts.insert(stmts.end(), rest.begin(), rest.end());
  Expect("}");
  if (!failed() && token_.kind != TokenKind::kEnd) Fail("syntax", "the end of the text");
  if (failed()) {
    size_t split = error_.find('\n');
    return support::InvalidArgument("ir.parse." + error_.substr(0, split),
                                    error_.substr(split + 1));
  }
  f.body = MakeSeq(std::move(stmts));
  return f;
}

}  // namespace

absl::StatusOr<Function> ParseFunction(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return support::InvalidArgument(
        "ir.parse.size", "expected at most " + std::to_string(kMaxTextBytes) + " bytes, found " +
                             std::to_string(text.size()));
  }
  return Parser(text).Parse();
}

}  // namespace tilewright::ir
