#include "compiler/analysis/access_region.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::analysis {
namespace {

using ir::Buffer;
using ir::BufferRegion;
using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Range;
using ir::Stmt;
using ir::StmtKind;
using ir::Var;

// The values [lo, lo + span] over the fixed variables.
struct Span {
  Expr lo, span;
};

// A span that is known by an upper bound only is replaced by that bound when it is no larger:
// beyond that a symbolic span says more.
constexpr int64_t kLargestReplacedSpan = int64_t{1} << 24;

class SpanEvaluator {
 public:
  SpanEvaluator(const std::vector<LoopRange>& inner, const Analyzer& analyzer)
      : analyzer_(analyzer) {
    if (!inner.empty()) with_inner_ = analyzer;
    for (const LoopRange& loop : inner) {
      // In order, so that a range may speak of earlier loops.
      std::optional<Span> min = Eval(loop.range.min), extent = Eval(loop.range.extent);
      with_inner_->SetRange(loop.var, loop.range);
      if (min && extent) {
        Expr last = S(extent->lo + extent->span - ir::Int(1, loop.var->dtype));
        if (const int64_t* n = ir::AsInt(last); n != nullptr && *n < 0)
          last = ir::Int(0, loop.var->dtype);
        inner_.push_back({loop.var, Span{min->lo, S(min->span + last)}});
      } else {
        inner_.push_back({loop.var, std::nullopt});
      }
    }
  }

  // Null when nothing better than "anything" is known.
  std::optional<Span> Eval(const Expr& e) {
    bool vector = e->dtype.is_vector();
    if (!vector && !UsesInner(e)) {
      // What memory has stays fixed in no sense: no box begins at it.
      return ir::HasLoad(e) ? FromInterval(e) : Span{e, ir::Int(0, e->dtype)};
    }
    std::optional<Span> r = vector ? EvalLanes(e) : EvalInner(e);
    return r ? Tighten(*r) : FromInterval(e);
  }

  Expr S(const Expr& e) { return Simplify(e, analyzer_); }
  // What is known with the inner loops.
  const Analyzer& all() const { return with_inner_.has_value() ? *with_inner_ : analyzer_; }

 private:
  bool UsesInner(const Expr& e) const {
    return std::any_of(inner_.begin(), inner_.end(),
                       [&](const auto& loop) { return ir::UsesVar(e, loop.first); });
  }

  std::optional<Span> FromInterval(const Expr& e) {
    Interval v = all().Values(e);
    int64_t span = 0;
    if (!v.is_bounded() || __builtin_sub_overflow(v.max, v.min, &span)) return std::nullopt;
    DType type = e->dtype.Element();
    return Span{ir::Int(v.min, type), ir::Int(span, type)};
  }

  // Constant spans where that costs nothing.
  Span Tighten(Span s) {
    s.lo = S(s.lo);
    s.span = S(s.span);
    if (ir::AsInt(s.span) != nullptr) return s;
    Interval v = analyzer_.Values(s.span);
    if (v.max >= 0 && v.max <= kLargestReplacedSpan) s.span = ir::Int(v.max, s.span->dtype);
    return s;
  }

  std::optional<Span> EvalInner(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kVar:
        for (const auto& [var, span] : inner_) {
          if (var == e) return span;
        }
        return std::nullopt;
      case ExprKind::kAdd:
      case ExprKind::kSub:
        return EvalSum(e);
      case ExprKind::kMul:
        return EvalProduct(e);
      case ExprKind::kFloorDiv:
      case ExprKind::kFloorMod:
        return EvalDivision(e);
      case ExprKind::kMin:
      case ExprKind::kMax:
      case ExprKind::kSelect:
        return EvalChoice(e);
      default:
        return std::nullopt;
    }
  }

