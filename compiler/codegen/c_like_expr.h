// Expressions of c_like: IR expressions as C text, one lane at a time or as vectors. Internal to
// compiler/codegen. One object per text; not thread-safe.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "compiler/codegen/c_like.h"

namespace tilewright::codegen {

class CExpressions {
 public:
  explicit CExpressions(const CDialect& dialect) : dialect_(dialect) {}

  // Names are unique in a kernel and no words of C.
  void StartKernel();
  std::string Declare(const void* symbol, std::string_view wanted);
  std::string Temporary(std::string_view wanted);
  const std::string& NameOf(const void* symbol) const { return names_.at(symbol); }

  std::string TypeOf(ir::DType type);    // of a value; bools are int
  std::string MemoryOf(ir::DType type);  // of a buffer's element; bools are one byte
  // The value of one lane (scalars: lane 0).
  std::string Lane(const ir::Expr& e, int lane);
  // The value as a vector, where the language and the expression allow it.
  std::optional<std::string> Vector(const ir::Expr& e);
  // &buffer[base] for an index that is a run of elements.
  std::optional<std::string> Run(const ir::Buffer& buffer, const ir::Expr& index);
  std::string Element(const ir::Buffer& buffer, const ir::Expr& index, int lane);

  // What could not be said; empty while all is well.
  const std::string& error() const { return error_; }
  void Fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }
  // Functions that the text uses, and types that need an extension.
  const std::set<std::string>& helpers() const { return helpers_; }
  bool uses_double() const { return uses_double_; }
  bool uses_half() const { return uses_half_; }

 private:
  std::string Constant(const ir::Expr& e);
  std::string Binary(const ir::Expr& e, int lane);
  std::string IntBinary(ir::ExprKind kind, ir::DType type, const std::string& a,
                        const std::string& b);
  std::string CastTo(ir::DType to, ir::DType from, const std::string& value);
  std::string CallText(const ir::Expr& e, int lane);
  std::string Helper(std::string_view name, ir::DType type);

  const CDialect& dialect_;
  std::unordered_map<const void*, std::string> names_;
  std::set<std::string> taken_, helpers_;
  std::string error_;
  bool uses_double_ = false, uses_half_ = false;
};

}  // namespace tilewright::codegen
