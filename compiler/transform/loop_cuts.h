// Where the conditions below a loop change: what partition_loops cuts it by. Part of that pass.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/ir.h"

namespace tilewright::transform {

// Where one condition changes: on one side of `cut` it is true for all inner values, atom < cut or
// atom >= cut.
struct Cut {
  ir::Expr atom;
  int64_t cut = 0;
  bool border = false;  // of a choice, not of a statement
};

// Where a condition `factor · v + inner < end` of an open loop over v holds for all inner values:
// for v < cut.
struct OpenCut {
  ir::Expr cut, end;
  int64_t factor = 0;
  // The loop's last iteration is the only one behind it, of 1 to factor - 1 rows.
  bool rows = false;
};

// Asks about conditions below a loop with what is known around it. Neither `analyzer` nor `peel`,
// the loops around it that are marked tail=peel, is kept beyond the finder's life.
class CutFinder {
 public:
  CutFinder(const analysis::Analyzer& analyzer, const std::vector<const ir::ExprNode*>& peel)
      : analyzer_(analyzer), peel_(peel) {}

  // The first condition below a loop of known ends that it decides for a part of its range.
  std::optional<Cut> Find(const ir::Stmt& loop) const;
  // Where the first condition of a statement, or of a choice (`border`), below an open loop begins
  // to fail.
  std::optional<OpenCut> FindOpen(const ir::Stmt& loop, bool border) const;
  // From where on a loop does nothing, for conditions on open sizes fail. Null if nothing says so.
  ir::Expr FindEnd(const ir::Stmt& loop) const;
  // The first iteration from which on a choice below an open loop is decided.
  std::optional<int64_t> FindOpenStart(const ir::Stmt& loop) const;
  // What FindOpen says of one condition, with the loops between it and `loop`.
  std::optional<OpenCut> OpenCutOf(const ir::Stmt& loop, const ir::Expr& condition,
                                   const std::vector<ir::Stmt>& inner) const;

 private:
  // Whether a condition of a statement, or of a choice (`border`), is the one that is looked for.
  using Decide = std::function<bool(const ir::Expr& condition, bool border)>;
  static bool Search(const ir::Stmt& loop, const ir::Stmt& s, std::vector<ir::Stmt>* inner,
                     const Decide& decide);
  static bool SearchChoices(const ir::Expr& value, const Decide& decide);
  // A condition `factor · v + inner < end` of a loop over v.
  struct OpenBound {
    int64_t factor = 0;
    analysis::Interval inner;
    ir::Expr end;  // E: what neither this loop nor one inside changes
    // The first v where it fails for this value of the inner part.
    ir::Expr FirstNotBelow(int64_t of_inner) const;
  };
  std::optional<OpenBound> OpenBoundOf(const ir::Stmt& loop, const ir::Expr& condition,
                                       const std::vector<ir::Stmt>& inner) const;
  bool EndsBy(const ir::Expr& last, const ir::Expr& end) const;
  bool IsBelow(const ir::Stmt& loop, const ir::Stmt& s, std::vector<ir::Stmt>* inner,
               std::optional<OpenBound>* bound) const;
  struct Difference {
    ir::SumTerms sum;
    analysis::Analyzer inside;
  };
  Difference DifferenceOf(const ir::Expr& condition, const std::vector<ir::Stmt>& inner) const;
  bool IsPeelable(const ir::Expr& condition, const std::vector<ir::Stmt>& inner) const;
  std::optional<int64_t> OpenStartOf(const ir::Stmt& loop, const ir::Expr& condition,
                                     const std::vector<ir::Stmt>& inner) const;
  std::optional<Cut> CutOf(const ir::Stmt& loop, const ir::Expr& condition,
                           const std::vector<ir::Stmt>& inner, bool border) const;

  const analysis::Analyzer& analyzer_;
  const std::vector<const ir::ExprNode*>& peel_;
};

}  // namespace tilewright::transform
