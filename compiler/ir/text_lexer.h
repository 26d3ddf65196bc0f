// Tokens of the IR text. Internal to compiler/ir. Holds a view of the text, which must outlive it;
// not thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

enum class TokenKind : uint8_t { kEnd, kWord, kNumber, kText, kPunctuation, kBad };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;    // the word, the digits of a number (without its type), the raw quoted
                            // text, the punctuation
  std::string_view suffix;  // the type of a number, empty for none
  int line = 1, column = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  // kEnd for ever at the end; kBad with the offending character.
  Token Next();

 private:
  void SkipBlanks();
  void Advance(size_t n);
  Token Number(Token token);
  Token Quoted(Token token);

  std::string_view text_;
  size_t position_ = 0;
  int line_ = 1, column_ = 1;
};

// The content of a quoted token; false when an escape is malformed.
bool UnquoteText(std::string_view quoted, std::string* text);

}  // namespace tilewright::ir
