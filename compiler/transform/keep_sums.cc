// TRANSFORMATIONS of keep_sums (kFlat → kFlat), for sums that lie in a buffer of the function while
// an innermost loop adds to them, as those within the steps of a scan do:
//   for k in 0..n { S[ramp(j·8, 1, 8)] = fma(…, S[ramp(j·8, 1, 8)]) }
//     → alloc kept: f32[8] local {
//         kept[ramp(0, 1, 8)] = S[ramp(j·8, 1, 8)];
//         for k in 0..n { kept[ramp(0, 1, 8)] = fma(…, kept[ramp(0, 1, 8)]) }
//         S[ramp(j·8, 1, 8)] = kept[ramp(0, 1, 8)];
//       }
// In registers a step waits for the one before it as long as an addition takes; in memory it also
// waits until what was written can be read. Only where the loop does nothing else, where all that
// it touches of the buffer are these places, which do not overlap, and where they fit the
// registers.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"
#include "deploy/support/strings.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

constexpr int kOtherRegisters = 2;  // for factors

// The places of one buffer that a loop adds to.
struct Sums {
  Buffer buffer;
  std::vector<Expr> places;  // indices: an integer, or a ramp of stride 1

  std::optional<size_t> Find(const Expr& index) const {
    for (size_t i = 0; i < places.size(); ++i) {
      if (ir::StructuralEqual(places[i], index)) return i;
    }
    return std::nullopt;
  }
};

const Expr& BeginOf(const Expr& place) {
  return place->kind == ExprKind::kRamp ? place->args[0] : place;
}

bool Overlap(const Expr& a, const Expr& b) {
  int64_t apart = 0;
  return !analysis::ConstantDifference(BeginOf(a), BeginOf(b), {}, &apart) ||
         std::abs(apart) < std::max(a->dtype.lanes, b->dtype.lanes);
}

// What a loop over `var` with this body adds to, if that is all that it does.
std::optional<Sums> SumsOf(const Stmt& body, const ir::Var& var) {
  const std::vector<Stmt> stmts =
      body->kind == StmtKind::kSeq ? body->stmts : std::vector<Stmt>{body};
  Sums sums;
  for (const Stmt& s : stmts) {
    if (s->kind != StmtKind::kStore || s->mask != nullptr || s->indices.size() != 1) return {};
    if (sums.buffer == nullptr) sums.buffer = s->buffer;
    const Expr& place = s->indices[0];
    const bool vector = place->dtype.is_vector();
    if (s->buffer != sums.buffer || ir::UsesVar(place, var) || ir::HasLoad(place) ||
        (vector && (place->kind != ExprKind::kRamp || !ir::IsInt(place->args[1], 1)))) {
      return {};
    }
    if (!sums.Find(place)) sums.places.push_back(place);
  }
  if (sums.buffer == nullptr || sums.buffer->role != ir::Role::kIntermediate ||
      sums.buffer->scope != ir::Scope::kGlobal) {
    return {};
  }
  // Each is read where it is written, and nothing else of the buffer is.
  bool adds = false, others = false;
  for (const Stmt& s : stmts) {
    ir::VisitExprs(s->value, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad || e->buffer != sums.buffer) return true;
      const bool known = e->mask == nullptr && e->args.size() == 1 && sums.Find(e->args[0]);
      adds = adds || known;
      others = others || !known;
      return true;
    });
  }
  if (!adds || others) return {};
  for (size_t i = 0; i < sums.places.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(sums.places[i], sums.places[j])) return {};
    }
  }
  return sums;
}

// Loads and stores of the places become those of the copy.
class Redirect : public ir::Rewriter {
 public:
  Redirect(const Sums& sums, Buffer copy) : sums_(sums), copy_(std::move(copy)) {}

  Expr At(size_t place) const {
    int64_t at = 0;
    for (size_t i = 0; i < place; ++i) at += sums_.places[i]->dtype.lanes;
    const Expr& index = sums_.places[place];
    const Expr begin = ir::Int(at, BeginOf(index)->dtype);
    return index->dtype.is_vector() ? ir::Ramp(begin, ir::Int(1, begin->dtype), index->dtype.lanes)
                                    : begin;
  }
  Expr RewriteExpr(const Expr& e) override {
    if (e->kind != ExprKind::kLoad || e->buffer != sums_.buffer) return RewriteChildren(e);
    return ir::Load(copy_, {At(*sums_.Find(e->args[0]))});
  }
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kStore) return RewriteChildren(s);
    return ir::MakeStore(copy_, {At(*sums_.Find(s->indices[0]))}, RewriteExpr(s->value));
  }

 private:
  const Sums& sums_;
  const Buffer copy_;
};

class SumKeeper : public ir::Rewriter {
 public:
  SumKeeper(const Function& f, const target::Machine& machine) : cloner_(f), machine_(machine) {}

  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kFor || s->for_kind != ir::ForKind::kSerial || HasLoop(s->body)) {
      return RewriteChildren(s);
    }
    const int64_t* turns = ir::AsInt(s->range.extent);
    if (turns == nullptr || *turns < 2) return s;
    const std::optional<Sums> sums = SumsOf(s->body, s->var);
    if (!sums) return s;
    const auto registers = static_cast<size_t>(machine_.vector_registers - kOtherRegisters);
    if (sums->places.size() > registers) return s;
    int64_t elements = 0;
    for (const Expr& place : sums->places) elements += place->dtype.lanes;
    const Buffer copy =
        ir::MakeBuffer(cloner_.UnusedName(sums->buffer->name + "_kept"), sums->buffer->dtype,
                       {ir::Int(elements)}, ir::Role::kIntermediate, ir::Scope::kLocal);
    Redirect redirect(*sums, copy);
    std::vector<Stmt> stmts, after;
    for (size_t i = 0; i < sums->places.size(); ++i) {
      const Expr& place = sums->places[i];
      stmts.push_back(ir::MakeStore(copy, {redirect.At(i)}, ir::Load(sums->buffer, {place})));
      after.push_back(ir::MakeStore(sums->buffer, {place}, ir::Load(copy, {redirect.At(i)})));
    }
    stmts.push_back(ir::MakeFor(s->var, s->range.min, s->range.extent,
                                redirect.RewriteStmt(s->body), s->for_kind, s->annotations));
    stmts.insert(stmts.end(), after.begin(), after.end());
    return ir::MakeAlloc(copy, ir::MakeSeq(std::move(stmts)));
  }

 private:
  Cloner cloner_;
  const target::Machine& machine_;
};

}  // namespace

absl::StatusOr<Function> KeepSums(const Function& f, const PassContext& ctx) {
  Function result = f;
  result.body = SumKeeper(f, ctx.target.machine).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
