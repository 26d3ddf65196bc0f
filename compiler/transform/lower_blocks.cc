// TRANSFORMATIONS of lower_blocks (kScheduled → kLoops)
//   block b(v = e) where p { init; body }
//     → init (spatial loops repeated around it) right before the outermost loop that feeds a reduce
//       iterator, and if p[v := e] { body[v := e] } in the block's place, when nothing else there
//       touches what init writes; else
//     → if p { if every reduce iterator is at its minimum { init }; body }
//   combine (t…) with (v…) by (a…), (b…) = (r…)
//     → let a = t { let b = v { … let n = r { t = n; … } } }: everything is read before anything is
//       stored
//   allocs [B]
//     → alloc B around the smallest statement with every access of B: not inside a vectorised loop,
//       nor inside a loop that carries its values (it feeds an ordered iterator, or a reduction
//       that builds B)
// PassContext::test_miscompile plants its mistakes here, where bounds and inits are made.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/stmt_rewriter.h"
#include "deploy/support/status.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::IterType;
using ir::Stmt;
using ir::StmtKind;

using VarSet = std::set<const ir::ExprNode*>;

void AddVars(const Expr& e, VarSet* vars) {
  ir::VisitExprs(e, [&](const Expr& part) {
    if (part->kind == ir::ExprKind::kVar) vars->insert(part.get());
    return true;
  });
}

Stmt Guarded(const std::vector<Expr>& conditions, Stmt body) {
  if (conditions.empty()) return body;
  return ir::MakeIf(ir::Conjunction(conditions), std::move(body));
}

// A value that no reduction may start from.
Expr WrongIdentity(const Expr& identity) {
  if (!identity->dtype.is_float()) return identity + ir::Int(1, identity->dtype);
  double value = identity->kind == ir::ExprKind::kFloatImm ? identity->float_value : 0;
  if (value == std::numeric_limits<double>::infinity()) return ir::Float(-1e30, identity->dtype);
  if (value == -std::numeric_limits<double>::infinity()) return ir::Float(1e30, identity->dtype);
  return ir::Float(value + 1, identity->dtype);
}

class WrongInit : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind != StmtKind::kStore) return RewriteChildren(s);
    return ir::MakeStore(s->buffer, s->indices, WrongIdentity(s->value), s->mask);
  }
};

// Reads the whole tuple and the values that join it, computes every result, then stores.
Stmt LowerCombine(const Stmt& s) {
  const ir::TupleCombiner& combiner = *s->combiner;
  ir::VarMap values;
  std::vector<std::pair<ir::Var, Expr>> lets;
  auto bind = [&](const ir::Var& var, Expr value) {
    lets.emplace_back(ir::MakeVar(var->name, var->dtype), std::move(value));
    values[var.get()] = lets.back().first;
  };
  for (size_t i = 0; i < s->stmts.size(); ++i) {
    bind(combiner.lhs[i], ir::Load(s->stmts[i]->buffer, s->stmts[i]->indices));
    bind(combiner.rhs[i], s->stmts[i]->value);
  }
  std::vector<Stmt> stores;
  for (size_t i = 0; i < s->stmts.size(); ++i) {
    const Stmt& store = s->stmts[i];
    lets.emplace_back(ir::MakeVar(store->buffer->name + "_next", store->buffer->dtype),
                      ir::Substitute(combiner.results[i], values));
    stores.push_back(ir::MakeStore(store->buffer, store->indices, lets.back().first));
  }
  Stmt result = ir::MakeSeq(std::move(stores));
  for (size_t i = lets.size(); i-- > 0;)
    result = ir::MakeLet(lets[i].first, lets[i].second, std::move(result));
  return result;
}

class BlockLowering : public StmtRewriter {
 public:
  BlockLowering(const ir::Function& f, const PassContext& ctx) : ctx_(ctx), analyzer_(f) {}

  Stmt RewriteStmt(const Stmt& s) override {
    switch (s->kind) {
      case StmtKind::kBlock:
        return LowerBlock(s);
      case StmtKind::kFor:
        return LowerFor(s);
      case StmtKind::kCombine:
        return LowerCombine(s);
      default:
        return RewriteChildren(s);
    }
  }
  bool planted() const { return planted_; }

