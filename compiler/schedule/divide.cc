// divide: the last iterations of some nests become nests of their own.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// A nest that is divided at its outermost loop.
struct DividedNest {
  std::vector<Stmt> loops;  // outermost first
  Stmt block;
  size_t iter = 0;  // of the block: what the outermost loop is
  const ir::Var& var() const { return block->iters[iter].var; }
};

// Serial loops from 0 to numbers, around one block without a predicate, at the top of the function.
// The outermost is one spatial iterator and nothing else.
std::optional<DividedNest> PlainNest(const Path& path) {
  DividedNest nest;
  const bool top = path.size() == 1 || (path.size() == 2 && path[0]->kind == ir::StmtKind::kSeq);
  if (!top) return std::nullopt;
  Stmt at = path.back();
  for (; at->kind == ir::StmtKind::kFor; at = at->body) {
    if (at->for_kind != ir::ForKind::kSerial || !ir::IsInt(at->range.min, 0) ||
        ir::AsInt(at->range.extent) == nullptr) {
      return std::nullopt;
    }
    nest.loops.push_back(at);
  }
  if (at->kind != ir::StmtKind::kBlock || at->predicate != nullptr || HasLoops(at->body))
    return std::nullopt;
  nest.block = at;
  const Stmt& loop = nest.loops[0];
  int feeds = 0;
  for (size_t i = 0; i < at->iters.size(); ++i) {
    const ir::IterVar& iter = at->iters[i];
    if (iter.type != ir::IterType::kSpatial && iter.type != ir::IterType::kReduce)
      return std::nullopt;
    if (!ir::UsesVar(iter.binding, loop->var)) continue;
    const int64_t* extent = ir::AsInt(iter.domain.extent);
    const bool whole = iter.binding == loop->var && iter.type == ir::IterType::kSpatial &&
                       ir::IsInt(iter.domain.min, 0) && extent != nullptr &&
                       *extent == *ir::AsInt(loop->range.extent);
    if (!whole) return std::nullopt;
    nest.iter = i;
    ++feeds;
  }
  return feeds == 1 ? std::optional(nest) : std::nullopt;
}

absl::StatusOr<std::vector<DividedNest>> FindNests(const Schedule& s, const Step& step) {
  std::vector<DividedNest> nests;
  size_t place = 0;  // in the sequence
  for (size_t i = 0; i < step.handles.size(); ++i) {
    TW_ASSIGN(Path path, LoopPath(s, step, i));
    std::optional<DividedNest> nest = PlainNest(path);
    if (!nest.has_value()) {
      return Refuse(step, "form",
                    StrCat("expected a nest at the top of serial loops around one block, whose "
                           "outermost loop is a spatial iterator, found another at ",
                           path.back()->var->name),
                    path.back());
    }
    size_t at = 0;
    while (path.size() > 1 && path[0]->stmts[at] != path[1]) ++at;
    if (i > 0 && at != place + 1) {
      return Refuse(step, "not_consecutive",
                    "expected nests that follow each other, in their order, found others", path[0]);
    }
    place = at;
    const int64_t extent = *ir::AsInt(path.back()->range.extent);
    const int64_t first =
        *ir::AsInt(i == 0 ? path.back()->range.extent : nests[0].loops[0]->range.extent);
    const bool inside = step.factors.size() == 1 && step.factors[0] > 0 && step.factors[0] < first;
    if (!inside || extent != first) {
      return Refuse(step, "extent",
                    StrCat("expected one number of iterations below the extent of all named "
                           "loops, found extents ",
                           first, " and ", extent),
                    path.back());
    }
    nests.push_back(*std::move(nest));
  }
  return nests;
}

// A buffer that the nests write: the dimension that their outermost loops are, and its two parts.
struct DividedBuffer {
  size_t dim = 0;
  ir::Buffer main, rest;  // the same buffer where it leaves the function
};
using DividedBuffers = std::map<const ir::BufferNode*, DividedBuffer>;

// Calls f(buffer, indices) for each access of the block's init and body.
template <typename F>
void VisitAccesses(const StmtNode& block, const F& f) {
  for (const Stmt& part : {block.init, block.body}) {
    if (part == nullptr) continue;
    ir::VisitStmts(part, [&](const Stmt& store) {
      if (store->kind == ir::StmtKind::kStore) f(store->buffer, store->indices);
      return true;
    });
    ir::VisitExprsIn(part, [&](const Expr& e) {
      if (e->kind == ir::ExprKind::kLoad) f(e->buffer, e->args);
      return true;
    });
  }
}

