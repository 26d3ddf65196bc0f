// A dimension as an expression over size variables ("N", "2*N + 1", "(N + 1) / 2"): a polynomial
// with whole coefficients whose atoms are variables and floor quotients by constants. Canonical:
// equal polynomials are equal values with equal text. A constant is one number and allocates
// nothing. Immutable value; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::support {

using Sizes = std::map<std::string, int64_t>;

class Dim {
 public:
  Dim(int64_t value = 0) : constant_(value) {}  // NOLINT: a number is a dimension
  static Dim Variable(std::string name);
  // What ToText writes, in any spacing: sums of products of numbers, variables and (…) with `/ k`
  // behind a factor. dim.syntax; `*rest` gets what follows the longest expression.
  static absl::StatusOr<Dim> Parse(std::string_view text, std::string_view* rest);
  // The same for a text that is one expression and nothing else.
  static absl::StatusOr<Dim> Parse(std::string_view text);

  std::optional<int64_t> constant() const {  // nothing where a variable occurs
    return terms_ == nullptr ? std::optional<int64_t>(constant_) : std::nullopt;
  }
  bool is_constant() const { return terms_ == nullptr; }
  int64_t value() const;  // REQUIRES: is_constant()
  // The variable that the dimension is; "" for all others.
  std::string variable() const;
  std::set<std::string> variables() const;

  Dim operator+(const Dim& other) const;
  Dim operator-(const Dim& other) const;
  Dim operator*(const Dim& other) const;
  // Returns nullopt if the product has more terms than Parse takes: it may grow with the power of
  // the number of factors.
  static std::optional<Dim> Product(std::span<const Dim> factors);
  // Rounded down. REQUIRES: divisor > 0.
  Dim FloorDiv(int64_t divisor) const;
  // The quotient where `divisor` is one product, of a factor > 0, that divides every term.
  std::optional<Dim> DivideExactly(const Dim& divisor) const;
  Dim Substitute(const std::map<std::string, Dim>& values) const;

  // The expression in another algebra T, which has + and *: `number` makes a T of an integer,
  // `variable` of a name, `quotient` of a T and the number that divides it.
  template <typename T, typename Number, typename Variable, typename Quotient>
  T Fold(const Number& number, const Variable& variable, const Quotient& quotient) const {
    std::optional<T> sum;
    for (const auto& [product, coefficient] : terms_ == nullptr ? Terms() : *terms_) {
      std::optional<T> term;
      if (coefficient != 1) term = number(coefficient);
      for (const Atom& atom : product) {
        T factor =
            atom.numerator == nullptr
                ? variable(atom.text)
                : quotient(atom.numerator->Fold<T>(number, variable, quotient), atom.divisor);
        term = term ? *term * factor : factor;
      }
      sum = sum ? *sum + *term : *term;
    }
    if (!sum) return number(constant_);
    return constant_ == 0 ? *sum : *sum + number(constant_);
  }

  // dim.unknown where a variable has no size, dim.overflow.
  absl::StatusOr<int64_t> Evaluate(const Sizes& sizes) const;
  std::string ToText() const;
  bool operator==(const Dim& other) const;

 private:
  // A variable, or floor(numerator / divisor) where there is one.
  struct Atom {
    std::string text;
    std::shared_ptr<const Dim> numerator;
    int64_t divisor = 1;
    bool operator<(const Atom& other) const { return text < other.text; }
    bool operator==(const Atom& other) const { return text == other.text; }
  };
  using Factors = std::vector<Atom>;  // sorted; empty = 1
  using Terms = std::map<Factors, int64_t>;

  static Dim Of(Terms terms);
  static void Add(Terms* terms, const Factors& product, int64_t coefficient);
  // All terms, the constant one too.
  Terms terms() const;
  friend class DimParser;

  int64_t constant_ = 0;
  std::shared_ptr<const Terms> terms_;  // those with variables, if any; no zero coefficients
};

std::string DimsText(const std::vector<Dim>& dims);  // "[N,128]"

}  // namespace tilewright::support
