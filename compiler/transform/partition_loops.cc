// TRANSFORMATIONS of partition_loops (kLoops → kLoops), for conditions `Σ c·v + k < E` of
// statements on loops marked tail=peel, and of choices (`select`: the borders of a padded image) on
// any loop
//
//   for v in 0..n { … if c·v + inner < E { S } … }
//     (a serial loop; the condition holds for every inner value while v < t)
//     → for v in 0..t { … S … };  for v in t..n { … if … }
//       and so on with the loops inside the remainder
//   the same in a parallel loop, or where v is inside a division (a fused loop)
//     → the loop stays whole: let a = atom;  if a < t { … S … } else { … if … }
//       with a a constant in the remainder where only one value is left
//   the same where E is an expression over size parameters: t is one, too, of any loop, marked or
//   not, and choices are cut alike
//     → for v in 0..(E - …) / c { … S … };  for v in (E - …) / c..n { … if … }
//   where a reduction is inside and the remainder is one iteration of 1 to c - 1 rows, a copy for
//   each number of rows:
//     → …;  for v in E / c..n { if E - c·v < 2 { … S of 1 row … } else if E - c·v < 3 { … } … }
//   of more rows, in vectors, a copy for each number of vectors, of which the last may be a part
//   for v in 0..n { if v < t { S } }
//     → for v in 0..t { S }     (marked or not)
//   for v in 0..8 { for i in 0..4 { if 4·v + i < E { S } } }, E an open size
//     → for v in 0..min(8, (E + 3) / 4) { for i in 0..4 { if 4·v + i < E { S } } }
//   for u in 0..n { for v in 0..8 { for w in 0..E { … select(0 < 4·u + v, X[…], 0) … } } }
//     → for u in 0..n { for v in 0..8 { if 0 < 4·u + v { for w … } else { for w … } } }
//   for v in 0..n { for k in 0..3 unrolled { … select(0 < v + k, X[v + k - 1], 0) … } }
//     → the first v, where some k is outside;  for v in 1..n { … X[v + k - 1] … }
//
// Both copies are simplified with what is now known, so that conditions are decided, remainders get
// constant extents and what can never run goes away. Vectorised loops are never cut: their
// conditions stay masks.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/loop_cuts.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/peel.h"
#include "compiler/transform/stmt_rewriter.h"

namespace tilewright::transform {
namespace {

using analysis::Interval;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// Copies of code stop here: a nest of many ragged loops is not worth a compiler's time. Counted as
// written, and for borders as unrolled.
constexpr int64_t kMaxLeaves = 4096, kMaxUnrolled = 4096;

// Remainders of open loops have a copy of the code for each number of rows, or of vectors or pairs
// of them, up to this.
constexpr int64_t kMaxRows = 8;
// An open loop is cut so many times.
constexpr int kMaxCuts = 3;

bool HasSerialLoop(const Stmt& s) {
  bool found = false;
  ir::VisitStmts(s, [&](const Stmt& inner) {
    found = found || (inner->kind == StmtKind::kFor && inner->for_kind == ir::ForKind::kSerial);
    return !found;
  });
  return found;
}

int64_t CountUnrolled(const Stmt& s) {
  int64_t count = 0;
  switch (s->kind) {
    case StmtKind::kStore:
    case StmtKind::kEvaluate:
      return 1;
    case StmtKind::kFor: {
      const int64_t* extent = ir::AsInt(s->range.extent);
      const bool written_out = s->for_kind == ir::ForKind::kUnrolled && extent != nullptr;
      return CountUnrolled(s->body) * (written_out ? *extent : 1);
    }
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) count += CountUnrolled(child);
      return count;
    case StmtKind::kIf:
      return CountUnrolled(s->body) + (s->else_body == nullptr ? 0 : CountUnrolled(s->else_body));
    default:
      return s->body == nullptr ? 0 : CountUnrolled(s->body);
  }
}

bool IsConstantLoop(const Stmt& loop) {
  return ir::AsInt(loop->range.min) && ir::AsInt(loop->range.extent);
}

class Partitioner : public StmtRewriter {
 public:
  explicit Partitioner(const ir::Function& f)
      : cloner_(f),
        analyzer_(f),
        open_(!f.size_params.empty()),
        leaves_(CountLeaves(f.body)),
        unrolled_(CountUnrolled(f.body)) {}

