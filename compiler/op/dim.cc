#include "compiler/op/dim.h"

#include <algorithm>
#include <cctype>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {

using support::StrCat;

namespace {

constexpr int kMaxDepth = 16;  // of parentheses, in text that may be hostile
constexpr size_t kMaxTerms = 64;

// Coefficients of hostile text wrap; Evaluate and the types of what is specialised stay checked.
int64_t Wrapped(int64_t a, int64_t b, char op) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == '+' ? x + y : x * y);
}

absl::StatusOr<int64_t> Overflow() {
  return support::InvalidArgument("op.dim.overflow",
                                  "expected sizes of 64 bits, found larger ones");
}

}  // namespace

Dim::Dim(int64_t value) {
  if (value != 0) terms_[{}] = value;
}

Dim Dim::Of(Product product, int64_t coefficient) {
  Dim dim;
  std::sort(product.begin(), product.end());
  dim.Add(product, coefficient);
  return dim;
}

Dim Dim::Variable(std::string name) { return Of({{std::move(name), nullptr, 1}}, 1); }

void Dim::Add(const Product& product, int64_t coefficient) {
  int64_t& term = terms_[product];
  term = Wrapped(term, coefficient, '+');
  if (term == 0) terms_.erase(product);
}

std::optional<int64_t> Dim::constant() const {
  if (terms_.empty()) return 0;
  if (terms_.size() > 1 || !terms_.begin()->first.empty()) return std::nullopt;
  return terms_.begin()->second;
}

std::string Dim::variable() const {
  if (terms_.size() != 1 || terms_.begin()->second != 1) return "";
  const Product& product = terms_.begin()->first;
  return product.size() == 1 && product[0].numerator == nullptr ? product[0].text : "";
}

std::set<std::string> Dim::variables() const {
  std::set<std::string> names;
  for (const auto& [product, coefficient] : terms_) {
    for (const Atom& atom : product) {
      if (atom.numerator == nullptr) {
        names.insert(atom.text);
      } else {
        names.merge(atom.numerator->variables());
      }
    }
  }
  return names;
}

Dim Dim::operator+(const Dim& other) const {
  Dim sum = *this;
  for (const auto& [product, coefficient] : other.terms_) sum.Add(product, coefficient);
  return sum;
}

Dim Dim::operator-(const Dim& other) const { return *this + other * Dim(-1); }

Dim Dim::operator*(const Dim& other) const {
  Dim result;
  for (const auto& [a, m] : terms_) {
    for (const auto& [b, n] : other.terms_) {
      Product product = a;
      product.insert(product.end(), b.begin(), b.end());
      std::sort(product.begin(), product.end());
      result.Add(product, Wrapped(m, n, '*'));
    }
  }
  return result;
}

Dim Dim::FloorDiv(int64_t divisor) const {
  TW_CHECK(divisor > 0) << ToText();
  if (divisor == 1) return *this;
  // Terms that the divisor divides leave the quotient; of the rest only the remainder stays inside.
  Dim outside, inside;
  for (const auto& [product, coefficient] : terms_) {
    int64_t quotient = coefficient / divisor;
    if (product.empty() && coefficient % divisor < 0) --quotient;
    if (coefficient % divisor != 0 && !product.empty()) quotient = 0;
    outside.Add(product, quotient);
    inside.Add(product, Wrapped(coefficient, Wrapped(-quotient, divisor, '*'), '+'));
  }
  if (inside.constant()) return outside;  // 0 <= remainder < divisor
  const std::string text = StrCat("(", inside.ToText(), ") / ", divisor);
  return outside + Of({{text, std::make_shared<const Dim>(inside), divisor}}, 1);
}

std::optional<Dim> Dim::DivideExactly(const Dim& divisor) const {
  if (divisor.terms_.size() != 1) return std::nullopt;
  const auto& [by, factor] = *divisor.terms_.begin();
  Dim result;
  for (const auto& [product, coefficient] : terms_) {
    if (coefficient % factor != 0 ||
        !std::includes(product.begin(), product.end(), by.begin(), by.end())) {
      return std::nullopt;
    }
    Product rest;
    std::set_difference(product.begin(), product.end(), by.begin(), by.end(),
                        std::back_inserter(rest));
    result.Add(rest, coefficient / factor);
  }
  return result;
}

Dim Dim::Substitute(const std::map<std::string, Dim>& values) const {
  Dim result;
  for (const auto& [product, coefficient] : terms_) {
    Dim term(coefficient);
    for (const Atom& atom : product) {
      if (atom.numerator != nullptr) {
        term = term * atom.numerator->Substitute(values).FloorDiv(atom.divisor);
        continue;
      }
      auto it = values.find(atom.text);
      term = term * (it == values.end() ? Variable(atom.text) : it->second);
    }
    result = result + term;
  }
  return result;
}

