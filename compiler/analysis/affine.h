// Affine forms: a constant plus integer multiples of atoms. An atom is a variable, a floordiv or
// floormod of an affine form by a constant, or anything else taken as a whole. Block bindings, loop
// bounds, regions and predicates of scheduled programs are of this kind. The Analyzer and the
// simplifier make them.
// Values; pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

struct AffineTerm {
  ir::Expr atom;
  int64_t coeff = 1;
  Interval range;  // of the atom
};

// constant + Σ coeff · atom. Atoms are distinct. The Analyzer gives the larger |coeff| first, then
// the order of appearance.
struct AffineSum {
  ir::DType dtype = ir::kI64;
  std::vector<AffineTerm> terms;
  int64_t constant = 0;
  bool is_constant() const { return terms.empty(); }
};

// One atom as a sum; a constant when that is all it can be.
AffineSum AtomSum(ir::Expr atom, const Interval& range);
// Positive terms first, then the others, then the constant.
ir::Expr ToExpr(const AffineSum& sum);
Interval RangeOf(const AffineSum& sum);
bool SameSum(const AffineSum& a, const AffineSum& b);
bool SameAtom(const ir::Expr& a, const ir::Expr& b);
bool Mentions(const AffineSum& sum, const ir::Var& var);

// *sum += coeff * atom, *into += factor * other: modulo 2^bits of the sum's type. These leave the
// order of terms to the caller: SortTerms brings the larger |coeff| first.
void AddTerm(AffineSum* sum, int64_t coeff, const ir::Expr& atom, const Interval& range);
void AddConstant(AffineSum* sum, int64_t value);
void AddScaled(AffineSum* into, const AffineSum& other, int64_t factor);
void SortTerms(AffineSum* sum);

// Whether `e` is the floordiv or floormod (`kind`) of something by a constant > 0.
bool IsDivision(const ir::Expr& e, ir::ExprKind kind, int64_t* divisor);

// The step of a scalar integer along one variable, e.g. of a flat index along a loop, whatever the
// ranges are; nullopt when it is not affine in it.
std::optional<int64_t> StrideOf(const ir::Expr& e, const ir::Var& var);

}  // namespace tilewright::analysis
