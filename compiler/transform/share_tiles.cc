// TRANSFORMATIONS of share_tiles (kLoops → kLoops), for block loops marked groups=G with G < T,
// the innermost of their launch
//
//   for b blockIdx.x in 0..T { S }
//     → for b' blockIdx.x in 0..G {
//         for r in 0..floordiv(T - 1 - b', G) + 1 { S[b := r*G + b'] } }
//
// A launch has as many groups as the machine runs at a time, and each does its share of the tiles.
// Groups that run at the same time do tiles next to each other, which read the same memory. Where G
// does not divide T, the last groups have one tile fewer. The extent is the same for all threads of
// a group, so barriers may stand inside.
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/thread_regions.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::Stmt;

class TileSharer : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != ir::StmtKind::kFor || !ir::IsBlockAxis(s->for_kind)) return RewriteChildren(s);
    const auto mark = s->annotations.find("groups");
    if (mark == s->annotations.end()) return RewriteChildren(s);
    const auto* groups = std::get_if<int64_t>(&mark->second);
    const int64_t* tiles = ir::AsInt(s->range.extent);
    // Block axes stay one nest: only the innermost is shared out.
    const bool shares = !HasLoop(s->body, ir::IsBlockAxis) && groups != nullptr && *groups > 0 &&
                        tiles != nullptr && *tiles > *groups && ir::IsInt(s->range.min, 0);
    if (!shares) return RewriteChildren(s);
    ir::Annotations others = s->annotations;
    others.erase("groups");
    const ir::DType type = s->var->dtype;
    const ir::Var group = ir::MakeVar(s->var->name + "_group", type);
    const ir::Var round = ir::MakeVar(s->var->name + "_round", type);
    const Expr step = ir::Int(*groups, type);
    const Expr rounds = ir::FloorDiv(ir::Int(*tiles - 1, type) - group, step) + ir::Int(1, type);
    const Stmt tile = ir::Substitute(RewriteStmt(s->body), {{s->var.get(), round * step + group}});
    return ir::MakeFor(group, s->range.min, step,
                       ir::MakeFor(round, ir::Int(0, type), rounds, tile), s->for_kind, others);
  }
};

}  // namespace

absl::StatusOr<Function> ShareTiles(const Function& f, const PassContext&) {
  Function result = f;
  result.body = TileSharer().RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
