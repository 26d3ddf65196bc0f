// TRANSFORMATIONS of prefetch_constants (kLoops → kLoops), for constants that no cache of a core
// holds from one call to the next: a network's weights come from the last level or from memory, and
// the stream of a register tile is too sparse, and crosses too many pages, for the hardware to run
// ahead of it far enough.
//   for k in 0..n { … W[ramp(k·16, 1, 16)] … }
//     → for k in 0..n { prefetch(W[k·16 + 2048]); … W[ramp(k·16, 1, 16)] … }
// Only in loops without loops inside, and for vectors of loads that move with the loop.
#include <algorithm>
#include <vector>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// Constants from this size on are far away when a network comes round to them again.
constexpr int64_t kFarBytes = 256 << 10;
// How far ahead: longer than memory takes to answer while a tile multiplies what came before (tuned
// ResNet-18 at 2, 4, 8, 16, 32 KB: 9.2, 8.4, 8.2, 8.7, 9.2 ms).
constexpr int64_t kAheadBytes = 8192;
// A vector that is multiplied fewer times than this arrives as fast as it can already: memory's
// bandwidth, not its latency, is what such a loop waits for.
constexpr size_t kMinUses = 8;

bool IsFar(const ir::Buffer& buffer) {
  if (buffer->role != ir::Role::kConstant || buffer->scope != ir::Scope::kGlobal) return false;
  int64_t bytes = buffer->dtype.bytes();
  for (const Expr& dim : buffer->shape) {
    const int64_t* extent = ir::AsInt(dim);
    if (extent == nullptr) return true;
    bytes *= *extent;
  }
  return bytes >= kFarBytes;
}

class Prefetcher : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kFor || HasLoop(s->body)) return RewriteChildren(s);
    std::vector<Expr> streams;
    size_t uses = 0;
    ir::VisitStmts(s->body, [&](const Stmt& part) {
      if (part->kind == StmtKind::kStore) uses += Collect(part->value, s->var, &streams);
      return true;
    });
    if (streams.empty() || uses < kMinUses * streams.size()) return s;
    std::vector<Stmt> body;
    for (const Expr& load : streams) {
      const Expr base = load->args[0]->args[0];
      const Expr ahead = base + ir::Int(kAheadBytes / load->buffer->dtype.bytes(), base->dtype);
      body.push_back(
          ir::MakeEvaluate(ir::Call(ir::Intrinsic::kPrefetch, {ir::Load(load->buffer, {ahead})})));
    }
    body.push_back(s->body);
    return ir::MakeFor(s->var, s->range.min, s->range.extent, ir::MakeSeq(std::move(body)),
                       s->for_kind, s->annotations);
  }

 private:
  // Adds what is new of the far vectors in `value`; how many it has.
  static size_t Collect(const Expr& value, const ir::Var& loop, std::vector<Expr>* streams) {
    size_t uses = 0;
    ir::VisitExprs(value, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad || e->args.size() != 1 || !IsFar(e->buffer)) return true;
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
};

}  // namespace

absl::StatusOr<Function> PrefetchConstants(const Function& f, const PassContext&) {
  Function result = f;
  result.body = Prefetcher().RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
