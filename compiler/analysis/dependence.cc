#include "compiler/analysis/dependence.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/analysis/access_region.h"
#include "compiler/analysis/linear.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::IterType;
using ir::Stmt;
using ir::StmtKind;
using ir::Var;

void No(std::string* why, std::string text) {
  if (why != nullptr) *why = std::move(text);
}

struct BlockReach {
  Stmt block;
  IterType type = IterType::kSpatial;  // of the strongest iteration variable reached
  bool reached = false;
};

int Strength(IterType type) {
  switch (type) {
    case IterType::kSpatial:
      return 0;
    case IterType::kReduce:
      return 1;
    case IterType::kSequential:
      return 2;
    case IterType::kOpaque:
      return 3;
  }
  return 3;
}

// Blocks directly below (not inside other blocks) and what of them depends on the variable.
std::vector<BlockReach> BlocksBelow(const Stmt& loop) {
  std::vector<BlockReach> found;
  std::vector<Expr> reaching{loop->var};  // the variable and the let variables made of it
  ir::VisitStmts(loop->body, [&](const Stmt& s) {
    auto uses = [&](const Expr& e) {
      return std::any_of(reaching.begin(), reaching.end(),
                         [&](const Var& v) { return ir::UsesVar(e, v); });
    };
    if (s->kind == StmtKind::kLet && uses(s->value)) reaching.push_back(s->var);
    if (s->kind != StmtKind::kBlock) return true;
    BlockReach reach{s, IterType::kSpatial, false};
    for (const ir::IterVar& iter : s->iters) {
      if (!uses(iter.binding)) continue;
      if (!reach.reached || Strength(iter.type) > Strength(reach.type)) reach.type = iter.type;
      reach.reached = true;
    }
    found.push_back(std::move(reach));
    return false;
  });
  return found;
}

bool IsUnit(const Stmt& loop) {
  return ir::IsInt(loop->range.extent, 0) || ir::IsInt(loop->range.extent, 1);
}

bool BlocksAllow(const std::vector<BlockReach>& blocks, std::string* why) {
  for (const BlockReach& b : blocks) {
    if (!b.reached) {
      No(why, "block " + b.block->name + " does the same work in every iteration");
      return false;
    }
    if (b.type != IterType::kSpatial) {
      std::string what = b.type == IterType::kReduce ? "a reduction" : "an ordered";
      No(why, "the loop drives " + what + " variable of block " + b.block->name);
      return false;
    }
  }
  return true;
}

// The buffers stored below, except those allocated below.
std::vector<Buffer> SharedWrites(const Stmt& body) {
  std::vector<Buffer> stored, local;
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kAlloc) local.push_back(s->buffer);
    if (s->kind == StmtKind::kStore &&
        std::find(stored.begin(), stored.end(), s->buffer) == stored.end()) {
      stored.push_back(s->buffer);
    }
    return true;
  });
  std::erase_if(stored, [&](const Buffer& b) {
    return std::find(local.begin(), local.end(), b) != local.end();
  });
  return stored;
}

// The row-major position of an access; null when the shape is symbolic and there are several
// indices.
Expr Position(const Buffer& buffer, const std::vector<Expr>& indices) {
  if (indices.size() == 1) return indices[0];
  Expr position = ir::Int(0);
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d]->dtype != ir::kI64 || (d > 0 && ir::AsInt(buffer->shape[d]) == nullptr))
      return nullptr;
    position = d == 0 ? indices[0] : position * buffer->shape[d] + indices[d];
  }
  return position;
}