  // All lanes of a vector: spans are scalar.
  std::optional<Span> EvalLanes(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kAdd:
      case ExprKind::kSub:
        return EvalSum(e);
      case ExprKind::kMin:
      case ExprKind::kMax:
        return EvalChoice(e);
      case ExprKind::kRamp: {
        std::optional<Span> base = Eval(e->args[0]);
        const int64_t* stride = ir::AsInt(e->args[1]);
        bool known = stride != nullptr &&
                     Interval{-kLargestReplacedSpan, kLargestReplacedSpan}.Contains(*stride);
        if (!base || !known) return std::nullopt;
        int64_t steps = *stride * (e->dtype.lanes - 1);
        Expr first = steps < 0 ? base->lo + ir::Int(steps, base->lo->dtype) : base->lo;
        return Span{first, base->span + ir::Int(std::abs(steps), base->span->dtype)};
      }
      case ExprKind::kBroadcast:
        return Eval(e->args[0]);
      default:
        return std::nullopt;
    }
  }

  std::optional<Span> EvalSum(const Expr& e) {
    std::optional<Span> a = Eval(e->args[0]), b = Eval(e->args[1]);
    if (!a || !b) return std::nullopt;
    Expr lo = e->kind == ExprKind::kAdd ? a->lo + b->lo : a->lo - (b->lo + b->span);
    return Span{lo, a->span + b->span};
  }

  std::optional<Span> EvalProduct(const Expr& e) {
    const Expr &x = e->args[0], &y = e->args[1];
    if (UsesInner(x) && UsesInner(y)) return std::nullopt;
    const Expr& factor = UsesInner(x) ? y : x;
    std::optional<Span> a = Eval(UsesInner(x) ? x : y);
    if (!a) return std::nullopt;
    Interval sign = analyzer_.Values(factor);
    if (sign.min >= 0) return Span{a->lo * factor, a->span * factor};
    if (sign.max > 0) return std::nullopt;
    Expr positive = ir::Int(0, factor->dtype) - factor;
    return Span{(a->lo + a->span) * factor, a->span * positive};
  }

  // With x in [lo, lo + s] and r the remainder of lo: floordiv moves on by at most (r + s) / c, and
  // floormod does not wrap around as long as r + s < c.
  std::optional<Span> EvalDivision(const Expr& e) {
    const int64_t* c = ir::AsInt(e->args[1]);
    std::optional<Span> x = Eval(e->args[0]);
    if (!x || UsesInner(e->args[1]) || analyzer_.Values(e->args[1]).min < 0) return std::nullopt;
    Expr divisor = e->args[1];
    if (c == nullptr) return EvalOpenDivision(*e, *x);
    if (*c == 0) return std::nullopt;
    Interval r = analyzer_.Values(S(ir::FloorMod(x->lo, divisor)));
    Congruence lo = analyzer_.CongruenceOf(x->lo);
    if (lo.modulus > 0 && lo.modulus % *c == 0) r = Interval::Point(lo.remainder % *c);
    const int64_t* s = ir::AsInt(x->span);
    if (s != nullptr && *s > kLargestReplacedSpan)
      return std::nullopt;  // nothing real, and it could overflow
    bool is_div = e->kind == ExprKind::kFloorDiv;
    DivisionBounds(&r, *c);
    if (s == nullptr) return EvalOpenDivision(*e, *x);
    if (is_div) return Span{ir::FloorDiv(x->lo, divisor), ir::Int((r.max + *s) / *c, e->dtype)};
    if (*s < *c && r.max + *s < *c) return Span{ir::FloorMod(x->lo, divisor), x->span};
    return Span{ir::Int(0, e->dtype), ir::Int(*c - 1, e->dtype)};
  }
  static Span EvalOpenDivision(const ir::ExprNode& e, const Span& x) {
    const Expr& divisor = e.args[1];
    const bool is_div = e.kind == ExprKind::kFloorDiv;
    if (!is_div) return Span{ir::Int(0, e.dtype), divisor - ir::Int(1, e.dtype)};
    const Expr first = ir::FloorDiv(x.lo, divisor);
    return Span{first, ir::FloorDiv(x.lo + x.span, divisor) - first};
  }
  static void DivisionBounds(Interval* r, int64_t c) {
    r->min = std::max<int64_t>(r->min, 0);
    r->max = std::min<int64_t>(r->max, c - 1);
  }

  std::optional<Span> EvalChoice(const Expr& e) {
    size_t first = e->kind == ExprKind::kSelect ? 1 : 0;
    std::optional<Span> a = Eval(e->args[first]), b = Eval(e->args[first + 1]);
    if (!a || !b) return std::nullopt;
    Expr a_hi = a->lo + a->span, b_hi = b->lo + b->span;
    Expr lo = e->kind == ExprKind::kMax ? ir::Max(a->lo, b->lo) : ir::Min(a->lo, b->lo);
    Expr hi = e->kind == ExprKind::kMin ? ir::Min(a_hi, b_hi) : ir::Max(a_hi, b_hi);
    // A symbolic difference of two choices tells nothing: only a known one is worth keeping.
    Interval span = analyzer_.Values(S(hi - lo));
    if (span.min < 0 || span.max > kLargestReplacedSpan) return std::nullopt;
    return Span{lo, ir::Int(span.max, lo->dtype)};
  }

  const Analyzer& analyzer_;
  std::optional<Analyzer> with_inner_;  // nothing: there are none
  std::vector<std::pair<Var, std::optional<Span>>> inner_;
};

