#include "compiler/ir/text_lexer.h"

#include <algorithm>

#include "compiler/ir/text_words.h"

namespace tilewright::ir {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Longest first.
constexpr std::string_view kPunctuation[] = {"..+", "..", "==", "!=", "<=", ">=", "&&", "||", "(",
                                             ")",   "[",  "]",  "{",  "}",  ",",  ";",  ":",  "=",
                                             "+",   "-",  "*",  "/",  "%",  "<",  ">",  "!",  "@"};

}  // namespace

void Lexer::Advance(size_t n) {
  for (size_t i = 0; i < n; ++i, ++position_) {
    bool line_break = text_[position_] == '\n';
    line_ += line_break;
    column_ = line_break ? 1 : column_ + 1;
  }
}

void Lexer::SkipBlanks() {
  while (position_ < text_.size()) {
    char c = text_[position_];
    if (c == '#') {  // a comment to the end of the line
      size_t end = text_.find('\n', position_);
      Advance((end == std::string_view::npos ? text_.size() : end) - position_);
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      Advance(1);
    } else {
      return;
    }
  }
}

Token Lexer::Number(Token token) {
  size_t i = position_;
  auto digits = [&] {
    while (i < text_.size() && IsDigit(text_[i])) ++i;
  };
  digits();
  // One point may follow, but two are the dots of a range.
  if (i + 1 < text_.size() && text_[i] == '.' && text_[i + 1] != '.') {
    ++i;
    digits();
  }
  if (i < text_.size() && text_[i] == 'e') {
    size_t mark = i++;
    if (i < text_.size() && (text_[i] == '+' || text_[i] == '-')) ++i;
    size_t first = i;
    digits();
    if (i == first) i = mark;  // not an exponent
  }
  size_t end = i;
  while (i < text_.size() && IsWordChar(text_[i])) ++i;
  token.kind = TokenKind::kNumber;
  token.text = text_.substr(position_, end - position_);
  token.suffix = text_.substr(end, i - end);
  Advance(i - position_);
  return token;
}

Token Lexer::Quoted(Token token) {
  size_t i = position_ + 1;
  while (i < text_.size() && text_[i] != '"' && text_[i] != '\n') i += text_[i] == '\\' ? 2 : 1;
  if (i >= text_.size() || text_[i] != '"') {
    token.kind = TokenKind::kBad;
    token.text = text_.substr(position_, 1);
    return token;
  }
  token.kind = TokenKind::kText;
  token.text = text_.substr(position_, i + 1 - position_);
  Advance(i + 1 - position_);
  return token;
}

Token Lexer::Next() {
  SkipBlanks();
  Token token;
  token.line = line_;
  token.column = column_;
  if (position_ >= text_.size()) return token;
  char c = text_[position_];
  if (IsDigit(c)) return Number(token);
  if (c == '"') return Quoted(token);
  if (IsWordStart(c)) {
    size_t i = position_;
    // A point joins words (`vta.inp`); two are a range.
    auto joins = [&] {
      return text_[i] == '.' && i + 1 < text_.size() && IsWordChar(text_[i + 1]);
    };
    while (i < text_.size() && (IsWordChar(text_[i]) || joins())) ++i;
    token.kind = TokenKind::kWord;
    token.text = text_.substr(position_, i - position_);
    Advance(i - position_);
    return token;
  }
  for (std::string_view p : kPunctuation) {
    if (text_.substr(position_, p.size()) != p) continue;
    token.kind = TokenKind::kPunctuation;
    token.text = text_.substr(position_, p.size());
    Advance(p.size());
    return token;
  }
  token.kind = TokenKind::kBad;
  token.text = text_.substr(position_, 1);
  return token;
}

bool UnquoteText(std::string_view quoted, std::string* text) {
  text->clear();
  for (size_t i = 1; i + 1 < quoted.size(); ++i) {
    if (quoted[i] != '\\') {
      *text += quoted[i];
      continue;
    }
    if (++i + 1 >= quoted.size()) return false;
    if (quoted[i] == '"' || quoted[i] == '\\') {
      *text += quoted[i];
    } else if (quoted[i] == 'x' && i + 3 < quoted.size()) {
      int high = HexDigit(quoted[i + 1]), low = HexDigit(quoted[i + 2]);
      if (high < 0 || low < 0) return false;
      *text += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace tilewright::ir