absl::StatusOr<int64_t> Dim::Evaluate(const Sizes& sizes) const {
  int64_t total = 0;
  for (const auto& [product, coefficient] : terms_) {
    int64_t term = coefficient;
    for (const Atom& atom : product) {
      int64_t value;
      if (atom.numerator != nullptr) {
        TW_ASSIGN(const int64_t numerator, atom.numerator->Evaluate(sizes));
        value = numerator / atom.divisor - (numerator % atom.divisor < 0 ? 1 : 0);
      } else {
        auto it = sizes.find(atom.text);
        if (it == sizes.end()) {
          return support::InvalidArgument(
              "op.dim.unknown", StrCat("expected a size for ", atom.text, ", found none"));
        }
        value = it->second;
      }
      if (__builtin_mul_overflow(term, value, &term)) return Overflow();
    }
    if (__builtin_add_overflow(total, term, &total)) return Overflow();
  }
  return total;
}

std::string Dim::ToText() const {
  // Constants last.
  std::string text;
  auto append = [&](const Product& product, int64_t coefficient) {
    const int64_t size = coefficient < 0 ? -coefficient : coefficient;
    if (!text.empty()) {
      text += coefficient < 0 ? " - " : " + ";
    } else if (coefficient < 0) {
      text += "-";
    }
    std::vector<std::string> factors;
    if (size != 1 || product.empty()) factors.push_back(StrCat(size));
    for (const Atom& atom : product) factors.push_back(atom.text);
    text += support::Join(factors, "*");
  };
  for (const auto& [product, coefficient] : terms_) {
    if (!product.empty()) append(product, coefficient);
  }
  const auto constant_term = terms_.find({});
  if (constant_term != terms_.end()) append({}, constant_term->second);
  return text.empty() ? "0" : text;
}

std::string DimsText(const std::vector<Dim>& dims) {
  std::vector<std::string> parts;
  for (const Dim& dim : dims) parts.push_back(dim.ToText());
  return StrCat("[", support::Join(parts, ","), "]");
}

// Sum := ['-'] Product {('+'|'-') Product}; Product := Factor {'*' Factor};
// Factor := (number | name | '(' Sum ')') ['/' number]
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Dim> Sum(int depth = 0) {
    if (depth > kMaxDepth) return Bad("fewer parentheses");
    const bool negative = Accept('-');
    TW_ASSIGN(Dim sum, Multiplied(depth));
    if (negative) sum = sum * Dim(-1);
    while (true) {
      const bool plus = Accept('+'), minus = !plus && Accept('-');
      if (!plus && !minus) return sum;
      TW_ASSIGN(Dim next, Multiplied(depth));
      sum = plus ? sum + next : sum - next;
      if (sum.terms_.size() > kMaxTerms) return Bad("fewer terms");
    }
  }
  std::string_view rest() const { return text_; }

 private:
  absl::Status Bad(std::string_view expected) const {
    return support::InvalidArgument("op.dim.syntax", StrCat("expected ", expected, ", found ",
                                                            support::Quote(text_.substr(0, 20))));
  }
  void Skip() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool Accept(char c) {
    Skip();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  absl::StatusOr<int64_t> Number() {
    Skip();
    size_t n = 0;
    while (n < text_.size() && std::isdigit(static_cast<unsigned char>(text_[n]))) ++n;
    // Small enough that products of a few stay far from overflow.
    const auto value = n <= 12 ? support::ParseInt64(text_.substr(0, n)) : std::nullopt;
    if (!value) return Bad("a number");
    text_.remove_prefix(n);
    return *value;
  }
  absl::StatusOr<Dim> Multiplied(int depth) {
    TW_ASSIGN(Dim product, Factor(depth));
    for (int factors = 1; Accept('*'); ++factors) {
      if (factors > 4) return Bad("fewer factors");
      TW_ASSIGN(Dim next, Factor(depth));
      product = product * next;
      if (product.terms_.size() > kMaxTerms) return Bad("fewer terms");
    }
    return product;
  }
  absl::StatusOr<Dim> Factor(int depth) {
    Dim factor;
    Skip();
    if (Accept('(')) {
      TW_ASSIGN(factor, Sum(depth + 1));
      if (!Accept(')')) return Bad("a closing parenthesis");
    } else if (!text_.empty() && std::isdigit(static_cast<unsigned char>(text_[0]))) {
      TW_ASSIGN(const int64_t value, Number());
      factor = Dim(value);
    } else {
      size_t n = 0;
      while (n < text_.size() &&
             (std::isalnum(static_cast<unsigned char>(text_[n])) || text_[n] == '_')) {
        ++n;
      }
      if (n == 0 || n > 64) return Bad("a number, a name or a parenthesis");
      factor = Dim::Variable(std::string(text_.substr(0, n)));
      text_.remove_prefix(n);
    }
    if (!Accept('/')) return factor;
    TW_ASSIGN(const int64_t divisor, Number());
    if (divisor < 1) return Bad("a divisor above zero");
    return factor.FloorDiv(divisor);
  }

  std::string_view text_;
};

absl::StatusOr<Dim> Dim::Parse(std::string_view text, std::string_view* rest) {
  DimParser parser(text);
  TW_ASSIGN(Dim dim, parser.Sum());
  *rest = parser.rest();
  return dim;
}

}  // namespace tilewright::op
