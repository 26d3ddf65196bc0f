#include "compiler/transform/loop_sums.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/structural.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;

const Expr& BeginOf(const Expr& place) {
  return place->kind == ExprKind::kRamp ? place->args[0] : place;
}

bool MayOverlap(const Expr& a, const Expr& b) {
  int64_t apart = 0;
  return !analysis::ConstantDifference(BeginOf(a), BeginOf(b), {}, &apart) ||
         std::abs(apart) < std::max(a->dtype.lanes, b->dtype.lanes);
}

}  // namespace

bool IsPlace(const Expr& index) {
  return !index->dtype.is_vector() ||
         (index->kind == ExprKind::kRamp && ir::IsInt(index->args[1], 1));
}

std::optional<size_t> LoopSums::Find(const Expr& index) const {
  for (size_t i = 0; i < places.size(); ++i) {
    if (ir::StructuralEqual(places[i], index)) return i;
  }
  return std::nullopt;
}

bool LoopSums::AreApart() const {
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (MayOverlap(places[i], places[j])) return false;
    }
  }
  return true;
}

ir::Buffer LoopSums::MakeCopy(std::string name) const {
  int64_t elements = 0;
  for (const Expr& place : places) elements += place->dtype.lanes;
  return ir::MakeBuffer(std::move(name), buffer->dtype, {ir::Int(elements)},
                        ir::Role::kIntermediate, ir::Scope::kLocal);
}

Expr LoopSums::InCopy(size_t i) const {
  int64_t at = 0;
  for (size_t before = 0; before < i; ++before) at += places[before]->dtype.lanes;
  const Expr begin = ir::Int(at, BeginOf(places[i])->dtype);
  return places[i]->dtype.is_vector()
             ? ir::Ramp(begin, ir::Int(1, begin->dtype), places[i]->dtype.lanes)
             : begin;
}

Expr UseCopy::RewriteExpr(const Expr& e) {
  if (e->kind != ExprKind::kLoad || e->buffer != sums_.buffer) return RewriteChildren(e);
  return ir::Load(copy_, {sums_.InCopy(*sums_.Find(e->args[0]))});
}

ir::Stmt UseCopy::RewriteStmt(const ir::Stmt& s) {
  if (s->kind != ir::StmtKind::kStore || s->buffer != sums_.buffer) return RewriteChildren(s);
  return ir::MakeStore(copy_, {sums_.InCopy(*sums_.Find(s->indices[0]))}, RewriteExpr(s->value));
}

}  // namespace tilewright::transform