 private:
  Stmt LowerFor(const Stmt& s) {
    loops_.push_back(s);
    analyzer_.SetRange(s->var, s->range);
    Stmt body = RewriteStmt(s->body);
    loops_.pop_back();
    Stmt loop = ir::MakeFor(s->var, s->range.min, s->range.extent, std::move(body), s->for_kind,
                            s->annotations);
    std::vector<Stmt> stmts;
    for (auto& [before, init] : pending_) {
      if (before == s->var.get()) stmts.push_back(std::move(init));
    }
    std::erase_if(pending_, [&](const auto& p) { return p.first == s->var.get(); });
    stmts.push_back(std::move(loop));
    return ir::MakeSeq(std::move(stmts));
  }

  Stmt LowerBlock(const Stmt& s) {
    ir::VarMap values;
    for (const ir::IterVar& iter : s->iters) values[iter.var.get()] = iter.binding;
    auto bound = [&](const Expr& e) { return ir::Substitute(e, values); };
    std::vector<Expr> predicate;
    for (const Expr& c : ir::Conjuncts(s->predicate)) predicate.push_back(bound(c));
    PlantWrongBound(&predicate);
    Stmt body = ir::Substitute(RewriteStmt(s->body), values);
    if (s->init == nullptr) return Guarded(predicate, PlantWrongInitBlock(s, std::move(body)));
    Stmt init = ir::Substitute(RewriteStmt(s->init), values);
    if (ctx_.test_miscompile == "init") init = WrongInit().RewriteStmt(init);
    std::vector<Expr> at_minimum;
    VarSet reduce_vars, spatial_vars;
    for (const ir::IterVar& iter : s->iters) {
      if (iter.type != IterType::kReduce) {
        AddVars(iter.binding, &spatial_vars);
        continue;
      }
      AddVars(iter.binding, &reduce_vars);
      at_minimum.push_back(ir::Eq(iter.binding, iter.domain.min));
    }
    if (HoistInit(s, init, predicate, reduce_vars, spatial_vars))
      return Guarded(predicate, std::move(body));
    return Guarded(predicate, ir::MakeSeq({Guarded(at_minimum, init), body}));
  }

  // Whether the reduction loops pass the first point of the reduction once only. Sums of loops do;
  // where bindings divide (fused loops), a loop that repeats the reduction may be among the fused.
  bool MeetsMinimumOnce(const Stmt& block, const VarSet& reduce_vars) const {
    bool divides = false;
    int64_t points = 1, visits = 1;
    for (const ir::IterVar& iter : block->iters) {
      if (iter.type != IterType::kReduce) continue;
      ir::VisitExprs(iter.binding, [&](const Expr& e) {
        divides =
            divides || e->kind == ir::ExprKind::kFloorDiv || e->kind == ir::ExprKind::kFloorMod;
        return true;
      });
      const int64_t* extent = ir::AsInt(iter.domain.extent);
      if (extent == nullptr || __builtin_mul_overflow(points, *extent, &points)) points = 0;
    }
    if (!divides) return true;
    for (const Stmt& loop : loops_) {
      if (!reduce_vars.contains(loop->var.get())) continue;
      const int64_t* extent = ir::AsInt(loop->range.extent);
      if (extent == nullptr || __builtin_mul_overflow(visits, *extent, &visits)) return false;
    }
    return visits <= points;
  }