// The span around both, or null when their ends cannot be compared.
std::optional<Span> UnionSpan(const Span& a, const Span& b, const Analyzer& analyzer) {
  int64_t lo = 0, hi = 0;
  if (!ConstantDifference(b.lo, a.lo, analyzer, &lo)) return std::nullopt;
  Expr a_hi = a.lo + a.span, b_hi = b.lo + b.span;
  Expr first = lo >= 0 ? a.lo : b.lo;
  if (ConstantDifference(b_hi, a_hi, analyzer, &hi)) {
    return Span{first, Simplify((hi >= 0 ? b_hi : a_hi) - first, analyzer)};
  }
  return Span{first, Simplify(ir::Max(a_hi, b_hi) - first, analyzer)};
}

Range WholeDimension(const Expr& extent) { return {ir::Int(0, extent->dtype), extent}; }

Range ToRange(const std::optional<Span>& span, const Expr& extent, const Analyzer& analyzer,
              const RegionOptions& options) {
  if (!span) return WholeDimension(extent);
  Expr one = ir::Int(1, span->span->dtype);
  Range r{Simplify(span->lo, analyzer), Simplify(span->span + one, analyzer)};
  // As large as the dimension: accesses outside it do not happen.
  if (Proves(r.extent >= extent, analyzer)) return WholeDimension(extent);
  if (!options.clamp_to_shape) return r;
  Expr zero = ir::Int(0, extent->dtype);
  Expr first = Simplify(ir::Max(r.min, zero), analyzer);
  Expr end = Simplify(ir::Min(r.min + r.extent, extent), analyzer);
  return {first, Simplify(end - first, analyzer)};
}

Expr AsI64(const Expr& e) {
  return e->dtype.Element() == ir::kI64 ? e : ir::Cast(ir::kI64.WithLanes(e->dtype.lanes), e);
}

class AccessCollector {
 public:
  AccessCollector(const Buffer& buffer, std::vector<StmtAccess>* out)
      : buffer_(buffer), out_(out) {}

