// TRANSFORMATIONS of vectorize_loops (kLoops → kLoops, inner loops first; iterations of a
// vectorised loop are independent)
//
//   for v in m..m+L vectorized { S }  → S for L lanes together, with
//     index c·v + r (r without v)       → ramp(c·m + r, c, L); c = 0 stays scalar; any other index
//                                         becomes a vector expression
//     value without v                   → stays scalar, broadcast where it meets a vector
//     if (condition with v) S           → masked loads and stores in S; where a scalar load in S
//                                         would run although no lane is active:
//                                         if (condition at its first lane) { masked S }
//     select(condition with v, a, b)    → lane-wise, with masked loads in a and b
//     select(condition with v, load, 0) → the load with that mask
//     all of S below conditions that only the first lane fulfils → S for that lane: what is left of
//                                         a row may be one number
//     loop inside                       → stays a loop
//     let x = value that loads          → let of a vector; other lets are substituted
//
// What cannot become vectors (loop bounds that depend on v, allocations inside, stores of lanes to
// one element, a loop already full of vectors) keeps the meaning as a serial loop, or as an
// unrolled one around vectors.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compiler/analysis/affine.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/stmt_rewriter.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// In all lanes, and +0 of a float.
bool IsPlainZero(const Expr& e) {
  const Expr& x = ir::OfEachLane(e);
  if (x->kind == ExprKind::kFloatImm) return x->float_value == 0 && !std::signbit(x->float_value);
  return ir::IsInt(x, 0);
}

bool HasVectors(const Stmt& s) {
  bool found = false;
  ir::VisitExprsIn(s, [&](const Expr& e) {
    found = found || e->dtype.is_vector();
    return !found;
  });
  return found;
}

// Rewrites one loop body to lanes. `ok()` is false afterwards when the body has no vector form.
class LaneWidener {
 public:
  LaneWidener(const Stmt& loop, const analysis::Analyzer& analyzer)
      : var_(loop->var),
        min_(loop->range.min),
        lanes_(static_cast<int>(*ir::AsInt(loop->range.extent))),
        analyzer_(analyzer) {
    analyzer_.SetRange(loop->var, loop->range);
  }

  bool ok() const { return ok_; }

