// Tokens, statements and functions of the IR text; ir_parser_expr.cc has the expressions. The
// grammar is in compiler/ir/README.md.
#include "compiler/ir/ir_parser.h"

#include <unordered_set>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;

}  // namespace

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
  bool name = token_.kind == TokenKind::kWord && !IsReserved(token_.text);
  if (name && IsPlainWord(token_.text)) return std::string(Take().text);
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
  if (Is("combine")) return ParseCombine();
  if (Accept("eval")) {
    Expr value = ParseExpr();
    Expect(";");
    return MakeEvaluate(value);
  }
  if (Accept("async")) return MakeAsync(Body());
  if (Is("sync")) return ParseSync();
  return ParseStore();
}

Stmt Parser::ParseSync() {
  Expect("sync");
  Token at = token_;
  std::optional<SyncKind> kind = ParseSyncKind(token_.text);
  if (!kind) Fail("sync", "barrier, commit or wait");
  Take();
  std::optional<int64_t> pending = 0;
  if (kind == SyncKind::kWait) pending = SignedNumber();
  if (pending && *pending < 0)
    FailAt(at, "sync", "expected at least 0 groups in flight, found " + std::to_string(*pending));
  Expect(";");
  return failed() ? MakeSync(SyncKind::kBarrier) : MakeSync(*kind, *pending);
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

// The variables of one side of a combiner: declared with the types of the tuple's elements.
std::vector<Var> Parser::CombinerVars(const std::vector<Stmt>& stores) {
  std::vector<Var> vars;
  Expect("(");
  while (!failed() && !Is(")")) {
    if (!vars.empty()) Expect(",");
    Token at = token_;
    std::string name = Name("a variable");
    if (vars.size() == stores.size()) {
      FailAt(at, "combiner", "expected a variable for each element, found another");
      break;
    }
    vars.push_back(MakeVar(name, stores[vars.size()]->buffer->dtype));
    Declare(name, vars.back());
  }
  Expect(")");
  return vars;
}

Stmt Parser::ParseCombine() {
  Token at = Take();
  auto combiner = std::make_shared<TupleCombiner>();
  combiner->ordered = Accept("ordered");
  std::vector<StmtNode> stores;
  Expect("(");
  while (!failed() && !Is(")")) {
    if (!stores.empty()) Expect(",");
    StmtNode store{.kind = StmtKind::kStore};
    store.buffer = FindBuffer(Take());
    int height = 0;
    Expect("[");
    store.indices = List("]", &height);
    stores.push_back(std::move(store));
  }
  Expect(")");
  Expect("with");
  Expect("(");
  int height = 0;
  std::vector<Expr> values = List(")", &height);
  if (values.size() != stores.size()) {
    FailAt(at, "combiner",
           "expected a value for each element, found " + std::to_string(values.size()) + " for " +
               std::to_string(stores.size()));
    return MakeSeq({});
  }
  StmtNode node{.kind = StmtKind::kCombine};
  for (size_t i = 0; i < stores.size(); ++i) {
    stores[i].value = values[i];
    node.stmts.push_back(std::make_shared<const StmtNode>(std::move(stores[i])));
  }
  Expect("by");
  size_t mark = Mark();
  combiner->lhs = CombinerVars(node.stmts);
  Expect(",");
  combiner->rhs = CombinerVars(node.stmts);
  Expect("=");
  Expect("(");
  combiner->results = List(")", &height);
  Leave(mark);
  Expect(";");
  if (failed()) return MakeSeq({});
  node.combiner = std::move(combiner);
  std::string error = CombineErrorOf(node);
  if (!error.empty()) {
    FailAt(at, "type", error);
    return MakeSeq({});
  }
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

// =A,B,… of how rows lie. Whether the numbers fit the buffer, the verifier checks.
void Parser::ParseNumbers(std::string_view what, std::span<int64_t> numbers) {
  Expect("=");
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) Expect(",");
    Token at = token_;
    std::optional<int64_t> number = SignedNumber();
    if (number && (*number < 0 || *number > kMaxAlignFactor))
      FailAt(at, what, support::StrCat("expected 0 to ", kMaxAlignFactor, ", found ", *number));
    if (number && !failed()) numbers[i] = *number;
  }
}

// storage_align=INSIDE,FACTOR,OFFSET
StorageAlign Parser::ParseStorageAlign() {
  int64_t numbers[3] = {};
  ParseNumbers("storage_align", numbers);
  return {static_cast<int>(numbers[0]), numbers[1], numbers[2]};
}

// swizzle=INSIDE,VECTOR
Swizzle Parser::ParseSwizzle() {
  int64_t numbers[2] = {};
  ParseNumbers("swizzle", numbers);
  return {static_cast<int>(numbers[0]), numbers[1]};
}

// name: type[shape] role scope=... align=... storage_align=... swizzle=...
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
    if (!scope) Fail("scope", "a scope (scopes.def)");
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
  if (Accept("storage_align")) node.storage_align = ParseStorageAlign();
  if (Accept("swizzle")) node.swizzle = ParseSwizzle();
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

absl::StatusOr<Function> ParseFunction(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return support::InvalidArgument(
        "ir.parse.size", "expected at most " + std::to_string(kMaxTextBytes) + " bytes, found " +
                             std::to_string(text.size()));
  }
  return Parser(text).Parse();
}

}  // namespace tilewright::ir
