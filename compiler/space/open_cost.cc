#include "compiler/space/open_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/space/run_loops.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/split_prepare.h"
#include "deploy/support/status.h"

namespace tilewright::space {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

// Sizes around the typical ones.
constexpr double kFactors[] = {0.5, 0.7, 0.9, 1, 1.25, 1.6, 2};
// Iterations of a loop that differ; of a longer one each stands for some of its neighbours.
constexpr int64_t kLookedAt = 64;

bool UsesAnyVar(const Expr& e) {
  bool found = false;
  ir::VisitExprs(e, [&](const Expr& part) {
    found |= part->kind == ir::ExprKind::kVar;
    return !found;
  });
  return found;
}

// What the conditions in the value of a store cost. Masks that depend on no size and no loop are
// constants; those that its loads share with it come with the tile's end.
double CostOfChoices(const ir::StmtNode& store, const target::TileWeights& weights) {
  double cost = 0;
  ir::VisitExprs(store.value, [&](const Expr& e) {
    const bool chooses = e->kind == ir::ExprKind::kSelect;
    const bool masks = e->kind == ir::ExprKind::kLoad && e->mask != nullptr &&
                       !(store.mask != nullptr && ir::StructuralEqual(e->mask, store.mask));
    if (!chooses && !masks) return true;
    const Expr& condition = chooses ? e->args[0] : e->mask;
    if (!condition->dtype.is_vector()) {
      cost = weights.guarded_store;
    } else if (UsesAnyVar(condition)) {
      cost = std::max(cost, weights.masked_store);
    }
    return true;
  });
  return cost;
}

// Whether the number of stores that run in an iteration depends on which one it is.
bool Decides(const ir::Var& var, const Stmt& body) {
  bool found = false;
  ir::VisitStmts(body, [&](const Stmt& s) {
    found |= s->kind == StmtKind::kIf && ir::UsesVar(s->condition, var);
    found |= s->kind == StmtKind::kFor &&
             (ir::UsesVar(s->range.min, var) || ir::UsesVar(s->range.extent, var));
    found |= s->kind == StmtKind::kLet && ir::UsesVar(s->value, var);
    return !found;
  });
  return found;
}

// Stores of a run, one for each vector, and what their conditions cost.
struct StoreCounts {
  double stores = 0, conditions = 0;
};

class Counter {
 public:
  Counter(std::vector<std::pair<ir::Var, int64_t>> sizes, const target::TileWeights& weights)
      : values_(std::move(sizes)), weights_(weights) {}

  const StoreCounts& counts() const { return counts_; }

  void Walk(const Stmt& s, double runs, bool guarded) {
    switch (s->kind) {
      case StmtKind::kStore:
        counts_.stores += runs;
        counts_.conditions +=
            runs * (guarded ? weights_.guarded_store : CostOfChoices(*s, weights_));
        return;
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) Walk(child, runs, guarded);
        return;
      case StmtKind::kFor:
        return WalkFor(s, runs);
      case StmtKind::kIf:
        return WalkIf(s, runs);
      case StmtKind::kLet:
        if (const auto value = Value(s->value)) values_.emplace_back(s->var, *value);
        return Walk(s->body, runs, guarded);
      default:
        if (s->body != nullptr) Walk(s->body, runs, guarded);
    }
  }

 private:
  std::optional<int64_t> Value(const Expr& e) const {
    if (e->dtype.is_float() || e->dtype.is_vector()) return std::nullopt;
    const absl::StatusOr<int64_t> value = ir::EvalIntExpr(e, values_);
    return value.ok() ? std::optional(*value) : std::nullopt;
  }

  void WalkFor(const Stmt& s, double runs) {
    const int64_t min = Value(s->range.min).value_or(0);
    const int64_t extent = Value(s->range.extent).value_or(1);
    if (extent <= 0) return;
    values_.emplace_back(s->var, min);
    if (!Decides(s->var, s->body)) {
      Walk(s->body, runs * static_cast<double>(extent), false);
    } else {
      const int64_t step = (extent + kLookedAt - 1) / kLookedAt;
      for (int64_t i = 0; i < extent; i += step) {
        values_.back().second = min + i;
        const size_t known = values_.size();
        Walk(s->body, runs * static_cast<double>(std::min(step, extent - i)), false);
        values_.resize(known);
      }
    }
    values_.pop_back();
  }

  // A condition on what memory holds may have either answer.
  void WalkIf(const Stmt& s, double runs) {
    const std::optional<int64_t> holds = Value(s->condition);
    if (!holds) runs /= 2;
    if (holds.value_or(1) != 0) Walk(s->body, runs, true);
    if (holds.value_or(0) == 0 && s->else_body != nullptr) Walk(s->else_body, runs, true);
  }

  std::vector<std::pair<ir::Var, int64_t>> values_;
  const target::TileWeights& weights_;
  StoreCounts counts_;
};

// The passes up to the one that knows what is decided of unrolled loops.
std::vector<transform::PassRow> PassesToVectors() {
  const std::span<const transform::PassRow> all = transform::CpuPipeline();
  const auto unrolled = std::ranges::find(all, "unroll_loops", &transform::PassRow::name);
  return {all.begin(), std::next(unrolled, 2)};
}

StoreCounts CountAt(const ir::Function& loops, const std::map<std::string, int64_t>& sizes,
                    const target::TileWeights& weights) {
  Counter counter(ir::SizeValues(loops, sizes), weights);
  counter.Walk(loops.body, 1, false);
  return counter.counts();
}

}  // namespace

absl::StatusOr<double> OpenCost(const ir::Function& scheduled, const target::Target& target,
                                const std::map<std::string, int64_t>& typical) {
  transform::PassContext context;
  context.target = target;
  TW_ASSIGN(const transform::PreparedFunction split, transform::SplitPrepare(scheduled));
  TW_ASSIGN(const ir::Function loops,
            transform::RunPipeline(split.main, PassesToVectors(), context));
  double log_cost = 0, typical_stores = 0;
  for (const double factor : kFactors) {
    const StoreCounts counts = CountAt(loops, Scaled(typical, factor), target.machine.tile);
    log_cost += std::log2(1 + counts.stores + counts.conditions) / std::size(kFactors);
    if (factor == 1) typical_stores = counts.stores;
  }
  return log_cost - std::log2(1 + typical_stores);
}

}  // namespace tilewright::space
