#include "deploy/support/dim.h"

#include <algorithm>
#include <cctype>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::support {

namespace {

constexpr int kMaxDepth = 16;  // of parentheses, in text that may be hostile
constexpr size_t kMaxTerms = 64;

// Coefficients of hostile text wrap; Evaluate and the types of what is specialised stay checked.
int64_t Wrapped(int64_t a, int64_t b, char op) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == '+' ? x + y : x * y);
}

absl::StatusOr<int64_t> Overflow() {
  return InvalidArgument("dim.overflow", "expected sizes of 64 bits, found larger ones");
}

// Rounded down.
int64_t FloorQuotient(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

Dim Dim::Of(Terms terms) {
  Dim dim;
  if (const auto it = terms.find({}); it != terms.end()) {
    dim.constant_ = it->second;
    terms.erase(it);
  }
  if (!terms.empty()) dim.terms_ = std::make_shared<const Terms>(std::move(terms));
  return dim;
}

Dim Dim::Variable(std::string name) { return Of({{{{std::move(name), nullptr, 1}}, 1}}); }

void Dim::Add(Terms* terms, const Factors& product, int64_t coefficient) {
  int64_t& term = (*terms)[product];
  term = Wrapped(term, coefficient, '+');
  if (term == 0) terms->erase(product);
}

Dim::Terms Dim::terms() const {
  Terms terms;
  if (terms_ != nullptr) terms = *terms_;
  if (constant_ != 0) terms[{}] = constant_;
  return terms;
}

int64_t Dim::value() const {
  TW_CHECK(terms_ == nullptr) << ToText();
  return constant_;
}

bool Dim::operator==(const Dim& other) const {
  if (constant_ != other.constant_ || terms_ == other.terms_) return constant_ == other.constant_;
  return terms_ != nullptr && other.terms_ != nullptr && *terms_ == *other.terms_;
}

std::string Dim::variable() const {
  if (terms_ == nullptr || constant_ != 0 || terms_->size() != 1) return "";
  const auto& [product, coefficient] = *terms_->begin();
  const bool alone = coefficient == 1 && product.size() == 1 && product[0].numerator == nullptr;
  return alone ? product[0].text : "";
}

std::set<std::string> Dim::variables() const {
  std::set<std::string> names;
  if (terms_ == nullptr) return names;
  for (const auto& [product, coefficient] : *terms_) {
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
  if (other.terms_ == nullptr || terms_ == nullptr) {
    Dim sum = terms_ == nullptr ? other : *this;
    sum.constant_ = Wrapped(constant_, other.constant_, '+');
    return sum;
  }
  Terms sum = terms();
  for (const auto& [product, coefficient] : other.terms()) Add(&sum, product, coefficient);
  return Of(std::move(sum));
}

Dim Dim::operator-(const Dim& other) const { return *this + other * Dim(-1); }

Dim Dim::operator*(const Dim& other) const {
  if (terms_ == nullptr && other.terms_ == nullptr) {
    return Dim(Wrapped(constant_, other.constant_, '*'));
  }
  Terms result;
  const Terms factors = other.terms();
  for (const auto& [a, m] : terms()) {
    for (const auto& [b, n] : factors) {
      Factors product = a;
      product.insert(product.end(), b.begin(), b.end());
      std::sort(product.begin(), product.end());
      Add(&result, product, Wrapped(m, n, '*'));
    }
  }
  return Of(std::move(result));
}

std::optional<Dim> Dim::Product(std::span<const Dim> factors) {
  Dim product(1);
  for (const Dim& factor : factors) {
    product = product * factor;
    if (product.terms().size() > kMaxTerms) return std::nullopt;
  }
  return product;
}

Dim Dim::FloorDiv(int64_t divisor) const {
  TW_CHECK(divisor > 0) << ToText();
  if (divisor == 1) return *this;
  // Terms that the divisor divides leave the quotient; of the rest only the remainder stays inside.
  const int64_t whole = FloorQuotient(constant_, divisor);
  if (terms_ == nullptr) return Dim(whole);
  Terms outside, inside;
  outside[{}] = whole;
  inside[{}] = Wrapped(constant_, Wrapped(-whole, divisor, '*'), '+');
  for (const auto& [product, coefficient] : *terms_) {
    const bool divides = coefficient % divisor == 0;
    Add(divides ? &outside : &inside, product, divides ? coefficient / divisor : coefficient);
  }
  const Dim rest = Of(std::move(inside)), quotient = Of(std::move(outside));
  if (rest.constant()) return quotient;  // 0 <= remainder < divisor
  const std::string text = StrCat("(", rest.ToText(), ") / ", divisor);
  return quotient + Of({{{{text, std::make_shared<const Dim>(rest), divisor}}, 1}});
}

std::optional<Dim> Dim::DivideExactly(const Dim& divisor) const {
  const Terms divisors = divisor.terms();
  if (divisors.size() != 1) return std::nullopt;
  const auto& [by, factor] = *divisors.begin();
  if (factor < 1) return std::nullopt;
  Terms result;
  for (const auto& [product, coefficient] : terms()) {
    if (coefficient % factor != 0 ||
        !std::includes(product.begin(), product.end(), by.begin(), by.end())) {
      return std::nullopt;
    }
    Factors rest;
    std::set_difference(product.begin(), product.end(), by.begin(), by.end(),
                        std::back_inserter(rest));
    Add(&result, rest, coefficient / factor);
  }
  return Of(std::move(result));
}

Dim Dim::Substitute(const std::map<std::string, Dim>& values) const {
  if (terms_ == nullptr) return *this;
  Dim result(constant_);
  for (const auto& [product, coefficient] : *terms_) {
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
  if (terms_ == nullptr) return constant_;
  int64_t total = constant_;
  for (const auto& [product, coefficient] : *terms_) {
    int64_t term = coefficient;
    for (const Atom& atom : product) {
      int64_t value;
      if (atom.numerator != nullptr) {
        TW_ASSIGN(const int64_t numerator, atom.numerator->Evaluate(sizes));
        value = FloorQuotient(numerator, atom.divisor);
      } else {
        auto it = sizes.find(atom.text);
        if (it == sizes.end()) {
          return InvalidArgument("dim.unknown",
                                 StrCat("expected a size for ", atom.text, ", found none"));
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
  if (terms_ == nullptr) return StrCat(constant_);
  std::string text;
  auto append = [&](const Factors& product, int64_t coefficient) {
    const uint64_t bits = static_cast<uint64_t>(coefficient);
    const uint64_t size = coefficient < 0 ? 0 - bits : bits;
    if (!text.empty()) {
      text += coefficient < 0 ? " - " : " + ";
    } else if (coefficient < 0) {
      text += "-";
    }
    std::vector<std::string> factors;
    if (size != 1 || product.empty()) factors.push_back(StrCat(size));
    for (const Atom& atom : product) factors.push_back(atom.text);
    text += Join(factors, "*");
  };
  for (const auto& [product, coefficient] : *terms_) append(product, coefficient);
  if (constant_ != 0) append({}, constant_);
  return text;
}

std::string DimsText(const std::vector<Dim>& dims) {
  std::vector<std::string> parts;
  for (const Dim& dim : dims) parts.push_back(dim.ToText());
  return StrCat("[", Join(parts, ","), "]");
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
      if (sum.terms().size() > kMaxTerms) return Bad("fewer terms");
    }
  }
  std::string_view rest() const { return text_; }

 private:
  absl::Status Bad(std::string_view expected) const {
    return InvalidArgument("dim.syntax",
                           StrCat("expected ", expected, ", found ", Quote(text_.substr(0, 20))));
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
    const auto value = n <= 12 ? ParseInt64(text_.substr(0, n)) : std::nullopt;
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
      if (product.terms().size() > kMaxTerms) return Bad("fewer terms");
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

absl::StatusOr<Dim> Dim::Parse(std::string_view text) {
  std::string_view rest;
  TW_ASSIGN(Dim dim, Parse(text, &rest));
  if (rest.empty()) return dim;
  return InvalidArgument("dim.syntax",
                         StrCat("expected the end of the expression, found ", Quote(rest, 20)));
}

}  // namespace tilewright::support