  Stmt RewriteStmt(const Stmt& s) override {
    switch (s->kind) {
      case StmtKind::kFor:
        return WalkFor(s);
      case StmtKind::kLet:
        analyzer_.SetValue(s->var, s->value);
        return RewriteChildren(s);
      default:
        return RewriteChildren(s);
    }
  }

 private:
  CutFinder Cuts() const { return {analyzer_, peel_, loops_}; }

  Stmt WalkFor(const Stmt& s) {
    analyzer_.SetRange(s->var, s->range);
    bool peel = IsPeeled(*s);
    if (peel) peel_.push_back(s->var.get());
    Stmt result = CutLoop(Shortened(s));
    if (peel) peel_.pop_back();
    return result;
  }

  // A loop that does nothing from somewhere on ends there. Of one with a known end that is asked
  // where an open size decides it, and for as long as its body has conditions.
  Stmt Shortened(const Stmt& s) {
    if (!open_ || s->for_kind != ir::ForKind::kSerial) return s;
    const Expr past = Cuts().FindEnd(s);
    if (past == nullptr) return s;
    const Expr end = s->range.min + s->range.extent;
    if (analysis::Proves(end <= past, analyzer_)) return s;
    const Expr extent = analysis::Simplify(ir::Min(end, past) - s->range.min, analyzer_);
    const Stmt loop = Over(s, s->range.min, extent, s->body);
    analyzer_.SetRange(loop->var, loop->range);
    return loop;
  }

  Stmt CutLoop(const Stmt& s) {
    if (s->for_kind != ir::ForKind::kVectorized && IsConstantLoop(s)) {
      if (std::optional<Cut> cut = Cuts().Find(s)) {
        if (HasRoom(s, cut->border)) {
          Take(s);
          bool serial =
              s->for_kind == ir::ForKind::kSerial || s->for_kind == ir::ForKind::kUnrolled;
          return cut->atom == s->var && serial ? SplitRange(s, cut->cut) : SplitBody(s, *cut);
        }
      }
    }
    if (open_ && MayCutOpen(s)) {
      if (std::optional<Stmt> split = CutOpenLoop(s)) return *std::move(split);
    }
    if (open_ && HasRoom(s, /*border=*/true)) {
      if (const Expr choice = Cuts().FindChoice(s)) return Chosen(s, choice);
    }
    loops_.push_back(s->var);
    Stmt body = RewriteStmt(s->body);
    loops_.pop_back();
    return Over(s, s->range.min, s->range.extent, body);
  }

  // A loop whose iterations decide about a condition of their choices.
  Stmt Chosen(const Stmt& s, const Expr& condition) {
    Take(s);
    const auto where = [&](const Stmt& body, bool holds) {
      return analysis::Simplify(ReplaceExpr(condition, ir::Bool(holds)).RewriteStmt(body),
                                analyzer_);
    };
    const Stmt other = cloner_.Clone(s->body);
    const Stmt body = ir::MakeIf(condition, where(s->body, true), where(other, false));
    return CutLoop(Over(s, s->range.min, s->range.extent, body));
  }

