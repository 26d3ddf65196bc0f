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
  bool whole = false;  // the loop ends there or before
  bool exact = false;  // behind it the condition holds for no inner value
};

// Whether an open size may cut the loop: it begins at a number and, if its number of iterations is
// known, is serial and worth code, for it has many iterations or long ones.
bool MayCutOpen(const ir::Stmt& loop);

// Asks about conditions below a loop with what is known around it. Nothing is kept beyond the
// finder's life. `peel`: the variables of loops around it that are marked tail=peel.
class CutFinder {
 public:
  // `loops`: those around it.
  CutFinder(const analysis::Analyzer& analyzer, const std::vector<const ir::ExprNode*>& peel,
            const std::vector<ir::Expr>& loops)
      : analyzer_(analyzer), peel_(peel), loops_(loops) {}

  // The first condition below a loop of known ends that it decides for a part of its range.
  std::optional<Cut> Find(const ir::Stmt& loop) const;
  // Where the first condition of a statement, or of a choice (`border`), below an open loop begins
  // to fail. What a serial loop inside can be cut by, or chooses (FindChoice), is left to that one:
  // its body is less code to copy.
  std::optional<OpenCut> FindOpen(const ir::Stmt& loop, bool border) const;
  // From where on a loop does nothing, for conditions on open sizes fail, or on `known` ones. Null
  // if nothing says so.
  ir::Expr FindEnd(const ir::Stmt& loop, bool known = false) const;
  // The first iteration from which on a choice below an open loop is decided.
  std::optional<int64_t> FindOpenStart(const ir::Stmt& loop) const;
  // A condition of a choice that is decided for a whole iteration of this loop, which has an open
  // loop inside, and that another loop around it decides, too. Null if there is none.
  ir::Expr FindChoice(const ir::Stmt& loop) const;
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
  bool CutsInside(const ir::Expr& condition, const std::vector<ir::Stmt>& inner) const;
  static bool ChoosesInside(const ir::Expr& condition, const std::vector<ir::Stmt>& inner);
  std::optional<OpenBound> OpenBoundOf(const ir::Stmt& loop, const ir::Expr& condition,
                                       const std::vector<ir::Stmt>& inner) const;
  bool EndsBy(const ir::Expr& last, const ir::Expr& end) const;
  bool IsBelow(const ir::Stmt& loop, const ir::Stmt& s, bool known, std::vector<ir::Stmt>* inner,
               ir::Expr* end) const;
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
  const std::vector<ir::Expr>& loops_;
};

}  // namespace tilewright::transform