// Iteration v of the loop stays within [c v + lo, c v + lo + span] with span < |c|, in the
// row-major position or in one of the dimensions, for every access: no two iterations meet.
bool DisjointAlong(const std::vector<Expr>& positions, const Stmt& loop,
                   const std::vector<LoopRange>& inner, const Bounds& bounds, const Expr& extent) {
  std::optional<int64_t> coefficient;
  std::vector<std::vector<Expr>> rests;
  Bounds all = bounds;
  for (const LoopRange& l : inner) all.SetRange(l.var, l.range);
  for (const Expr& position : positions) {
    Expr p = Simplify(position, all);
    // A vector index: the loop must move its base, the lanes are part of what one iteration
    // touches.
    Expr base =
        p->kind == ir::ExprKind::kRamp || p->kind == ir::ExprKind::kBroadcast ? p->args[0] : p;
    if (base->dtype.is_vector()) return false;
    std::optional<int64_t> c = StrideOf(base, loop->var);
    if (!c || *c == 0 || *c == INT64_MIN || (coefficient && *coefficient != *c)) return false;
    coefficient = c;
    Expr rest = Simplify(base - loop->var * ir::Int(*c, base->dtype), all);
    if (p->kind == ir::ExprKind::kRamp) rest = ir::Ramp(rest, p->args[1], p->dtype.lanes);
    rests.push_back({rest});
  }
  if (!coefficient) return false;
  Buffer line = ir::MakeBuffer("line", ir::kF32, {extent});
  std::vector<LoopRange> without_loop = inner;
  ir::BufferRegion r = RegionOf(line, rests, without_loop, bounds);
  const int64_t* touched = ir::AsInt(r.region[0].extent);
  return touched != nullptr && (*touched <= *coefficient || *touched <= -*coefficient);
}

bool StoresAllow(const Stmt& loop, std::string* why) {
  Bounds bounds;
  bounds.SetRange(loop->var, loop->range);
  for (const Buffer& buffer : SharedWrites(loop->body)) {
    std::vector<StmtAccess> accesses = AccessesOf(loop->body, buffer);
    std::vector<LoopRange> inner;
    for (const StmtAccess& a : accesses) {
      for (const LoopRange& l : a.inner) {
        bool known = std::any_of(inner.begin(), inner.end(),
                                 [&](const LoopRange& k) { return k.var == l.var; });
        if (!known) inner.push_back(l);
      }
    }
    // Large enough that the region is never cut to the dimension.
    const Expr unbounded = ir::Int(int64_t{1} << 60);
    bool disjoint = false;
    std::vector<Expr> positions;
    for (const StmtAccess& a : accesses) positions.push_back(Position(buffer, a.indices));
    bool flat =
        std::all_of(positions.begin(), positions.end(), [](const Expr& p) { return p != nullptr; });
    if (flat) disjoint = DisjointAlong(positions, loop, inner, bounds, unbounded);
    for (size_t d = 0; d < buffer->shape.size() && !disjoint; ++d) {
      std::vector<Expr> along;
      for (const StmtAccess& a : accesses) {
        if (d < a.indices.size()) along.push_back(a.indices[d]);
      }
      disjoint =
          along.size() == accesses.size() && DisjointAlong(along, loop, inner, bounds, unbounded);
    }
    if (!disjoint) {
      No(why, "iterations may touch the same elements of " + buffer->name);
      return false;
    }
  }
  return true;
}

bool HasStores(const Stmt& body) {
  bool found = false;
  ir::VisitStmts(body, [&](const Stmt& s) {
    found |= s->kind == StmtKind::kStore;
    return s->kind != StmtKind::kBlock;
  });
  return found;
}

}  // namespace

bool IsParallelisable(const Stmt& loop, std::string* why) {
  if (loop->kind != StmtKind::kFor) {
    No(why, "expected a loop");
    return false;
  }
  if (IsUnit(loop)) return true;
  std::vector<BlockReach> blocks = BlocksBelow(loop);
  if (!BlocksAllow(blocks, why)) return false;
  if (!blocks.empty() && !HasStores(loop->body)) return true;
  return StoresAllow(loop, why);
}

bool IsReductionLoop(const Stmt& loop) {
  if (loop->kind != StmtKind::kFor) return false;
  for (const BlockReach& b : BlocksBelow(loop)) {
    if (b.reached && b.type == IterType::kReduce) return true;
  }
  return false;
}

IterType LoopIterType(const Stmt& loop) {
  if (IsUnit(loop)) return IterType::kSpatial;
  IterType type = IterType::kSpatial;
  bool reached = false;
  for (const BlockReach& b : BlocksBelow(loop)) {
    if (!b.reached) continue;
    reached = true;
    if (Strength(b.type) > Strength(type)) type = b.type;
  }
  return reached ? type : IterType::kSequential;
}

}  // namespace tilewright::analysis
