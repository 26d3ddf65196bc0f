// Algebraic simplification of integer and boolean expressions under known ranges, and of statements
// with the ranges of their loops. Value preserving for every input in range (wrapping included; an
// operation that would fail may disappear), idempotent, and quick: it sits on the search's hot
// path. Floats are touched only where the result is bit-identical. Pure functions; thread-safe.
#pragma once

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// Normal forms: sums are `positive terms ... +- constant`, comparisons of integers are `<`, `==` or
// `!=` with the constant on the right, truncating division of what cannot be negative is floordiv,
// `floordiv(x, c) * c + floormod(x, c)` is x.
ir::Expr Simplify(const ir::Expr& e, const Analyzer& analyzer = {});

struct SimplifyOptions {
  // Replaces loops of extent 1 by their body (annotations on them are lost). Not while a schedule
  // still names loops.
  bool remove_unit_loops = false;
};
// Decided conditions and predicates go, empty loops go, all-true masks go. Blocks keep their
// iteration variables.
ir::Stmt Simplify(const ir::Stmt& s, const Analyzer& analyzer = {},
                  const SimplifyOptions& options = {});
// With the ranges of the size parameters.
ir::Function Simplify(const ir::Function& f, const SimplifyOptions& options = {});

// True when the condition surely holds (false: unknown).
bool Proves(const ir::Expr& condition, const Analyzer& analyzer);
// a - b when that is a known constant.
bool ConstantDifference(const ir::Expr& a, const ir::Expr& b, const Analyzer& analyzer,
                        int64_t* difference);

}  // namespace tilewright::analysis
