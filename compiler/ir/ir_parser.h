// The parser of the IR text behind ParseFunction: recursive descent without exceptions. The first
// error stops everything: from then on every token reads as the end of the text. Nodes are made as
// written (no folding), so that printed text comes back the same. Internal to compiler/ir; one
// object per text, not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/text_lexer.h"

namespace tilewright::ir {

class Parser {
 public:
  // Trees are walked recursively everywhere: deeper ones than any real program are refused here.
  static constexpr int kMaxExprDepth = 1000;
  static constexpr int kMaxStmtDepth = 500;

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
  Stmt ParseCombine();
  std::vector<Var> CombinerVars(const std::vector<Stmt>& stores);
  Stmt ParseIf();
  Stmt ParseLet();
  Stmt ParseAlloc();
  Stmt ParseSync();
  Range ParseRange();
  std::vector<BufferRegion> Regions();
  Annotations ParseAnnotations();

  // Function.
  StorageAlign ParseStorageAlign();
  Swizzle ParseSwizzle();
  void ParseNumbers(std::string_view what, std::span<int64_t> numbers);
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

}  // namespace tilewright::ir
