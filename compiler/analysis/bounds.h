// Constant ranges of integer expressions: what the simplifier, the access regions and the schedule
// primitives know about variables. Sound with wrapping arithmetic: where an operation might
// overflow, its interval is the whole range of its type. Value types; not thread-safe for writing.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "compiler/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// value = remainder (mod modulus). modulus 1: nothing known; modulus 0: the constant `remainder`.
struct Congruence {
  int64_t modulus = 1;
  int64_t remainder = 0;
  bool operator==(const Congruence&) const = default;
};

// What is known about variables. Unknown variables have the range of their type.
class Bounds {
 public:
  // Symbolic sizes are taken to be in [1, kMaxSize], so that index arithmetic on them is known not
  // to wrap.
  static constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;

  Bounds() = default;
  // Knows the function's size parameters.
  explicit Bounds(const ir::Function& function);

  void Set(const ir::Var& var, Interval interval, Congruence congruence = {});
  // The variable runs over [min, min + extent); an empty range gives the point min.
  void SetRange(const ir::Var& var, const ir::Range& range);
  // Iteration variables of a block: the domain, cut by the interval of the binding.
  void SetBlock(const ir::StmtNode& block);
  // Narrows variables by a condition known to hold: conjunctions of comparisons that are linear in
  // one variable at a time.
  void Assume(const ir::Expr& condition);

  Interval Get(const ir::ExprNode* var) const;
  Congruence GetCongruence(const ir::ExprNode* var) const;
  // False: every congruence is trivial, and need not be asked for.
  bool has_congruences() const { return has_congruences_; }

 private:
  struct Fact {
    Interval interval;
    Congruence congruence;
  };
  std::unordered_map<const ir::ExprNode*, Fact> facts_;
  bool has_congruences_ = false;
};

// The values a scalar or vector (all lanes) integer or bool expression may take.
Interval EvalInterval(const ir::Expr& e, const Bounds& bounds);
Congruence EvalCongruence(const ir::Expr& e, const Bounds& bounds);

// The transfer function of one integer operator; comparisons give an interval of {0, 1}.
Interval BinaryInterval(ir::ExprKind kind, ir::DType operand_type, const Interval& a,
                        const Interval& b);

// Every value of a type (u64: of its bit patterns).
Interval TypeInterval(ir::DType type);

}  // namespace tilewright::analysis
