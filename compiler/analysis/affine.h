// Affine forms: a constant plus integer multiples of atoms. An atom is a variable, a floordiv or
// floormod of an affine form by a constant, or anything else taken as a whole. Block bindings, loop
// bounds, regions and predicates of scheduled programs are of this kind. The Analyzer makes them.
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

// constant + Σ coeff · atom. Atoms are distinct; larger |coeff| first, then order of appearance.
struct AffineSum {
  std::vector<AffineTerm> terms;
  int64_t constant = 0;
  ir::DType dtype = ir::kI64;
};

ir::Expr ToExpr(const AffineSum& sum);
Interval RangeOf(const AffineSum& sum);
bool SameSum(const AffineSum& a, const AffineSum& b);
bool SameAtom(const ir::Expr& a, const ir::Expr& b);
bool Mentions(const AffineSum& sum, const ir::Var& var);

// These leave the order of terms to the caller: SortTerms brings the larger |coeff| first.
void AddTerm(AffineSum* sum, const AffineTerm& term, int64_t factor);
void AddScaled(AffineSum* into, const AffineSum& other, int64_t factor);
void SortTerms(AffineSum* sum);

// The step of a scalar integer along one variable, e.g. of a flat index along a loop, whatever the
// ranges are; nullopt when it is not affine in it.
std::optional<int64_t> StrideOf(const ir::Expr& e, const ir::Var& var);

}  // namespace tilewright::analysis