  // An open loop in parts: by the conditions of its statements, then by the borders of choices,
  // first those behind its last iterations, so that the first ones do not ask for these either.
  std::optional<Stmt> CutOpenLoop(const Stmt& s) {
    if (cuts_[s->var.get()] >= kMaxCuts) return std::nullopt;
    if (const auto cut = Cuts().FindOpen(s, /*border=*/false);
        cut && HasRoom(s, /*border=*/false)) {
      return SplitOpen(s, *cut);
    }
    if (!HasRoom(s, /*border=*/true)) return std::nullopt;
    if (const auto cut = Cuts().FindOpen(s, /*border=*/true)) return SplitOpen(s, *cut);
    if (const auto first = Cuts().FindOpenStart(s)) return SplitStart(s, *first);
    return std::nullopt;
  }

  // Whether there is room for a copy of the loop's body; it is taken with Take.
  bool HasRoom(const Stmt& s, bool border) const {
    return leaves_ + CountLeaves(s->body) <= kMaxLeaves &&
           (!border || unrolled_ + CountUnrolled(s->body) <= kMaxUnrolled);
  }
  void Take(const Stmt& s) {
    leaves_ += CountLeaves(s->body);
    unrolled_ += CountUnrolled(s->body);
  }

  // A part of a loop, of which no more than so many cuts are made.
  Stmt Part(const Stmt& part, int cuts) {
    if (part->kind == StmtKind::kFor) cuts_[part->var.get()] = cuts;
    return RewriteStmt(analysis::Simplify(part, analyzer_, {.remove_unit_loops = true}));
  }

  // Of an open loop: the part in front of the cut has no condition, the rest keeps its own.
  Stmt SplitOpen(const Stmt& s, const OpenCut& open) {
    Take(s);
    const Expr end = s->range.min + s->range.extent;
    const Expr from = analysis::Simplify(ir::Max(open.cut, s->range.min), analyzer_);
    const int cuts = cuts_[s->var.get()] + 1;
    const Stmt decided = Decided(Cuts(), s, open.cut, true).RewriteStmt(s->body);
    if (open.whole) return Part(Over(s, s->range.min, s->range.extent, decided), cuts);
    const Stmt behind =
        open.exact ? Decided(Cuts(), s, open.cut, false).RewriteStmt(s->body) : s->body;
    const Stmt rest = cloner_.Clone(Over(s, s->range.min, s->range.extent, behind));
    const Stmt main = Part(Over(s, s->range.min, open.cut - s->range.min, decided), cuts);
    const Stmt tail =
        Part(Over(rest, from, end - from, ByRows(open, rest->var, rest->body)), kMaxCuts);
    return Joined(s, open.cut, main, rest->var, tail);
  }

  // The iterations before `first`, and the others. A loop that ends before it has none of these.
  Stmt SplitStart(const Stmt& s, int64_t first) {
    Take(s);
    const Expr from = ir::Int(first), before = from - s->range.min;
    const int cuts = cuts_[s->var.get()] + 1;
    const Stmt head = cloner_.Clone(s);
    const Expr some = analysis::Simplify(ir::Min(s->range.extent, before), analyzer_);
    const Stmt start = Part(Over(head, s->range.min, some, head->body), kMaxCuts);
    const Stmt rest = Part(Over(s, from, s->range.extent - before, s->body), cuts);
    return Joined(s, from, start, head->var, rest);
  }

  // A loop's body without the conditions that change at the cut, which hold before it: what they
  // are about may be quotients of sizes, of which the simplifier does not know it.
  class Decided : public ir::Rewriter {
   public:
    Decided(CutFinder cuts, Stmt loop, Expr cut, bool holds)
        : cuts_(cuts), loop_(std::move(loop)), cut_(std::move(cut)), holds_(holds) {}
    Stmt RewriteStmt(const Stmt& s) override {
      if (s->kind != StmtKind::kFor) return RewriteChildren(s);
      inner_.push_back(s);
      Stmt result = RewriteChildren(s);
      inner_.pop_back();
      return result;
    }
    Expr RewriteExpr(const Expr& e) override {
      if (e->kind != ExprKind::kLt) return RewriteChildren(e);
      const auto open = cuts_.OpenCutOf(loop_, e, inner_);
      const bool changes = open && ir::StructuralEqual(open->cut, cut_) && (holds_ || open->exact);
      return changes ? ir::Bool(holds_) : e;
    }