  Stmt Widen(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kFor:
        return WidenFor(s);
      case StmtKind::kSeq: {
        std::vector<Stmt> stmts;
        for (const Stmt& child : s->stmts) stmts.push_back(Widen(child));
        return ir::MakeSeq(std::move(stmts));
      }
      case StmtKind::kStore:
        return WidenStore(s);
      case StmtKind::kIf:
        return WidenIf(s);
      case StmtKind::kLet:
        return WidenLet(s);
      case StmtKind::kEvaluate:  // prefetches: the first lane stands for all
        return ir::MakeEvaluate(AtLane(s->value, 0));
      default:
        ok_ = false;
        return s;
    }
  }

 private:
  bool IsUniform(const Expr& e) const { return !ir::UsesVar(e, var_) && !UsesWide(e); }
  bool UsesWide(const Expr& e) const {
    if (wide_.empty()) return false;
    bool wide = false;
    ir::VisitExprs(e, [&](const Expr& part) {
      wide = wide || wide_.contains(part.get());
      return !wide;
    });
    return wide;
  }
  Expr AtLane(const Expr& e, int lane) const {
    return analysis::Simplify(ir::Substitute(e, {{var_.get(), min_ + ir::Int(lane, min_->dtype)}}),
                              analyzer_);
  }
  Expr Spread(const Expr& e) const { return e->dtype.is_vector() ? e : ir::Broadcast(e, lanes_); }
  Expr Masked(const Expr& mask) const {
    return mask_ == nullptr ? mask : mask == nullptr ? mask_ : mask_ && mask;
  }

  // ---- expressions: scalar results are the same in every lane

  Expr Widen(const Expr& e) {
    if (IsUniform(e)) return WidenUniform(e);
    if (e->dtype == ir::kI64 && !UsesWide(e)) {
      Expr simple = analysis::Simplify(e, analyzer_);
      if (std::optional<int64_t> stride = analysis::StrideOf(simple, var_)) {
        Expr base = AtLane(simple, 0);
        return *stride == 0 ? base : ir::Ramp(base, ir::Int(*stride), lanes_);
      }
    }
    switch (e->kind) {
      case ExprKind::kVar:
        if (auto it = wide_.find(e.get()); it != wide_.end()) return it->second;
        return ir::Ramp(min_, ir::Int(1, min_->dtype), lanes_);
      case ExprKind::kLoad:
        return WidenLoad(e);
      case ExprKind::kSelect:
        return WidenSelect(e);
      default:
        break;
    }
    std::vector<Expr> args;
    bool vector = false;
    for (const Expr& a : e->args) {
      args.push_back(Widen(a));
      vector = vector || args.back()->dtype.is_vector();
    }
    if (vector) {
      for (Expr& a : args) a = Spread(a);
    }
    return ir::WithArgs(e, std::move(args));
  }

  // A uniform expression runs once for all lanes. Under a mask its loads still may: WidenIf saw to
  // it that some lane is active, and a select with a lane-wise condition asks for masked lanes
  // instead.
  Expr WidenUniform(const Expr& e) {
    if (!mask_loads_ || e->kind == ExprKind::kVar || e->args.empty()) return e;
    if (e->kind == ExprKind::kLoad) {
      return ir::Load(e->buffer, {ir::Broadcast(e->args[0], lanes_)},
                      Masked(e->mask == nullptr ? nullptr : Spread(e->mask)));
    }
    // The side that is not chosen must not load, so the choice stays one for all lanes.
    if (e->kind == ExprKind::kSelect) {
      return HasLoad(e) ? WidenSelect(e) : e;
    }
    std::vector<Expr> args;
    bool vector = false;
    for (const Expr& a : e->args) {
      args.push_back(WidenUniform(a));
      vector = vector || args.back()->dtype.is_vector();
    }
    if (!vector) return e;
    for (Expr& a : args) a = Spread(a);
    return ir::WithArgs(e, std::move(args));
  }

  Expr WidenLoad(const Expr& e) {
    std::vector<Expr> indices;
    for (const Expr& i : e->args) indices.push_back(Widen(i));
    Expr mask = e->mask == nullptr ? nullptr : Spread(Widen(e->mask));
    bool vector = std::any_of(indices.begin(), indices.end(),
                              [](const Expr& i) { return i->dtype.is_vector(); });
    if (!vector && mask == nullptr && !mask_loads_) return ir::Load(e->buffer, std::move(indices));
    if (!vector) indices[0] = ir::Broadcast(indices[0], lanes_);
    return ir::Load(e->buffer, std::move(indices), Masked(mask));
  }

  Expr WidenSelect(const Expr& e) {
    Expr condition = Widen(e->args[0]);
    Expr sides[2];
    if (!condition->dtype.is_vector()) {
      for (int side = 0; side < 2; ++side) sides[side] = Spread(Widen(e->args[side + 1]));
      return ir::Select(condition, sides[0], sides[1]);
    }
    for (int side = 0; side < 2; ++side) {
      Expr outer = mask_;
      bool outer_loads = mask_loads_;
      mask_ = Masked(side == 0 ? condition : ir::Not(condition));
      mask_loads_ = true;
      sides[side] = Spread(Widen(e->args[side + 1]));
      mask_ = outer;
      mask_loads_ = outer_loads;
    }
    // A load is 0 in lanes that its mask leaves out.
    for (int side = 0; side < 2; ++side) {
      if (e->args[side + 1]->kind == ExprKind::kLoad && IsPlainZero(sides[1 - side]))
        return sides[side];
    }
    return ir::Select(condition, sides[0], sides[1]);
  }

  // ---- statements

  // Index arithmetic is read best where it is used; a value that loads must be taken here, because
  // what it loads may be stored to below.
  Stmt WidenLet(const Stmt& s) {
    bool loads = false;
    ir::VisitExprs(s->value, [&](const Expr& e) {
      loads = loads || e->kind == ExprKind::kLoad || wide_.contains(e.get());
      return !loads;
    });
    if (!loads) return Widen(ir::Substitute(s->body, {{s->var.get(), s->value}}));
    Expr value = Widen(s->value);
    if (!value->dtype.is_vector()) return ir::MakeLet(s->var, value, Widen(s->body));
    ir::Var wide = ir::MakeVar(s->var->name, value->dtype);
    wide_[s->var.get()] = wide;
    return ir::MakeLet(wide, value, Widen(s->body));
  }

  Stmt WidenFor(const Stmt& s) {
    if (!IsUniform(s->range.min) || !IsUniform(s->range.extent)) ok_ = false;
    analyzer_.SetRange(s->var, s->range);
    return ir::MakeFor(s->var, s->range.min, s->range.extent, Widen(s->body), s->for_kind,
                       s->annotations);
  }

  Stmt WidenStore(const Stmt& s) {
    std::vector<Expr> indices;
    for (const Expr& i : s->indices) indices.push_back(Widen(i));
    bool vector = std::any_of(indices.begin(), indices.end(),
                              [](const Expr& i) { return i->dtype.is_vector(); });
    Expr value = Widen(s->value);
    Expr mask = s->mask == nullptr ? nullptr : Widen(s->mask);
    if (!vector) {
      // All lanes write one element: the same value once, or an order that vectors do not have.
      bool once = !value->dtype.is_vector() && mask_ == nullptr &&
                  (mask == nullptr || !mask->dtype.is_vector());
      if (!once) ok_ = false;
      return once ? ir::MakeStore(s->buffer, std::move(indices), value, mask) : s;
    }
    return ir::MakeStore(s->buffer, std::move(indices), Spread(value),
                         Masked(mask == nullptr ? nullptr : Spread(mask)));
  }

  Stmt WidenIf(const Stmt& s) {
    Expr condition = Widen(s->condition);
    if (!condition->dtype.is_vector()) {
      return ir::MakeIf(condition, Widen(s->body),
                        s->else_body == nullptr ? nullptr : Widen(s->else_body));
    }
    Expr outer = mask_;
    mask_ = Masked(condition);
    Expr first;
    bool whole = FirstLaneCondition(s->condition, &first);
    if (!whole && HasUniformLoad(s->body)) ok_ = false;
    Stmt result = Widen(s->body);
    if (whole && !ir::IsInt(first, 1)) result = ir::MakeIf(first, result);
    mask_ = outer;
    if (s->else_body == nullptr) return result;
    mask_ = Masked(ir::Not(condition));
    if (HasUniformLoad(s->else_body)) ok_ = false;
    Stmt other = Widen(s->else_body);
    mask_ = outer;
    return ir::MakeSeq({result, other});
  }

  // A scalar condition that holds exactly when some lane's does: for upper bounds on increasing
  // values, the first lane's.
  bool FirstLaneCondition(const Expr& condition, Expr* first) {
    if (condition->kind == ExprKind::kAnd) {
      Expr a, b;
      if (!FirstLaneCondition(condition->args[0], &a) ||
          !FirstLaneCondition(condition->args[1], &b))
        return false;
      *first = ir::IsInt(a, 1) ? b : ir::IsInt(b, 1) ? a : a && b;
      return true;
    }
    if (IsUniform(condition)) {
      *first = condition;
      return true;
    }
    bool below = condition->kind == ExprKind::kLt || condition->kind == ExprKind::kLe;
    if (!below || !condition->args[0]->dtype.is_int() || !IsUniform(condition->args[1]))
      return false;
    std::optional<int64_t> stride =
        analysis::StrideOf(analysis::Simplify(condition->args[0], analyzer_), var_);
    if (!stride || *stride < 0) return false;
    *first = AtLane(condition, 0);
    return true;
  }

  bool HasUniformLoad(const Stmt& s) const {
    bool found = false;
    ir::VisitExprsIn(s, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad) {
        bool uniform = true;
        for (const Expr& i : e->args) uniform = uniform && IsUniform(i);
        found = found || uniform;
      }
      return !found;
    });
    return found;
  }

  ir::Var var_;
  Expr min_;
  int lanes_;
  analysis::Analyzer analyzer_;
  ir::VarMap wide_;          // let variables that differ between lanes, as vectors
  Expr mask_;                // lanes that run here; null = all
  bool mask_loads_ = false;  // uniform loads need the mask, too
  bool ok_ = true;
};