  // Puts `init` before the outermost reduction loop, if that is provably the same.
  bool HoistInit(const Stmt& block, const Stmt& init, const std::vector<Expr>& predicate,
                 const VarSet& reduce_vars, const VarSet& spatial_vars) {
    size_t outermost = 0;
    while (outermost < loops_.size() && !reduce_vars.contains(loops_[outermost]->var.get()))
      ++outermost;
    if (outermost == loops_.size() || !MeetsMinimumOnce(block, reduce_vars)) return false;
    ir::VarMap first;  // reduction loops at their start
    for (size_t i = outermost; i < loops_.size(); ++i) {
      const Stmt& loop = loops_[i];
      bool reduces = reduce_vars.contains(loop->var.get());
      if (reduces && spatial_vars.contains(loop->var.get())) return false;
      if (reduces) first[loop->var.get()] = ir::Substitute(loop->range.min, first);
    }
    for (const ir::IterVar& iter : block->iters) {
      if (iter.type != IterType::kReduce) continue;
      if (!analysis::Proves(ir::Eq(ir::Substitute(iter.binding, first), iter.domain.min),
                            analyzer_))
        return false;
    }
    // A reduction over nothing gives its identity: init runs whether there is a first point or not.
    analysis::Analyzer not_empty = analyzer_;
    for (const ir::IterVar& iter : block->iters) {
      if (iter.type == IterType::kReduce) not_empty.Assume(ir::Int(0) < iter.domain.extent);
    }
    std::vector<Expr> guard;
    for (const Expr& c : predicate) {
      Expr at_start = ir::Substitute(c, first);
      if (at_start == c) {
        guard.push_back(c);
      } else if (!analysis::Proves(at_start, not_empty)) {
        // The condition also limits spatial iterators: init runs where the first visit would.
        guard.push_back(at_start);
      }
    }
    if (!OnlyThisBlockTouches(block, init, loops_[outermost])) return false;
    Stmt nest = Guarded(guard, init);
    for (size_t i = loops_.size(); i-- > outermost;) {
      const Stmt& loop = loops_[i];
      if (reduce_vars.contains(loop->var.get()) || !ir::UsesVar(nest, loop->var)) continue;
      VarSet range_vars;
      AddVars(loop->range.min, &range_vars);
      AddVars(loop->range.extent, &range_vars);
      for (const ir::ExprNode* var : range_vars) {
        if (first.contains(var)) return false;
      }
      nest = ir::MakeFor(loop->var, loop->range.min, loop->range.extent, nest, loop->for_kind,
                         loop->annotations);
    }
    pending_.emplace_back(loops_[outermost]->var.get(), ir::CloneWithFreshVars(nest));
    return true;
  }

  static bool OnlyThisBlockTouches(const Stmt& block, const Stmt& init, const Stmt& loop) {
    std::set<const ir::BufferNode*> written;
    ir::VisitStmts(init, [&](const Stmt& s) {
      if (s->kind == StmtKind::kStore) written.insert(s->buffer.get());
      return true;
    });
    bool alone = true;
    ir::VisitStmts(loop->body, [&](const Stmt& s) {
      if (s->kind != StmtKind::kBlock) return true;
      if (s->name == block->name) return false;
      for (const ir::BufferNode* buffer : written) alone = alone && !ir::Touches(s, buffer);
      return false;
    });
    return alone;
  }

  // test_miscompile=tail: the last iteration that a predicate admits is left out.
  void PlantWrongBound(std::vector<Expr>* predicate) {
    if (ctx_.test_miscompile != "tail") return;
    for (Expr& c : *predicate) {
      if (c->kind != ir::ExprKind::kLt || ir::AsInt(c->args[1]) == nullptr) continue;
      c = c->args[0] < c->args[1] - ir::Int(1, c->args[1]->dtype);
      planted_ = true;
    }
  }
  // test_miscompile=init where decompose_reduction made the init a block of its own.
  Stmt PlantWrongInitBlock(const Stmt& block, Stmt body) const {
    bool is_init = ctx_.test_miscompile == "init" && block->name.find("_init") != std::string::npos;
    return is_init ? WrongInit().RewriteStmt(body) : body;
  }

  const PassContext& ctx_;
  analysis::Analyzer analyzer_;
  std::vector<Stmt> loops_;
  std::vector<std::pair<const ir::ExprNode*, Stmt>> pending_;  // inits, and the loop they go before
  bool planted_ = false;
};

// test_miscompile=tail on a function without predicates: the innermost loop that stores to an
// output is one short.
class ShortLoop : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (done_) return s;
    Stmt result = RewriteChildren(s);
    if (done_ || s->kind != StmtKind::kFor) return result;
    const int64_t* extent = ir::AsInt(s->range.extent);
    bool stores = false;
    ir::VisitStmts(s->body, [&](const Stmt& part) {
      stores =
          stores || (part->kind == StmtKind::kStore && part->buffer->role == ir::Role::kOutput &&
                     std::any_of(part->indices.begin(), part->indices.end(),
                                 [&](const Expr& i) { return ir::UsesVar(i, s->var); }));
      return true;
    });
    if (!stores || extent == nullptr || *extent < 2) return result;
    done_ = true;
    return ir::MakeFor(s->var, s->range.min, ir::Int(*extent - 1, s->range.extent->dtype), s->body,
                       s->for_kind, s->annotations);
  }

 private:
  bool done_ = false;
};

