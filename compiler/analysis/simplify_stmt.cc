// Statements: a walk that knows the ranges of the loops and the conditions around each expression.
#include <utility>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/analysis/simplify_expr.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;

bool IsNoOp(const Stmt& s) { return s->kind == StmtKind::kSeq && s->stmts.empty(); }
Stmt NoOp() { return ir::MakeSeq({}); }

class StmtSimplifier {
 public:
  StmtSimplifier(const Analyzer& analyzer, const SimplifyOptions& options)
      : analyzer_(analyzer), options_(options), exprs_(analyzer_) {}

  Stmt Walk(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kFor:
        return WalkFor(s);
      case StmtKind::kBlock:
        return WalkBlock(s);
      case StmtKind::kIf:
        return WalkIf(s);
      case StmtKind::kLet:
        return WalkLet(s);
      case StmtKind::kSeq:
        return WalkSeq(s);
      case StmtKind::kStore:
        return WalkStore(s);
      case StmtKind::kAlloc: {
        Stmt body = Walk(s->body);
        if (body == s->body) return s;
        return IsNoOp(body) ? body : ir::MakeAlloc(s->buffer, body);
      }
      case StmtKind::kCombine: {
        std::vector<Stmt> stores;
        bool changed = false;
        for (const Stmt& store : s->stmts) {
          stores.push_back(WalkStore(store));
          changed |= stores.back() != store;
        }
        return changed ? ir::MakeCombine(s->combiner, std::move(stores)) : s;
      }
      case StmtKind::kEvaluate: {
        Expr value = exprs_.Simplify(s->value);
        return value == s->value ? s : ir::MakeEvaluate(value);
      }
      case StmtKind::kAsync: {
        Stmt body = Walk(s->body);
        if (body == s->body) return s;
        return IsNoOp(body) ? body : ir::MakeAsync(body);
      }
      case StmtKind::kSync:
        return s;
    }
    return s;
  }

 private:
  Stmt Rebuild(StmtNode node) { return std::make_shared<const StmtNode>(std::move(node)); }

  Stmt WalkFor(const Stmt& s) {
    ir::Range range{exprs_.Simplify(s->range.min), exprs_.Simplify(s->range.extent)};
    if (const int64_t* extent = ir::AsInt(range.extent)) {
      if (*extent <= 0) return NoOp();
      if (*extent == 1 && options_.remove_unit_loops && !in_tensor_ &&
          ir::TensorNameOf(*s).empty()) {
        return Walk(ir::Substitute(s->body, {{s->var.get(), range.min}}));
      }
    }
    analyzer_.SetRange(s->var, range);
    const bool open = ir::AsInt(range.extent) == nullptr;
    size_t bounds = 0;
    if (open) PushEnds(s->var, exprs_.Simplify(range.min + range.extent), &bounds);
    bool outer_tensor = in_tensor_;
    in_tensor_ = in_tensor_ || !ir::TensorNameOf(*s).empty();
    const bool outer_fragment = in_fragment_;
    in_fragment_ = in_fragment_ || s->annotations.contains(ir::kFragmentKey);
    Stmt body = Walk(s->body);
    in_tensor_ = outer_tensor;
    in_fragment_ = outer_fragment;
    while (bounds-- > 0) exprs_.PopBound();
    if (IsNoOp(body)) return body;
    if (body == s->body && range.min == s->range.min && range.extent == s->range.extent) return s;
    return ir::MakeFor(s->var, range.min, range.extent, body, s->for_kind, s->annotations);
  }

  // A loop that ends at the smaller of two ends stays below both.
  void PushEnds(const ir::Var& var, const Expr& end, size_t* bounds) {
    if (end->kind == ir::ExprKind::kMin) {
      for (const Expr& side : end->args) PushEnds(var, side, bounds);
      return;
    }
    exprs_.PushBound(var, end);
    ++*bounds;
  }

  bool Replace(Expr* e) {
    if (*e == nullptr) return false;
    Expr simplified = exprs_.Simplify(*e);
    bool changed = simplified != *e;
    *e = std::move(simplified);
    return changed;
  }

  Stmt WalkBlock(const Stmt& s) {
    StmtNode node = *s;
    bool changed = false;
    for (ir::IterVar& iter : node.iters) {
      changed |= Replace(&iter.domain.min);
      changed |= Replace(&iter.domain.extent);
      changed |= Replace(&iter.binding);
    }
    changed |= Replace(&node.predicate);
    if (node.predicate != nullptr && ir::IsInt(node.predicate, 1)) node.predicate = nullptr;
    if (node.predicate != nullptr && ir::IsInt(node.predicate, 0)) return NoOp();
    Analyzer outer = analyzer_;
    if (node.predicate != nullptr) analyzer_.Assume(node.predicate);
    analyzer_.SetBlock(node);
    for (auto* regions : {&node.reads, &node.writes}) {
      for (ir::BufferRegion& r : *regions) {
        for (ir::Range& dim : r.region) {
          changed |= Replace(&dim.min);
          changed |= Replace(&dim.extent);
        }
      }
    }
    const bool outer_block = std::exchange(in_block_, true);
    for (Stmt* child : {&node.init, &node.body}) {
      if (*child == nullptr) continue;
      Stmt walked = Walk(*child);
      changed |= walked != *child;
      *child = std::move(walked);
    }
    analyzer_ = std::move(outer);
    in_block_ = outer_block;
    return changed ? Rebuild(std::move(node)) : s;
  }

  Stmt WalkUnder(const Expr& condition, const Stmt& s) {
    Analyzer outer = analyzer_;
    if (!in_fragment_) analyzer_.Assume(condition);
    std::vector<Expr> conjuncts;
    Conjuncts(condition, &conjuncts);
    for (const Expr& c : conjuncts) exprs_.PushAssumption(c);
    // What is below an expression, as the variable of an open loop is.
    size_t bounds = 0;
    for (const Expr& c : conjuncts) {
      if (c->kind != ir::ExprKind::kLt || c->args[0]->kind != ir::ExprKind::kVar) continue;
      if (ir::AsInt(c->args[1]) != nullptr) continue;
      exprs_.PushBound(c->args[0], c->args[1]);
      ++bounds;
    }
    Stmt walked = Walk(s);
    for (size_t i = 0; i < conjuncts.size(); ++i) exprs_.PopAssumption();
    for (size_t i = 0; i < bounds; ++i) exprs_.PopBound();
    analyzer_ = std::move(outer);
    return walked;
  }

  static void Conjuncts(const Expr& condition, std::vector<Expr>* out) {
    if (condition->kind == ir::ExprKind::kAnd) {
      Conjuncts(condition->args[0], out);
      Conjuncts(condition->args[1], out);
    }
    out->push_back(condition);
  }

  Stmt WalkIf(const Stmt& s) {
    Expr condition = exprs_.Simplify(s->condition);
    if (ir::IsInt(condition, 1)) return Walk(s->body);
    if (ir::IsInt(condition, 0)) return s->else_body == nullptr ? NoOp() : Walk(s->else_body);
    Stmt body = WalkUnder(condition, s->body);
    Stmt else_body;
    if (s->else_body != nullptr)
      else_body = WalkUnder(exprs_.Simplify(ir::Not(condition)), s->else_body);
    if (else_body != nullptr && IsNoOp(else_body)) else_body = nullptr;
    if (IsNoOp(body) && else_body == nullptr) return body;
    if (condition == s->condition && body == s->body && else_body == s->else_body) return s;
    return ir::MakeIf(condition, body, else_body);
  }

  Stmt WalkLet(const Stmt& s) {
    Expr value = exprs_.Simplify(s->value);
    bool trivial = value->kind == ir::ExprKind::kVar || value->kind == ir::ExprKind::kIntImm ||
                   value->kind == ir::ExprKind::kFloatImm;
    if (trivial) return Walk(ir::Substitute(s->body, {{s->var.get(), value}}));
    if (value->dtype.is_int()) analyzer_.SetValue(s->var, value);
    Stmt body = Walk(s->body);
    if (IsNoOp(body)) return body;
    return value == s->value && body == s->body ? s : ir::MakeLet(s->var, value, body);
  }

  Stmt WalkSeq(const Stmt& s) {
    bool changed = false;
    std::vector<Stmt> stmts;
    for (const Stmt& child : s->stmts) {
      Stmt walked = Walk(child);
      changed |= walked != child || IsNoOp(walked);
      if (!IsNoOp(walked)) stmts.push_back(std::move(walked));
    }
    return changed ? ir::MakeSeq(std::move(stmts)) : s;
  }

  // S[i] = S[i], what is left of a dot product with zeros. Blocks keep their one store.
  bool StoresOwnValue(const StmtNode& store) const {
    const Expr& value = store.value;
    if (!in_tensor_ || in_block_ || store.mask != nullptr) return false;
    if (value->kind != ir::ExprKind::kLoad || value->buffer != store.buffer) return false;
    for (size_t d = 0; d < store.indices.size(); ++d) {
      if (!ir::StructuralEqual(value->args[d], store.indices[d])) return false;
    }
    return true;
  }

  Stmt WalkStore(const Stmt& s) {
    StmtNode node = *s;
    bool changed = Replace(&node.value);
    int lanes = s->value->dtype.lanes;
    bool has_lanes = lanes == 1;
    for (Expr& i : node.indices) {
      changed |= Replace(&i);
      has_lanes |= i->dtype.lanes == lanes;
    }
    changed |= Replace(&node.mask);
    if (node.mask != nullptr) {
      const Expr& m = ir::OfEachLane(node.mask);
      if (ir::IsInt(m, 0)) return NoOp();
      if (ir::IsInt(m, 1)) node.mask = nullptr;
    }
    if (StoresOwnValue(node)) return NoOp();
    return changed && has_lanes ? Rebuild(std::move(node)) : s;
  }

  Analyzer analyzer_;
  bool in_tensor_ = false;  // inside a nest whose loops a tensor intrinsic's description names
  // Inside loops over a fragment. A condition that leaves one row does not make its number a
  // constant there: the index says which element of the fragment it is.
  bool in_fragment_ = false;
  bool in_block_ = false;
  const SimplifyOptions options_;
  ExprSimplifier exprs_;
};

}  // namespace

Stmt Simplify(const Stmt& s, const Analyzer& analyzer, const SimplifyOptions& options) {
  return StmtSimplifier(analyzer, options).Walk(s);
}

ir::Function Simplify(const ir::Function& f, const SimplifyOptions& options) {
  ir::Function result = f;
  result.body = Simplify(f.body, Analyzer(f), options);
  return result;
}

}  // namespace tilewright::analysis
