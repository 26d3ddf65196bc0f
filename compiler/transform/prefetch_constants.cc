// TRANSFORMATIONS of prefetch_constants (kLoops → kLoops), for constants that no cache of a core
// holds from one call to the next: a network's weights come from the last level or from memory, and
// the stream of a register tile is too sparse, and crosses too many pages, for the hardware to run
// ahead of it far enough.
//   for k in 0..n { … W[ramp(k·16, 1, 16)] … }
//     → for k in 0..n { prefetch(W[k·16 + 2048]); … W[ramp(k·16, 1, 16)] … }
// Only in loops without loops inside, for vectors of loads that move with the loop, and where these
// are used often enough: a vector of words that are four bytes each counts four times in a dot
// product. Of vectors that share a cache line one is asked for.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

bool IsFar(const ir::Buffer& buffer, int64_t from_bytes) {
  if (buffer->role != ir::Role::kConstant || buffer->scope != ir::Scope::kGlobal) return false;
  int64_t bytes = buffer->dtype.bytes();
  for (const Expr& dim : buffer->shape) {
    const int64_t* extent = ir::AsInt(dim);
    if (extent == nullptr) return true;
    bytes *= *extent;
  }
  return bytes >= from_bytes;
}

class Prefetcher : public ir::Rewriter {
 public:
  explicit Prefetcher(const target::Machine& machine)
      : machine_(machine.prefetch), line_bytes_(machine.l1.line_bytes) {}

  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kFor || HasLoop(s->body)) return RewriteChildren(s);
    std::vector<Expr> streams;
    int64_t uses = 0;
    ir::VisitStmts(s->body, [&](const Stmt& part) {
      if (part->kind == StmtKind::kStore) uses += Collect(part->value, s->var, &streams);
      return true;
    });
    if (streams.empty() || uses < machine_.least_uses * std::ssize(streams)) return s;
    std::vector<Stmt> body;
    std::vector<Expr> asked;
    for (const Expr& load : streams) {
      const bool known = std::any_of(asked.begin(), asked.end(),
                                     [&](const Expr& other) { return InOneLine(load, other); });
      if (known) continue;
      asked.push_back(load);
      const Expr base = load->args[0]->args[0];
      const Expr ahead =
          base + ir::Int(machine_.ahead_bytes / load->buffer->dtype.bytes(), base->dtype);
      body.push_back(
          ir::MakeEvaluate(ir::Call(ir::Intrinsic::kPrefetch, {ir::Load(load->buffer, {ahead})})));
    }
    body.push_back(s->body);
    return ir::MakeFor(s->var, s->range.min, s->range.extent, ir::MakeSeq(std::move(body)),
                       s->for_kind, s->annotations);
  }

 private:
  // Adds what is new of the far vectors in `value`; how many it has.
  int64_t Collect(const Expr& value, const ir::Var& loop, std::vector<Expr>* streams) const {
    int64_t uses = 0;
    ir::VisitExprs(value, [&](const Expr& e) {
      if (e->kind == ExprKind::kCall && e->intrinsic == ir::Intrinsic::kDot4 &&
          e->args[2]->dtype.bits == 32) {
        uses += (ir::kDotTerms - 1) * Collect(e->args[2], loop, streams);
      }
      if (e->kind != ExprKind::kLoad || e->args.size() != 1 ||
          !IsFar(e->buffer, machine_.from_bytes)) {
        return true;
      }
      const Expr& index = e->args[0];
      const bool contiguous = index->kind == ExprKind::kRamp && ir::IsInt(index->args[1], 1);
      if (!contiguous || !ir::UsesVar(index, loop)) return true;
      const bool known = std::any_of(streams->begin(), streams->end(), [&](const Expr& other) {
        return other->buffer == e->buffer && ir::StructuralEqual(other->args[0], index);
      });
      if (!known) streams->push_back(e);
      ++uses;
      return true;
    });
    return uses;
  }

  bool InOneLine(const Expr& a, const Expr& b) const {
    int64_t apart = 0;
    return a->buffer == b->buffer &&
           analysis::ConstantDifference(a->args[0]->args[0], b->args[0]->args[0], {}, &apart) &&
           std::abs(apart) * a->buffer->dtype.bytes() < line_bytes_;
  }

  const target::ConstantPrefetch& machine_;
  const int64_t line_bytes_;
};

}  // namespace

absl::StatusOr<Function> PrefetchConstants(const Function& f, const PassContext& ctx) {
  Function result = f;
  result.body = Prefetcher(ctx.target.machine).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
