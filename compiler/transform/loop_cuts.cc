#include "compiler/transform/loop_cuts.h"

#include <algorithm>
#include <span>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/peel.h"

namespace tilewright::transform {

using analysis::Interval;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// v < (E - inner) / factor, rounded up.
Expr CutFinder::OpenBound::FirstNotBelow(int64_t of_inner) const {
  return ir::FloorDiv(end + ir::Int(factor - 1 - of_inner), ir::Int(factor));
}

namespace {

constexpr int64_t kMaxInner = 4096;  // iterations inside, that a cut of an open loop counts with
constexpr int64_t kMaxStart = 4;     // an open loop is not cut behind more of its first iterations
constexpr int64_t kLeastKnown = 8;   // iterations of a loop of known ends that are many

bool HasOpenLoop(const Stmt& s) {
  bool found = false;
  ir::VisitStmts(s, [&](const Stmt& inner) {
    found = found || (inner->kind == StmtKind::kFor && ir::AsInt(inner->range.extent) == nullptr);
    return !found;
  });
  return found;
}

// Whether the condition is the same in all that an iteration of `loop` has inside, which is long.
// Numbers from memory may change meanwhile.
bool IsOfIteration(const Expr& condition, const Stmt& loop, std::span<const Stmt> inner) {
  const auto uses = [&](const Stmt& s) { return ir::UsesVar(condition, s->var); };
  if (condition->kind != ExprKind::kLt || condition->args[0]->dtype != ir::kI64) return false;
  if (loop->for_kind != ir::ForKind::kSerial || !uses(loop) || ir::HasLoad(condition)) return false;
  if (std::ranges::any_of(inner, uses) || !HasOpenLoop(loop->body)) return false;
  bool known = true;
  ir::VisitStmts(loop->body, [&](const Stmt& s) {
    known = known && (s->kind != StmtKind::kLet || !uses(s));
    return known;
  });
  return known;
}

}  // namespace

bool MayCutOpen(const Stmt& loop) {
  if (ir::AsInt(loop->range.min) == nullptr) return false;
  const int64_t* known = ir::AsInt(loop->range.extent);
  if (known == nullptr) return loop->for_kind != ir::ForKind::kVectorized;
  return loop->for_kind == ir::ForKind::kSerial &&
         (*known >= kLeastKnown || (*known > 1 && HasOpenLoop(loop->body)));
}

std::optional<Cut> CutFinder::Find(const Stmt& loop) const {
  std::optional<Cut> found;
  std::vector<Stmt> inner;
  Search(loop, loop->body, &inner, [&](const Expr& condition, bool border) {
    found = CutOf(loop, condition, inner, border);
    return found.has_value();
  });
  return found;
}

std::optional<OpenCut> CutFinder::FindOpen(const Stmt& loop, bool border) const {
  std::optional<OpenCut> found;
  std::vector<Stmt> inner;
  Search(loop, loop->body, &inner, [&](const Expr& condition, bool of_choice) {
    if (of_choice != border) return false;
    const bool inside = border ? ChoosesInside(condition, inner) : CutsInside(condition, inner);
    if (!inside) found = OpenCutOf(loop, condition, inner);
    return found.has_value();
  });
  return found;
}

Expr CutFinder::FindChoice(const Stmt& loop) const {
  Expr found;
  std::vector<Stmt> inner;
  Search(loop, loop->body, &inner, [&](const Expr& condition, bool of_choice) {
    const bool around =
        std::ranges::any_of(loops_, [&](const Expr& var) { return ir::UsesVar(condition, var); });
    if (of_choice && around && IsOfIteration(condition, loop, inner)) found = condition;
    return found != nullptr;
  });
  return found;
}

bool CutFinder::ChoosesInside(const Expr& condition, const std::vector<Stmt>& inner) {
  for (size_t i = 0; i < inner.size(); ++i) {
    if (IsOfIteration(condition, inner[i], std::span(inner).subspan(i + 1))) return true;
  }
  return false;
}

bool CutFinder::CutsInside(const Expr& condition, const std::vector<Stmt>& inner) const {
  for (auto loop = inner.begin(); loop != inner.end(); ++loop) {
    if ((*loop)->for_kind == ir::ForKind::kSerial && MayCutOpen(*loop) &&
        OpenBoundOf(*loop, condition, {loop + 1, inner.end()})) {
      return true;
    }
  }
  return false;
}

std::optional<int64_t> CutFinder::FindOpenStart(const Stmt& loop) const {
  std::optional<int64_t> found;
  std::vector<Stmt> inner;
  Search(loop, loop->body, &inner, [&](const Expr& condition, bool of_choice) {
    if (of_choice && !ChoosesInside(condition, inner)) found = OpenStartOf(loop, condition, inner);
    return found.has_value();
  });
  return found;
}

// Asks `decide` about the conditions of statements and of choices (`border`) below `loop`, with
// the loops around each in `inner`, until it says yes. Returns whether it did.
bool CutFinder::Search(const Stmt& loop, const Stmt& s, std::vector<Stmt>* inner,
                       const Decide& decide) {
  switch (s->kind) {
    case StmtKind::kFor: {
      inner->push_back(s);
      const bool found = Search(loop, s->body, inner, decide);
      inner->pop_back();
      return found;
    }
    case StmtKind::kSeq:
      return std::ranges::any_of(
          s->stmts, [&](const Stmt& child) { return Search(loop, child, inner, decide); });
    case StmtKind::kIf:
      return std::ranges::any_of(ir::Conjuncts(s->condition),
                                 [&](const Expr& c) { return decide(c, /*border=*/false); }) ||
             Search(loop, s->body, inner, decide) ||
             (s->else_body != nullptr && Search(loop, s->else_body, inner, decide));
    case StmtKind::kLet:
    case StmtKind::kAlloc:
      return Search(loop, s->body, inner, decide);
    case StmtKind::kStore:
      // Unrolled loops decide their choices by being written out.
      return loop->for_kind != ir::ForKind::kUnrolled && SearchChoices(s->value, decide);
    default:
      return false;
  }
}

bool CutFinder::SearchChoices(const Expr& value, const Decide& decide) {
  bool found = false;
  ir::VisitExprs(value, [&](const Expr& e) {
    if (e->kind != ExprKind::kSelect || found) return !found;
    found = std::ranges::any_of(ir::Conjuncts(e->args[0]),
                                [&](const Expr& c) { return decide(c, /*border=*/true); });
    return true;
  });
  return found;
}

bool CutFinder::IsPeelable(const Expr& condition, const std::vector<Stmt>& inner) const {
  bool peel = false;
  ir::VisitExprs(condition, [&](const Expr& e) {
    if (e->kind != ExprKind::kVar) return true;
    peel = peel || std::find(peel_.begin(), peel_.end(), e.get()) != peel_.end();
    for (const Stmt& loop : inner) peel = peel || (loop->var == e && IsPeeled(*loop));
    return true;
  });
  return peel;
}

// a < b as a - b < 0, and what is known where that is asked.
CutFinder::Difference CutFinder::DifferenceOf(const Expr& condition,
                                              const std::vector<Stmt>& inner) const {
  Difference difference{{}, analyzer_};
  ir::AddTermsOf(condition->args[0], 1, &difference.sum);
  ir::AddTermsOf(condition->args[1], -1, &difference.sum);
  for (const Stmt& loop : inner) difference.inside.SetRange(loop->var, loop->range);
  return difference;
}

std::optional<CutFinder::OpenBound> CutFinder::OpenBoundOf(const Stmt& loop, const Expr& condition,
                                                           const std::vector<Stmt>& inner) const {
  if (condition->kind != ExprKind::kLt || condition->args[0]->dtype != ir::kI64)
    return std::nullopt;
  // What memory has may change from one iteration to the next.
  if (!ir::UsesVar(condition, loop->var) || ir::HasLoad(condition)) return std::nullopt;
  const auto [sum, inside] = DifferenceOf(condition, inner);
  OpenBound bound{0, {sum.constant, sum.constant}, ir::Int(0)};
  for (const auto& [term, scale] : sum.terms) {
    const bool is_inner = std::any_of(inner.begin(), inner.end(),
                                      [&](const Stmt& l) { return ir::UsesVar(*term, l->var); });
    if (*term == loop->var) {
      bound.factor = scale;
    } else if (is_inner) {
      const Interval range = inside.Values(*term);
      if (!range.is_bounded() || range.max > kMaxInner) return std::nullopt;
      bound.inner.min += scale > 0 ? scale * range.min : scale * range.max;
      bound.inner.max += scale > 0 ? scale * range.max : scale * range.min;
    } else if (ir::UsesVar(*term, loop->var)) {
      return std::nullopt;
    } else {
      bound.end = bound.end + *term * ir::Int(-scale);
    }
  }
  if (bound.factor < 1) return std::nullopt;
  return bound;
}

// Whether last <= end.
bool CutFinder::EndsBy(const Expr& last, const Expr& end) const {
  const Expr simple = analysis::Simplify(last, analyzer_);
  if (simple->kind == ExprKind::kMin)
    return EndsBy(simple->args[0], end) || EndsBy(simple->args[1], end);
  return analysis::Proves(simple <= end, analyzer_);
}

std::optional<OpenCut> CutFinder::OpenCutOf(const Stmt& loop, const Expr& condition,
                                            const std::vector<Stmt>& inner) const {
  const std::optional<OpenBound> bound = OpenBoundOf(loop, condition, inner);
  if (!bound) return std::nullopt;
  OpenCut open{analysis::Simplify(bound->FirstNotBelow(bound->inner.max), analyzer_), bound->end,
               bound->factor};
  const Expr last = loop->range.min + loop->range.extent, whole = bound->FirstNotBelow(0);
  const Expr more = analysis::Simplify(last - whole, analyzer_);
  open.rows =
      bound->inner.max == bound->factor - 1 && IsPeelable(condition, inner) && EndsBy(last, whole);
  open.whole = EndsBy(last, open.cut);
  open.exact = bound->inner.min == bound->inner.max;
  // A loop may end before the condition fails.
  const int64_t* longer = ir::AsInt(more);
  if (longer == nullptr || *longer < 0) open.cut = ir::Min(open.cut, last);
  return open;
}

Expr CutFinder::FindEnd(const Stmt& loop, bool known) const {
  Expr end;
  std::vector<Stmt> inner;
  return IsBelow(loop, loop->body, known, &inner, &end) ? end : nullptr;
}

// Whether all that `s` does stands below conditions that fail from some iteration on. `end` grows
// to the first one where all of them do.
bool CutFinder::IsBelow(const Stmt& loop, const Stmt& s, bool known, std::vector<Stmt>* inner,
                        Expr* end) const {
  switch (s->kind) {
    case StmtKind::kFor: {
      inner->push_back(s);
      const bool below = IsBelow(loop, s->body, known, inner, end);
      inner->pop_back();
      return below;
    }
    case StmtKind::kSeq:
      return std::ranges::all_of(
          s->stmts, [&](const Stmt& child) { return IsBelow(loop, child, known, inner, end); });
    case StmtKind::kIf:
      if (s->else_body != nullptr) return false;
      for (const Expr& condition : ir::Conjuncts(s->condition)) {
        const std::optional<OpenBound> bound = OpenBoundOf(loop, condition, *inner);
        if (!bound || (ir::AsInt(bound->end) != nullptr) != known) continue;
        const Expr past = analysis::Simplify(bound->FirstNotBelow(bound->inner.min), analyzer_);
        if (*end != nullptr && !ir::StructuralEqual(*end, past)) {
          *end = analysis::Simplify(ir::Max(*end, past), analyzer_);
        } else {
          *end = past;
        }
        return true;
      }
      return IsBelow(loop, s->body, known, inner, end);
    case StmtKind::kLet:
    case StmtKind::kAlloc:
      return IsBelow(loop, s->body, known, inner, end);
    default:
      return false;
  }
}

// From where on `constant + inner < factor · v` holds for all inner values.
std::optional<int64_t> CutFinder::OpenStartOf(const Stmt& loop, const Expr& condition,
                                              const std::vector<Stmt>& inner) const {
  if (condition->kind != ExprKind::kLt || condition->args[0]->dtype != ir::kI64)
    return std::nullopt;
  const auto [sum, inside] = DifferenceOf(condition, inner);
  int64_t factor = 0, most = sum.constant;
  for (const auto& [term, scale] : sum.terms) {
    if (*term == loop->var) {
      factor = -scale;
      continue;
    }
    const bool is_inner =
        std::any_of(inner.begin(), inner.end(), [&](const Stmt& l) { return *term == l->var; });
    const Interval range = inside.Values(*term);
    if (!is_inner || !range.is_bounded() || range.max > kMaxInner) return std::nullopt;
    most += scale > 0 ? scale * range.max : scale * range.min;
  }
  if (factor < 1) return std::nullopt;
  const int64_t first = ir::FloorDivInt(most, factor) + 1;
  const int64_t begin = *ir::AsInt(loop->range.min);
  if (first <= begin || first > begin + kMaxStart) return std::nullopt;
  return first;
}

// `condition` as  c · atom + (something the inner loops run over) < E  with atom over `loop` and
// what is outside.
std::optional<Cut> CutFinder::CutOf(const Stmt& loop, const Expr& condition,
                                    const std::vector<Stmt>& inner, bool border) const {
  if (condition->kind != ExprKind::kLt || !condition->args[0]->dtype.is_int()) return std::nullopt;
  // The iteration may store what memory has.
  if (!ir::UsesVar(condition, loop->var) || ir::HasLoad(condition)) return std::nullopt;
  const auto [sum, inside] = DifferenceOf(condition, inner);
  Expr atom;
  int64_t factor = 0, inner_max = 0;
  for (const auto& [term, scale] : sum.terms) {
    bool is_inner = std::any_of(inner.begin(), inner.end(),
                                [&](const Stmt& l) { return ir::UsesVar(*term, l->var); });
    if (!is_inner) {
      if (atom != nullptr || scale == 0) return std::nullopt;
      atom = *term;
      factor = scale;
      continue;
    }
    Interval range = inside.Values(*term);
    if (!range.is_bounded()) return std::nullopt;
    inner_max += scale > 0 ? scale * range.max : scale * range.min;
  }
  if (atom == nullptr || !ir::UsesVar(atom, loop->var)) return std::nullopt;
  if (!border && factor < 0) return std::nullopt;
  // What asks for nothing but this loop's variable is a shorter loop.
  bool clips = atom == loop->var && sum.terms.size() == 1;
  if (!border && !clips && !IsPeelable(condition, inner)) return std::nullopt;
  // factor · atom + inner_max + constant < 0
  const int64_t most = inner_max + sum.constant;
  const int64_t cut =
      factor > 0 ? -ir::FloorDivInt(most, factor) : ir::FloorDivInt(most, -factor) + 1;
  Interval range = analyzer_.Values(atom);
  if (!range.is_bounded() || cut <= range.min || cut > range.max) return std::nullopt;
  return Cut{atom, cut, border};
}

}  // namespace tilewright::transform