  void Walk(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kFor: {
        Visit(s->range.min);
        Visit(s->range.extent);
        loops_.push_back({s->var, {Outer(s->range.min), Outer(s->range.extent)}});
        Walk(s->body);
        loops_.pop_back();
        return;
      }
      case StmtKind::kBlock:
        for (const ir::IterVar& iter : s->iters) outer_[iter.var.get()] = Outer(iter.binding);
        if (s->init != nullptr) Walk(s->init);
        return Walk(s->body);
      case StmtKind::kLet:
        Visit(s->value);
        outer_[s->var.get()] = Outer(s->value);
        return Walk(s->body);
      case StmtKind::kStore:
        for (const Expr& i : s->indices) Visit(i);
        Visit(s->value);
        if (s->mask != nullptr) Visit(s->mask);
        if (s->buffer == buffer_) Add(s->indices, /*is_write=*/true);
        return;
      case StmtKind::kIf: {
        Visit(s->condition);
        const std::vector<Expr> parts = ir::Conjuncts(Outer(s->condition));
        conditions_.insert(conditions_.end(), parts.begin(), parts.end());
        Walk(s->body);
        conditions_.resize(conditions_.size() - parts.size());
        if (s->else_body != nullptr) Walk(s->else_body);
        return;
      }
      default:
        break;
    }
    for (const Expr* e : {&s->condition, &s->value}) {
      if (*e != nullptr) Visit(*e);
    }
    for (const Stmt* child : {&s->body, &s->else_body}) {
      if (*child != nullptr) Walk(*child);
    }
    for (const Stmt& child : s->stmts) Walk(child);
  }

 private:
  Expr Outer(const Expr& e) { return ir::Substitute(e, outer_); }
  void Visit(const Expr& e) {
    ir::VisitExprs(e, [&](const Expr& x) {
      if (x->kind == ExprKind::kLoad && x->buffer == buffer_) Add(x->args, /*is_write=*/false);
      return true;
    });
  }
  void Add(const std::vector<Expr>& indices, bool is_write) {
    StmtAccess access{{}, loops_, is_write};
    for (const Expr& i : indices) {
      access.indices.push_back(Bounded(conditions_, loops_, &access.inner).RewriteExpr(Outer(i)));
    }
    out_->push_back(std::move(access));
  }

  // Rows and columns of a number x, floordiv(x, s) and floormod(x, s) for an open s, where x < E
  // around: those of a number that runs over [0, E). What the loops of x say of it alone may be
  // more, by a part of a tile.
  class Bounded : public ir::Rewriter {
   public:
    Bounded(const std::vector<Expr>& conditions, const std::vector<LoopRange>& loops,
            std::vector<LoopRange>* inner)
        : conditions_(conditions), loops_(loops), inner_(*inner) {}
    Expr RewriteExpr(const Expr& e) override {
      const bool divides = e->kind == ExprKind::kFloorDiv || e->kind == ExprKind::kFloorMod;
      if (!divides || ir::AsInt(e->args[1]) != nullptr || !IsOfLoops(e->args[0]))
        return RewriteChildren(e);
      const auto bound = std::ranges::find_if(conditions_, [&](const Expr& c) {
        return c->kind == ExprKind::kLt && ir::StructuralEqual(c->args[0], e->args[0]);
      });
      if (bound == conditions_.end()) return RewriteChildren(e);
      const ir::DType type = e->dtype;
      inner_.push_back({ir::MakeVar("below", type), {ir::Int(0, type), (*bound)->args[1]}});
      return ir::Binary(e->kind, inner_.back().var, e->args[1]);
    }

   private:
    // Whether it is a sum of loops from 0 on, each times a number: then it is not negative.
    bool IsOfLoops(const Expr& e) const {
      if (e->kind == ExprKind::kAdd) return IsOfLoops(e->args[0]) && IsOfLoops(e->args[1]);
      if (e->kind == ExprKind::kMul) {
        const int64_t* factor = ir::AsInt(e->args[1]);
        return factor != nullptr && *factor >= 0 && IsOfLoops(e->args[0]);
      }
      return std::ranges::any_of(loops_, [&](const LoopRange& loop) {
        return loop.var == e && ir::IsInt(loop.range.min, 0);
      });
    }

    const std::vector<Expr>& conditions_;
    const std::vector<LoopRange>& loops_;
    std::vector<LoopRange>& inner_;
  };

  const Buffer buffer_;
  std::vector<StmtAccess>* out_;
  std::vector<LoopRange> loops_;
  std::vector<Expr> conditions_;  // around the current statement
  ir::VarMap outer_;
};