class LoopVectorizer : public StmtRewriter {
 public:
  explicit LoopVectorizer(const ir::Function& f) : analyzer_(f) {}

  Stmt RewriteStmt(const Stmt& s) override {
    switch (s->kind) {
      case StmtKind::kFor:
        return WalkFor(s);
      case StmtKind::kLet:
        if (s->value->dtype.is_int()) analyzer_.SetValue(s->var, s->value);
        return RewriteChildren(s);
      default:
        return RewriteChildren(s);
    }
  }

 private:
  Stmt WalkFor(const Stmt& s) {
    analyzer_.SetRange(s->var, s->range);
    Stmt body = RewriteStmt(s->body);
    auto rebuilt = [&](ir::ForKind kind) {
      return ir::MakeFor(s->var, s->range.min, s->range.extent, body, kind, s->annotations);
    };
    if (s->for_kind != ir::ForKind::kVectorized) return body == s->body ? s : rebuilt(s->for_kind);
    if (HasVectors(body)) return rebuilt(ir::ForKind::kUnrolled);
    if (IsOfFirstLane(body, s)) {
      return analysis::Simplify(ir::Substitute(body, {{s->var.get(), s->range.min}}), analyzer_);
    }
    const int64_t* lanes = ir::AsInt(s->range.extent);
    if (lanes == nullptr || *lanes < 2 || *lanes > 64) return rebuilt(ir::ForKind::kSerial);
    LaneWidener widener(s, analyzer_);
    Stmt wide = widener.Widen(body);
    return widener.ok() ? wide : rebuilt(ir::ForKind::kSerial);
  }