   private:
    const CutFinder cuts_;
    const Stmt loop_;
    const Expr cut_;
    const bool holds_;
    std::vector<Stmt> inner_;
  };

  static Stmt Over(const Stmt& loop, const Expr& min, const Expr& extent, const Stmt& body) {
    return ir::MakeFor(loop->var, min, extent, body, loop->for_kind, loop->annotations);
  }

  // Two parts of a loop, one of them over `copied`. A parallel loop stays whole, and its body asks
  // which part it is in.
  static Stmt Joined(const Stmt& s, const Expr& cut, const Stmt& below, const ir::Var& copied,
                     const Stmt& above) {
    if (s->for_kind != ir::ForKind::kParallel) return ir::MakeSeq({below, above});
    const auto body = [&](const Stmt& part) {
      const bool loop =
          part->kind == StmtKind::kFor && (part->var == s->var || part->var == copied);
      return ir::Substitute(loop ? part->body : part, {{copied.get(), s->var}});
    };
    return Over(s, s->range.min, s->range.extent,
                ir::MakeIf(s->var < cut, body(below), body(above)));
  }

  // The body behind the cut, for each number of rows that may be left there a copy whose conditions
  // ask for this number. Of many rows in vectors, a copy for each number of vectors; of many others
  // one for each pair, of which one row keeps its condition.
  Stmt ByRows(const OpenCut& open, const Expr& var, const Stmt& body) {
    int64_t group = 1;
    if (open.factor > kMaxRows) {
      const int64_t lanes = LanesOf(body);
      group = lanes > 1 && open.factor % lanes == 0 ? lanes : 2;
    }
    const int64_t most = group == 1 ? open.factor - 1 : (open.factor + group - 1) / group;
    if (!open.rows || most > kMaxRows) return body;
    const int64_t leaves = CountLeaves(body) * (most - 1);
    const int64_t unrolled = CountUnrolled(body) * (most - 1);
    if (!HasSerialLoop(body) || leaves_ + leaves > kMaxLeaves ||
        unrolled_ + unrolled > kMaxUnrolled) {
      return body;
    }
    leaves_ += leaves;
    unrolled_ += unrolled;
    const Expr left = open.end - var * ir::Int(open.factor, var->dtype);
    Stmt by_rows;
    for (int64_t groups = most; groups > 0; --groups) {
      const Stmt copy = groups == 1 ? body : cloner_.Clone(body);
      const Expr last = ir::Int(groups * group), first = ir::Int((groups - 1) * group + 1);
      const Expr rows = group == 1 ? last : ir::Min(ir::Max(left, first), last);
      const Stmt of_rows = KnownRows(var, left, rows, analyzer_).RewriteStmt(copy);
      by_rows = by_rows == nullptr
                    ? of_rows
                    : ir::MakeIf(left < ir::Int(groups * group + 1), of_rows, by_rows);
    }
    return by_rows;
  }

  // Of the first vectorised loop; 1 without one.
  static int64_t LanesOf(const Stmt& body) {
    int64_t lanes = 1;
    ir::VisitStmts(body, [&](const Stmt& s) {
      const bool found = s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kVectorized;
      const int64_t* extent = found ? ir::AsInt(s->range.extent) : nullptr;
      if (extent != nullptr && lanes == 1) lanes = *extent;
      return lanes == 1;
    });
    return lanes;
  }