std::optional<BufferRegion> RegionOfAccesses(const Stmt& s, const Buffer& buffer,
                                             const Analyzer& analyzer, const RegionOptions& options,
                                             bool writes) {
  std::vector<std::vector<Expr>> indices;
  std::vector<LoopRange> inner;
  for (StmtAccess& access : AccessesOf(s, buffer)) {
    if (access.is_write != writes) continue;
    for (LoopRange& loop : access.inner) {
      bool known = std::any_of(inner.begin(), inner.end(),
                               [&](const LoopRange& l) { return l.var == loop.var; });
      if (!known) inner.push_back(std::move(loop));
    }
    indices.push_back(std::move(access.indices));
  }
  if (indices.empty()) return std::nullopt;
  return RegionOf(buffer, indices, inner, analyzer, options);
}

}  // namespace

BufferRegion RegionOf(const Buffer& buffer, const std::vector<std::vector<Expr>>& indices,
                      const std::vector<LoopRange>& inner, const Analyzer& analyzer,
                      const RegionOptions& options) {
  std::vector<BufferRegion> points;
  for (const std::vector<Expr>& point : indices) {
    BufferRegion r{buffer, {}};
    for (const Expr& i : point) r.region.push_back({i, ir::Int(1)});
    points.push_back(std::move(r));
  }
  return RegionOf(buffer, points, inner, analyzer, options);
}

BufferRegion RegionOf(const Buffer& buffer, const std::vector<BufferRegion>& regions,
                      const std::vector<LoopRange>& inner, const Analyzer& analyzer,
                      const RegionOptions& options) {
  BufferRegion result{buffer, {}};
  if (regions.empty()) return result;
  SpanEvaluator evaluator(inner, analyzer);
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    std::optional<Span> all;
    for (size_t k = 0; k < regions.size(); ++k) {
      TW_CHECK(regions[k].region.size() == buffer->shape.size())
          << "access to " << buffer->name << " with " << regions[k].region.size() << " indices";
      const Range& dim = regions[k].region[d];
      // Knowing the inner ranges first makes one occurrence out of several of the same variable.
      std::optional<Span> lo = evaluator.Eval(Simplify(AsI64(dim.min), evaluator.all()));
      std::optional<Span> span;
      if (ir::IsInt(dim.extent, 1) && lo && ir::AsInt(lo->span) != nullptr) {
        span = lo;  // a point, as most accesses are
      } else if (lo) {
        std::optional<Span> extent = evaluator.Eval(Simplify(AsI64(dim.extent), evaluator.all()));
        if (extent) {
          span = Span{lo->lo, evaluator.S(lo->span + extent->lo + extent->span - ir::Int(1))};
        }
      }
      all = k == 0 ? span : all && span ? UnionSpan(*all, *span, analyzer) : std::nullopt;
      if (!all) break;
    }
    result.region.push_back(ToRange(all, buffer->shape[d], analyzer, options));
  }
  return result;
}

std::vector<StmtAccess> AccessesOf(const Stmt& s, const Buffer& buffer) {
  std::vector<StmtAccess> accesses;
  AccessCollector(buffer, &accesses).Walk(s);
  return accesses;
}

std::optional<BufferRegion> ReadRegion(const Stmt& s, const Buffer& buffer,
                                       const Analyzer& analyzer, const RegionOptions& options) {
  return RegionOfAccesses(s, buffer, analyzer, options, /*writes=*/false);
}

std::optional<BufferRegion> WriteRegion(const Stmt& s, const Buffer& buffer,
                                        const Analyzer& analyzer, const RegionOptions& options) {
  return RegionOfAccesses(s, buffer, analyzer, options, /*writes=*/true);
}

std::optional<BufferRegion> UnionRegion(const std::optional<BufferRegion>& a,
                                        const std::optional<BufferRegion>& b,
                                        const Analyzer& analyzer) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  return RegionOf(a->buffer, std::vector<BufferRegion>{*a, *b}, {}, analyzer);
}

}  // namespace tilewright::analysis