// Returns the dimension in which all accesses of `buffer` have the iterator of their nest; nullopt
// if there is none.
std::optional<size_t> OwnDimension(const std::vector<DividedNest>& nests,
                                   const ir::Buffer& buffer) {
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    bool own = true;
    for (const DividedNest& nest : nests) {
      VisitAccesses(*nest.block, [&](const ir::Buffer& b, const std::vector<Expr>& indices) {
        own = own && (b != buffer || indices[d] == nest.var());
      });
      for (const auto* regions : {&nest.block->reads, &nest.block->writes}) {
        for (const ir::BufferRegion& r : *regions) {
          own = own && (r.buffer != buffer ||
                        (r.region[d].min == nest.var() && ir::IsInt(r.region[d].extent, 1)));
        }
      }
    }
    if (own) return d;
  }
  return std::nullopt;
}

absl::StatusOr<DividedBuffers> FindParts(const Schedule& s, const Step& step,
                                         const std::vector<DividedNest>& nests) {
  DividedBuffers parts;
  const auto named = [&](const Stmt& block) {
    return std::any_of(nests.begin(), nests.end(),
                       [&](const DividedNest& n) { return n.block == block; });
  };
  for (const DividedNest& nest : nests) {
    for (const ir::BufferRegion& w : nest.block->writes) {
      for (const BlockSite& site : BlocksIn(s.function().body)) {
        const bool touches = Reads(*site.block, w.buffer) || Writes(*site.block, w.buffer);
        if (!touches || named(site.block)) continue;
        return Refuse(step, "used_elsewhere",
                      StrCat("expected that only the named nests use ", w.buffer->name,
                             ", found that ", site.block->name, " does"),
                      nest.loops[0]);
      }
      const std::optional<size_t> dim = OwnDimension(nests, w.buffer);
      if (!dim.has_value()) {
        return Refuse(step, "not_apart",
                      StrCat("expected that each iteration has elements of ", w.buffer->name,
                             " of its own, in one dimension, found none"),
                      nest.loops[0]);
      }
      parts[w.buffer.get()] = {*dim, w.buffer, w.buffer};
    }
  }
  return parts;
}

// Accesses of parts: the other buffer, and in the rest the iterator instead of its old value.
class PartAccess : public ir::Rewriter {
 public:
  PartAccess(const DividedBuffers& parts, bool rest, Expr index)
      : parts_(parts), rest_(rest), index_(std::move(index)) {}
  Expr RewriteExpr(const Expr& e) override {
    const Expr r = RewriteChildren(e);
    if (r->kind != ir::ExprKind::kLoad || !IsSplit(r->buffer)) return r;
    return ir::Load(PartOf(r->buffer), At(r->buffer, r->args), r->mask);
  }
  Stmt RewriteStmt(const Stmt& s) override {
    const Stmt r = RewriteChildren(s);
    if (r->kind != ir::StmtKind::kStore || !IsSplit(r->buffer)) return r;
    return ir::MakeStore(PartOf(r->buffer), At(r->buffer, r->indices), r->value, r->mask);
  }
  void Rewrite(std::vector<ir::BufferRegion>* regions) const {
    for (ir::BufferRegion& r : *regions) {
      if (!IsSplit(r.buffer)) continue;
      if (rest_) r.region[parts_.at(r.buffer.get()).dim].min = index_;
      r.buffer = PartOf(r.buffer);
    }
  }

 private:
  bool IsSplit(const ir::Buffer& buffer) const {
    const auto part = parts_.find(buffer.get());
    return part != parts_.end() && part->second.main != part->second.rest;
  }
  ir::Buffer PartOf(const ir::Buffer& buffer) const {
    const DividedBuffer& part = parts_.at(buffer.get());
    return rest_ ? part.rest : part.main;
  }
  std::vector<Expr> At(const ir::Buffer& buffer, std::vector<Expr> indices) const {
    if (rest_) indices[parts_.at(buffer.get()).dim] = index_;
    return indices;
  }

  const DividedBuffers& parts_;
  const bool rest_;
  const Expr index_;
};

Stmt LoopsAround(Stmt body, const std::vector<Stmt>& loops, const std::vector<ir::Var>& vars,
                 const Expr& outermost) {
  for (size_t i = loops.size(); i-- > 0;) {
    body = ir::MakeFor(vars[i], loops[i]->range.min, i == 0 ? outermost : loops[i]->range.extent,
                       std::move(body), loops[i]->for_kind, loops[i]->annotations);
  }
  return body;
}

