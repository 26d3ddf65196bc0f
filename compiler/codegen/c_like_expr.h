// Expressions of c_like: IR expressions as C text, one lane at a time or as vectors. Internal to
// compiler/codegen. One object per text; not thread-safe.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/analysis/analyzer.h"
#include "compiler/codegen/c_like.h"
#include "compiler/codegen/local_slots.h"

namespace tilewright::codegen {

// What follows a vector's name for one of its lanes.
std::string Component(int lane);
// The shortest literal of a finite number that is exactly it.
std::string FloatLiteral(double value, bool is_double);

class CExpressions {
 public:
  explicit CExpressions(const CDialect& dialect) : dialect_(dialect) {}

  // Names are unique in a kernel and no words of C. `narrow`: its i64 values are 32-bit integers.
  void StartKernel(bool narrow);
  std::string Declare(const void* symbol, std::string_view wanted);
  std::string Temporary(std::string_view wanted);
  void SetName(const void* symbol, std::string text) { names_[symbol] = std::move(text); }
  const std::string& NameOf(const void* symbol) const { return names_.at(symbol); }

  // The elements of an array lie where `function` of their number says; what WideRunOf gives
  // stay together.
  void Place(const ir::BufferNode* buffer, std::string function) {
    places_[buffer] = std::move(function);
  }
  // Where an element is in its array.
  std::string PlaceOf(const ir::BufferNode* buffer, std::string index) const;
  // Returns whether `index` is in the first `columns` elements of `period`, wherever in the kernel.
  bool IsAtStart(const ir::Expr& index, int64_t columns, int64_t period) const;

  // What is known of a variable from here on: divisions of what is not negative are plain ones.
  void SetRange(const ir::Var& var, const ir::Range& range) { analyzer_.SetRange(var, range); }
  void SetValue(const ir::Var& var, const ir::Expr& value) { analyzer_.SetValue(var, value); }

  // Makes variables of a private buffer that is used in `body` only; returns their declarations.
  // nullopt: it has to be an array.
  std::optional<std::vector<std::string>> Promote(const ir::Buffer& buffer, const ir::Stmt& body);

  std::string TypeOf(ir::DType type);    // of a value; bools are int
  std::string MemoryOf(ir::DType type);  // of a buffer's element; bools are one byte
  // The value of one lane (scalars: lane 0).
  std::string Lane(const ir::Expr& e, int lane);
  // The value as a vector; nullopt where the language has none of this type.
  std::optional<std::string> Vector(const ir::Expr& e);
  // &buffer[base] for an index that is a run of elements.
  std::optional<std::string> Run(const ir::Buffer& buffer, const ir::Expr& index);
  // A run in the fewest accesses of 16, 8 or 4 bytes, all as wide, in a language that has wide
  // ones: their type and lvalues. None where the run is not known to be at a multiple of any.
  struct WideRun {
    std::string type;
    int64_t lanes = 0;  // of each
    std::vector<std::string> parts;
  };
  WideRun WideRunOf(const ir::Buffer& buffer, const ir::Expr& index, bool read_only);
  // Declares variables that hold what a load of a run gives, for the statement at hand; returns
  // their names.
  std::vector<std::string> NameRun(const ir::Expr& load, const WideRun& run);
  bool IsNamedRun(const ir::Expr& e) const { return runs_.contains(e.get()); }
  void ForgetRuns() { runs_.clear(); }
  // The largest power of two, up to 16, that the address of this element is known to be at a
  // multiple of, if neighbours that are `stride` elements away are to be so, too.
  int64_t AlignedBytes(const ir::Buffer& buffer, const ir::Expr& index, int64_t stride) const;
  // The variable that holds exactly these elements of a buffer.
  std::optional<std::string> Register(const ir::Buffer& buffer, const ir::Expr& index) const;
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
  bool uses_bfloat() const { return uses_bfloat_; }
  bool uses_dot4() const { return uses_dot4_; }
  bool uses_wide() const { return uses_wide_; }

 private:
  struct Registers {
    SlotPlan plan;
    std::vector<std::string> names;  // of its slots
  };

  bool HasVectors(ir::DType type) const;
  std::string Constant(const ir::Expr& e);
  std::string Binary(const ir::Expr& e, int lane);
  std::string IntBinary(const ir::Expr& e, const std::string& a, const std::string& b);
  // Of operands that HasVectors; nullopt where only lanes can be said.
  std::optional<std::string> VectorOf(const ir::Expr& e);
  std::optional<std::string> VectorLoad(const ir::Expr& e);
  std::optional<std::string> VectorBinary(const ir::Expr& e);
  std::optional<std::string> VectorCast(const ir::Expr& e);
  std::optional<std::string> VectorCall(const ir::Expr& e);
  void RefuseBfloat(const ir::Expr& e);
  std::string CastTo(ir::DType to, ir::DType from, const std::string& value);
  std::string IntegerText(const ir::Expr& e, int lane);
  std::string CallText(const ir::Expr& e, int lane);
  std::string FourLanes(const ir::Expr& e, int first);
  std::string BytesText(const std::string& word);
  std::string Dot4Text(const ir::Expr& e, int lane);
  std::string Helper(std::string_view name, ir::DType type);

  const CDialect& dialect_;
  analysis::Analyzer analyzer_;
  bool narrow_ = false;
  std::unordered_map<const ir::BufferNode*, Registers> registers_;
  std::unordered_map<const void*, std::string> names_;
  std::unordered_map<const ir::BufferNode*, std::string> places_;
  struct NamedRun {
    int64_t lanes = 1;  // of each name
    std::vector<std::string> names;
  };
  std::unordered_map<const ir::ExprNode*, NamedRun> runs_;
  std::set<std::string> taken_, helpers_;
  std::string error_;
  bool uses_double_ = false, uses_half_ = false, uses_bfloat_ = false, uses_dot4_ = false,
       uses_wide_ = false;
};

}  // namespace tilewright::codegen