  // Conditions on `var` where `left`, of which `rows` says how much it is, counts what is there:
  // a < b is a - b + left < rows.
  class KnownRows : public ir::Rewriter {
   public:
    KnownRows(Expr var, Expr left, Expr rows, const analysis::Analyzer& analyzer)
        : var_(std::move(var)),
          left_(std::move(left)),
          rows_(std::move(rows)),
          analyzer_(analyzer) {}
    Expr RewriteExpr(const Expr& e) override {
      if (e->kind != ExprKind::kLt || e->args[0]->dtype != ir::kI64) return RewriteChildren(e);
      if (!ir::UsesVar(e, var_)) return e;
      const Expr inner = analysis::Simplify(e->args[0] - e->args[1] + left_, analyzer_);
      return ir::UsesVar(inner, var_) ? e : inner < rows_;
    }

   private:
    const Expr var_, left_, rows_;
    const analysis::Analyzer& analyzer_;
  };

  Stmt SplitRange(const Stmt& s, int64_t cut) {
    int64_t min = *ir::AsInt(s->range.min), extent = *ir::AsInt(s->range.extent);
    ir::DType type = s->var->dtype;
    auto part = [&](const Stmt& from, int64_t first, int64_t count) {
      Stmt loop = ir::MakeFor(from->var, ir::Int(first, type), ir::Int(count, type), from->body,
                              from->for_kind, from->annotations);
      return RewriteStmt(analysis::Simplify(loop, analyzer_, {.remove_unit_loops = true}));
    };
    Stmt rest = cloner_.Clone(s);
    Stmt main = part(s, min, cut - min);
    return ir::MakeSeq({main, part(rest, cut, min + extent - cut)});
  }

  // Keeps the loop: its body asks which part this iteration is in.
  Stmt SplitBody(const Stmt& s, const Cut& cut) {
    Expr atom = cut.atom;
    Stmt body = s->body;
    bool is_var = atom->kind == ExprKind::kVar;
    if (!is_var) {
      atom = ir::MakeVar(s->var->name + "_tile", cut.atom->dtype);
      body = ReplaceExpr(cut.atom, atom).RewriteStmt(body);
    }
    Interval range = analyzer_.Values(cut.atom);
    analyzer_.Set(atom, range);
    auto part = [&](const Stmt& from, Interval values) {
      const Expr only = ir::Int(values.min, atom->dtype);
      return WalkUnder(atom, values,
                       values.min < values.max ? from : ir::Substitute(from, {{atom.get(), only}}));
    };
    Stmt above = cloner_.Clone(body);
    Stmt below = part(body, {range.min, cut.cut - 1});
    above = part(above, {cut.cut, range.max});
    analyzer_.Set(atom, range);
    Stmt split = ir::MakeIf(atom < ir::Int(cut.cut, atom->dtype), below, above);
    if (!is_var) split = ir::MakeLet(atom, cut.atom, split);
    return ir::MakeFor(s->var, s->range.min, s->range.extent, split, s->for_kind, s->annotations);
  }

  Stmt WalkUnder(const Expr& var, Interval range, const Stmt& s) {
    analyzer_.Set(var, range);
    return RewriteStmt(analysis::Simplify(s, analyzer_, {.remove_unit_loops = true}));
  }

  class ReplaceExpr : public ir::Rewriter {
   public:
    ReplaceExpr(Expr from, Expr to) : from_(std::move(from)), to_(std::move(to)) {}
    Expr RewriteExpr(const Expr& e) override {
      if (e->kind == from_->kind && ir::StructuralEqual(e, from_)) return to_;
      return RewriteChildren(e);
    }

   private:
    Expr from_, to_;
  };

  Cloner cloner_;
  analysis::Analyzer analyzer_;
  const bool open_;  // there are open sizes
  int64_t leaves_, unrolled_;
  std::vector<const ir::ExprNode*> peel_;              // marked loops around the current statement
  std::vector<Expr> loops_;                            // all loops around it
  std::unordered_map<const ir::ExprNode*, int> cuts_;  // of open loops
};

}  // namespace

absl::StatusOr<Function> PartitionLoops(const Function& f, const PassContext&) {
  Function result = f;
  result.body = Partitioner(f).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