  // Whether all that `s` does is for the first lane of the loop: it stands below conditions that no
  // other lane fulfils.
  bool IsOfFirstLane(const Stmt& s, const Stmt& loop) const {
    switch (s->kind) {
      case StmtKind::kIf:
        return s->else_body == nullptr &&
               std::ranges::any_of(ir::Conjuncts(s->condition),
                                   [&](const Expr& c) { return EndsFirstLane(c, loop); });
      case StmtKind::kSeq:
        return std::ranges::all_of(s->stmts,
                                   [&](const Stmt& child) { return IsOfFirstLane(child, loop); });
      case StmtKind::kFor:
      case StmtKind::kLet:
      case StmtKind::kAlloc:
        return IsOfFirstLane(s->body, loop);
      default:
        return false;
    }
  }

  // An upper bound on a value that grows by lane.
  bool EndsFirstLane(const Expr& condition, const Stmt& loop) const {
    if (condition->kind != ExprKind::kLt || !condition->args[0]->dtype.is_int()) return false;
    const auto stride = analysis::StrideOf(condition->args[0], loop->var);
    if (!stride || *stride < 1 || ir::UsesVar(condition->args[1], loop->var)) return false;
    const Expr second = ir::Substitute(
        condition, {{loop->var.get(), loop->range.min + ir::Int(1, loop->var->dtype)}});
    return ir::IsInt(analysis::Simplify(second, analyzer_), 0);
  }

  analysis::Analyzer analyzer_;
};

}  // namespace

absl::StatusOr<Function> VectorizeLoops(const Function& f, const PassContext&) {
  Function result = f;
  result.body = LoopVectorizer(f).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
