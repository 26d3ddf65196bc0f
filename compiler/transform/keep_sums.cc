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
#include <optional>
#include <vector>

#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/loop_sums.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

constexpr int kOtherRegisters = 2;  // for factors

// What a loop over `var` with this body adds to, if that is all that it does.
std::optional<LoopSums> SumsOf(const Stmt& body, const ir::Var& var) {
  const std::vector<Stmt> stmts =
      body->kind == StmtKind::kSeq ? body->stmts : std::vector<Stmt>{body};
  LoopSums sums;
  for (const Stmt& s : stmts) {
    if (s->kind != StmtKind::kStore || s->mask != nullptr || s->indices.size() != 1) return {};
    if (sums.buffer == nullptr) sums.buffer = s->buffer;
    const Expr& place = s->indices[0];
    if (s->buffer != sums.buffer || !IsPlace(place) || ir::UsesVar(place, var) ||
        ir::HasLoad(place)) {
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
  if (!adds || others || !sums.AreApart()) return {};
  return sums;
}

class SumKeeper : public ir::Rewriter {
 public:
  SumKeeper(const Function& f, const target::Machine& machine) : cloner_(f), machine_(machine) {}

  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kFor || s->for_kind != ir::ForKind::kSerial || HasLoop(s->body)) {
      return RewriteChildren(s);
    }
    const int64_t* turns = ir::AsInt(s->range.extent);
    if (turns == nullptr || *turns < 2) return s;
    const std::optional<LoopSums> sums = SumsOf(s->body, s->var);
    if (!sums) return s;
    const auto registers = static_cast<size_t>(machine_.vector_registers - kOtherRegisters);
    if (sums->places.size() > registers) return s;
    const Buffer copy = sums->MakeCopy(cloner_.UnusedName(sums->buffer->name + "_kept"));
    UseCopy use_copy(*sums, copy);
    std::vector<Stmt> stmts, after;
    for (size_t i = 0; i < sums->places.size(); ++i) {
      const Expr& place = sums->places[i];
      stmts.push_back(ir::MakeStore(copy, {sums->InCopy(i)}, ir::Load(sums->buffer, {place})));
      after.push_back(ir::MakeStore(sums->buffer, {place}, ir::Load(copy, {sums->InCopy(i)})));
    }
    stmts.push_back(ir::MakeFor(s->var, s->range.min, s->range.extent,
                                use_copy.RewriteStmt(s->body), s->for_kind, s->annotations));
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