// Whether all that is stored and read of `buffer` belongs to one iteration of the loop over `loop`:
// one of its dimensions is the number of that iteration, in every block.
bool IsOfIteration(const Stmt& body, const ir::BufferNode* buffer, const ir::Var& loop) {
  std::optional<size_t> dimension;
  bool own = true;
  const auto check = [&](const ir::StmtNode& block, const ir::BufferRegion& region) {
    const auto counts = [&](const ir::Range& r) {
      return ir::IsInt(r.extent, 1) && std::ranges::any_of(block.iters, [&](const ir::IterVar& i) {
               return i.var == r.min && i.binding == loop;
             });
    };
    const auto at = std::ranges::find_if(region.region, counts);
    const auto d = static_cast<size_t>(at - region.region.begin());
    own = own && at != region.region.end() && dimension.value_or(d) == d;
    dimension = d;
  };
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kBlock) return true;
    for (const auto* regions : {&s->reads, &s->writes}) {
      for (const ir::BufferRegion& r : *regions) {
        if (r.buffer.get() == buffer) check(*s, r);
      }
    }
    return true;
  });
  return own;
}

// Loops that carry values of `buffer` from one iteration to the next: those of ordered iterators,
// unless each iteration has elements of its own, and of the reductions that build it up. It may not
// become private to one of their iterations.
VarSet CarryingLoops(const Stmt& body, const ir::BufferNode* buffer) {
  VarSet vars;
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kBlock) return true;
    bool writes = std::any_of(s->writes.begin(), s->writes.end(),
                              [&](const ir::BufferRegion& r) { return r.buffer.get() == buffer; });
    for (const ir::IterVar& iter : s->iters) {
      bool ordered = iter.type == IterType::kSequential || iter.type == IterType::kOpaque;
      if (ordered && IsOfIteration(body, buffer, iter.binding)) ordered = false;
      if (ordered || (writes && iter.type == IterType::kReduce)) AddVars(iter.binding, &vars);
    }
    return true;
  });
  return vars;
}

class AllocPlacer {
 public:
  explicit AllocPlacer(VarSet carrying) : carrying_(std::move(carrying)) {}

  Stmt Place(const Buffer& buffer, const Stmt& s) const {
    switch (s->kind) {
      case StmtKind::kFor:
        if (s->for_kind == ir::ForKind::kVectorized || carrying_.contains(s->var.get())) break;
        return ir::MakeFor(s->var, s->range.min, s->range.extent, Place(buffer, s->body),
                           s->for_kind, s->annotations);
      case StmtKind::kSeq: {
        size_t first = s->stmts.size(), last = 0;
        for (size_t i = 0; i < s->stmts.size(); ++i) {
          if (!ir::Touches(s->stmts[i], buffer.get())) continue;
          first = std::min(first, i);
          last = i;
        }
        std::vector<Stmt> stmts(s->stmts.begin(), s->stmts.begin() + first);
        std::vector<Stmt> users(s->stmts.begin() + first, s->stmts.begin() + last + 1);
        bool one = users.size() == 1;
        stmts.push_back(one ? Place(buffer, users[0])
                            : ir::MakeAlloc(buffer, ir::MakeSeq(std::move(users))));
        stmts.insert(stmts.end(), s->stmts.begin() + last + 1, s->stmts.end());
        return ir::MakeSeq(std::move(stmts));
      }
      case StmtKind::kAlloc:
        return ir::MakeAlloc(s->buffer, Place(buffer, s->body));
      default:
        break;
    }
    return ir::MakeAlloc(buffer, s);
  }

 private:
  VarSet carrying_;
};

}  // namespace

absl::StatusOr<Function> LowerBlocks(const Function& f, const PassContext& ctx) {
  if (f.stage != ir::Stage::kScheduled) {
    return support::FailedPrecondition("transform.lower_blocks.stage",
                                       "expected a function of stage scheduled");
  }
  Function result = f;
  BlockLowering lowering(f, ctx);
  result.body = lowering.RewriteStmt(f.body);
  if (ctx.test_miscompile == "tail" && !lowering.planted())
    result.body = ShortLoop().RewriteStmt(result.body);
  for (const Buffer& buffer : f.allocs) {
    if (!ir::Touches(result.body, buffer.get())) continue;
    AllocPlacer placer(CarryingLoops(f.body, buffer.get()));
    result.body = placer.Place(buffer, result.body);
  }
  result.allocs.clear();
  result.stage = ir::Stage::kLoops;
  return result;
}

}  // namespace tilewright::transform
