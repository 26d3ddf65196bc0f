#include "compiler/targets/vulkan/loop_cost.h"

#include <algorithm>
#include <limits>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/visit.h"
#include "deploy/runtime/spirv_abi.h"

namespace tilewright::vulkan {
namespace {

constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMostUnrolling = 16;
// Of one call of fmod, whose loop ends after as many steps as exponents differ.
constexpr int64_t kFmodSteps = 300;

uint32_t Capped(double cost) { return cost >= kMost ? kMost : static_cast<uint32_t>(cost); }

// Of the functions called by the expressions of one statement.
double CostOfCalls(const ir::Stmt& s) {
  double cost = 0;
  const auto add = [&](const ir::Expr& root) {
    if (root == nullptr) return;
    ir::VisitExprs(root, [&](const ir::Expr& e) {
      if (e->kind == ir::ExprKind::kCall && e->intrinsic == ir::Intrinsic::kFmod)
        cost += static_cast<double>(kFmodSteps) * e->dtype.lanes;
      return true;
    });
  };
  add(s->value);
  add(s->condition);
  add(s->mask);
  return cost;
}

// Walks a kernel; knows what its variables may be.
class Counter {
 public:
  explicit Counter(int64_t unroll) : unroll_(unroll) {}

  double CostOf(const ir::Stmt& s) {
    if (s == nullptr) return 0;
    if (s->kind == ir::StmtKind::kFor) analyzer_.SetRange(s->var, s->range);
    if (s->kind == ir::StmtKind::kLet) analyzer_.SetValue(s->var, s->value);
    double inside = CostOfCalls(s) + CostOf(s->body) + CostOf(s->else_body);
    for (const ir::Stmt& child : s->stmts) inside += CostOf(child);
    if (s->kind != ir::StmtKind::kFor || ir::IsBound(s->for_kind)) return inside;
    const int64_t most = std::max<int64_t>(analyzer_.Values(s->range.extent).max, 0);
    const int64_t turns = IsInnermost(s) ? most / unroll_ : most;
    return static_cast<double>(turns) + 1 + static_cast<double>(most) * inside;
  }

 private:
  const int64_t unroll_;
  analysis::Analyzer analyzer_;
};

}  // namespace

bool IsInnermost(const ir::Stmt& loop) {
  bool inner = false;
  ir::VisitStmts(loop->body, [&](const ir::Stmt& s) {
    inner = inner || (s->kind == ir::StmtKind::kFor && !ir::IsBound(s->for_kind));
    return !inner;
  });
  return !inner && ir::AsInt(loop->range.extent) != nullptr;
}

uint32_t LoopCost(const ir::Stmt& body, int64_t unroll) {
  return Capped(Counter(unroll).CostOf(body));
}

int64_t UnrollingOf(const ir::Function& kernel) {
  for (int64_t unroll = 1; unroll <= kMostUnrolling; unroll *= 2) {
    if (LoopCost(kernel.body, unroll) <= TW_SPIRV_LAVAPIPE_LOOPS) return unroll;
  }
  return 1;
}

}  // namespace tilewright::vulkan