// The first iterations, with the loops and names of the nest.
Stmt MainNest(const DividedNest& nest, const DividedBuffers& parts, const Expr& count) {
  StmtNode block = *nest.block;
  block.iters[nest.iter].domain.extent = count;
  PartAccess access(parts, /*rest=*/false, nest.var());
  if (block.init != nullptr) block.init = access.RewriteStmt(block.init);
  block.body = access.RewriteStmt(block.body);
  access.Rewrite(&block.reads);
  access.Rewrite(&block.writes);
  return LoopsAround(ir::MakeBlock(std::move(block)), nest.loops, VarsOf(nest.loops), count);
}

struct RestNest {
  Stmt nest;
  std::string block;
  std::vector<ir::Var> loops;
};
// The other iterations, from 0 on: `first` comes on top of the iterator wherever it was used.
RestNest MakeRest(Schedule& s, const DividedNest& nest, const DividedBuffers& parts,
                  const Expr& first, const Expr& count) {
  RestNest rest;
  StmtNode block = *nest.block;
  rest.block = block.name = s.UniqueName(block.name + "_rest");
  ir::VarMap loops, iters;
  for (const Stmt& l : nest.loops) {
    rest.loops.push_back(ir::MakeVar(s.UniqueName(l->var->name + "_r"), l->var->dtype));
    loops[l->var.get()] = rest.loops.back();
  }
  for (size_t i = 0; i < block.iters.size(); ++i) {
    ir::IterVar& iter = block.iters[i];
    const ir::Var var = ir::MakeVar(s.UniqueName(iter.var->name + "_r"), iter.var->dtype);
    iters[iter.var.get()] = i == nest.iter ? var + first : Expr(var);
    iter.var = var;
    iter.binding = ir::Substitute(iter.binding, loops);
    if (i == nest.iter) iter.domain.extent = count;
  }
  PartAccess access(parts, /*rest=*/true, block.iters[nest.iter].var);
  const auto moved = [&](const Stmt& part) {
    return part == nullptr ? part : access.RewriteStmt(ir::Substitute(part, iters));
  };
  block.init = moved(block.init);
  block.body = moved(block.body);
  for (auto* regions : {&block.reads, &block.writes}) {
    for (ir::BufferRegion& r : *regions) {
      for (ir::Range& d : r.region) {
        d = {ir::Substitute(d.min, iters), ir::Substitute(d.extent, iters)};
      }
    }
    access.Rewrite(regions);
  }
  rest.nest = LoopsAround(ir::MakeBlock(std::move(block)), nest.loops, rest.loops, count);
  return rest;
}

// Intermediates become two buffers of the lengths that the parts have.
void SplitBuffers(Schedule& s, const Expr& count, const Expr& rest, DividedBuffers* parts) {
  std::vector<ir::Buffer>& allocs = s.mutable_function().allocs;
  std::vector<ir::Buffer> added;
  for (ir::Buffer& buffer : allocs) {
    const auto found = parts->find(buffer.get());
    if (found == parts->end()) continue;
    DividedBuffer& part = found->second;
    auto main = std::make_shared<ir::BufferNode>(*buffer);
    auto other = std::make_shared<ir::BufferNode>(*buffer);
    other->name = s.UniqueName(buffer->name + "_rest");
    main->shape[part.dim] = count;
    other->shape[part.dim] = rest;
    part.main = main, part.rest = other;
    buffer = main;
    added.push_back(other);
  }
  allocs.insert(allocs.end(), added.begin(), added.end());
}

}  // namespace

absl::Status ApplyDivide(Schedule& s, const Step& step) {
  TW_ASSIGN(std::vector<DividedNest> nests, FindNests(s, step));
  TW_ASSIGN(DividedBuffers parts, FindParts(s, step, nests));
  const ir::Var& loop = nests[0].loops[0]->var;
  const Expr count = ir::Int(step.factors[0], loop->dtype);
  const Expr others =
      ir::Int(*ir::AsInt(nests[0].loops[0]->range.extent) - step.factors[0], loop->dtype);
  Stmt body = s.function().body;
  const size_t depth = FindLoop(body, loop).size() - 1;
  SplitBuffers(s, count, others, &parts);
  std::vector<RestNest> rests;
  for (size_t i = 0; i < nests.size(); ++i) {
    std::vector<Stmt> now = {MainNest(nests[i], parts, count)};
    rests.push_back(MakeRest(s, nests[i], parts, count, others));
    // All rests follow the last nest.
    for (const RestNest& rest : rests) {
      if (i + 1 == nests.size()) now.push_back(rest.nest);
    }
    body = ReplaceAt(FindLoop(body, nests[i].loops[0]->var), depth, ir::MakeSeq(std::move(now)));
  }
  s.SetBody(std::move(body));
  for (const RestNest& rest : rests) {
    s.AddBlock(rest.block);
    for (const ir::Var& v : rest.loops) s.AddLoop(v);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
