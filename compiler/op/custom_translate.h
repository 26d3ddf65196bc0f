// Expressions of custom operators → expressions of the tensor IR. Inside of custom operators. One
// Translator per element; not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/custom_size.h"
#include "compiler/op/custom_text.h"

namespace tilewright::op::custom {

// What an expression is: an element of a type, or a number that takes the type of what it meets.
struct Term {
  enum class Kind : uint8_t { kTyped, kInteger, kNumber } kind = Kind::kTyped;
  ir::Expr expr = nullptr;  // kTyped
  int64_t integer = 0;      // kInteger
  double number = 0;        // kNumber
  // Of a typed integer: between which numbers it is, both included, where that is known.
  MaybeSize low = {}, high = {};
};

struct Translator {
  struct Tensor {
    TensorType type;
    std::function<ir::Expr(std::vector<ir::Expr>)> read;
  };
  struct Index {
    ir::Expr var;
    Dim extent;
  };

  // What names mean.
  std::map<std::string, Tensor> tensors;
  std::map<std::string, Index> axes;
  std::vector<Index> leading;  // the axes of `..`
  std::map<std::string, Dim> dims;
  std::map<std::string, ir::Expr> values;  // typed ones
  std::map<std::string, ir::DType> types;  // type variables
  bool wide = false;                       // f32 means f64
  std::function<ir::Expr(const Dim&)> size;

  // The expression as an element of this type. INVALID_ARGUMENT op.custom.type, .name.
  absl::StatusOr<ir::Expr> Element(const NodeRef& node, ir::DType type);
  // The same where the type follows from the expression.
  absl::StatusOr<ir::Expr> Element(const NodeRef& node);

 private:
  using Hint = std::optional<ir::DType>;
  absl::StatusOr<Term> Translate(const NodeRef& node, Hint hint);
  absl::StatusOr<Term> Name(const NodeRef& node) const;
  absl::StatusOr<Term> Access(const NodeRef& node);
  absl::StatusOr<ir::Expr> Position(const NodeRef& node, const Dim& extent);
  absl::StatusOr<Term> Operation(const NodeRef& node, Hint hint);
  absl::StatusOr<Term> Call(const NodeRef& node, Hint hint);
  absl::StatusOr<Term> Choice(const NodeRef& node, Hint hint);
  absl::StatusOr<Term> CastTo(ir::DType type, const NodeRef& node);
  // Both as elements of one type; the hint is for two numbers without types.
  absl::Status Unify(const NodeRef& node, Term* a, Term* b, Hint hint) const;
  absl::StatusOr<ir::Expr> AsType(const NodeRef& node, const Term& term, ir::DType type) const;
  void Assume(const NodeRef& condition);

  // What the conditions around say of expressions, by their text: e >= 0, and e < a size.
  struct Facts {
    bool from_zero = false;
    std::vector<Dim> below = {};
  };
  std::map<std::string, Facts> facts_;
};

// A type variable or an element type; f32 is f64 where `wide`.
std::optional<ir::DType> TypeOfWord(std::string_view word,
                                    const std::map<std::string, ir::DType>& types, bool wide);

}  // namespace tilewright::op::custom
