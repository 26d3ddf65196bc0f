#include "compiler/codegen/local_slots.h"

#include <algorithm>
#include <utility>

#include "compiler/codegen/linear_index.h"
#include "compiler/ir/visit.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// More values than this in one buffer would spill anyway.
constexpr size_t kMaxSlots = 512;

// An access counts this much more for each loop around it, up to a limit.
constexpr int64_t kLoopWeight = 16;
constexpr int64_t kMaxWeight = int64_t{1} << 32;

struct Uses {
  bool all_constant = true;
  std::map<LocalSlot, int64_t> weights;  // of each distinct set of lanes
};

bool HasRepeats(LocalSlot elements) {
  std::sort(elements.begin(), elements.end());
  return std::adjacent_find(elements.begin(), elements.end()) != elements.end();
}

class UseCollector {
 public:
  UseCollector(const ir::Buffer& buffer, bool outlined_loops, Uses* uses)
      : buffer_(buffer), outlined_loops_(outlined_loops), uses_(uses) {}

  void Walk(const Stmt& s, int64_t weight) {
    if (!uses_->all_constant || s == nullptr) return;
    auto loads = [&](const Expr& e) { WalkExpr(e, weight); };
    switch (s->kind) {
      case StmtKind::kFor:
        WalkFor(s, weight);
        return;
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) Walk(child, weight);
        return;
      case StmtKind::kStore:
        loads(s->value);
        loads(s->indices[0]);
        loads(s->mask);
        if (s->buffer == buffer_) Add(s->indices[0], weight);
        return;
      default:
        loads(s->condition);
        loads(s->value);
        Walk(s->body, weight);
        Walk(s->else_body, weight);
        return;
    }
  }

 private:
  void WalkFor(const Stmt& s, int64_t weight) {
    WalkExpr(s->range.min, weight);
    WalkExpr(s->range.extent, weight);
    bool outlined = outlined_loops_ && s->for_kind == ir::ForKind::kParallel;
    Uses inside;
    Uses* outer = uses_;
    if (outlined) uses_ = &inside;
    Walk(s->body, std::min(kMaxWeight, weight * kLoopWeight));
    uses_ = outer;
    // The body becomes a function of its own, which cannot reach the values of this one.
    if (outlined && (!inside.all_constant || !inside.weights.empty())) uses_->all_constant = false;
  }

  void WalkExpr(const Expr& e, int64_t weight) {
    if (e == nullptr) return;
    ir::VisitExprs(e, [&](const Expr& part) {
      if (part->kind == ExprKind::kLoad && part->buffer == buffer_) Add(part->args[0], weight);
      return uses_->all_constant;
    });
  }

  void Add(const Expr& index, int64_t weight) {
    LocalSlot elements;
    if (!ConstantElements(index, &elements)) {
      uses_->all_constant = false;
      return;
    }
    uses_->weights[elements] += weight * static_cast<int64_t>(elements.size());
  }

  const ir::Buffer& buffer_;
  bool outlined_loops_;
  Uses* uses_;
};

}  // namespace

SlotPlan PlanSlots(const ir::Buffer& buffer, const Stmt& body, bool outlined_loops) {
  SlotPlan plan;
  Uses uses;
  UseCollector(buffer, outlined_loops, &uses).Walk(body, 1);
  if (!uses.all_constant) return plan;
  // The most used sets of lanes first: what does not fit them pays for shuffles.
  std::vector<std::pair<int64_t, const LocalSlot*>> order;
  for (const auto& [lanes, weight] : uses.weights) order.emplace_back(-weight, &lanes);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  auto add = [&](const LocalSlot& slot) {
    for (int64_t element : slot) {
      if (plan.elements.contains(element)) return;
    }
    for (size_t lane = 0; lane < slot.size(); ++lane) {
      plan.elements[slot[lane]] = {static_cast<int>(plan.slots.size()), static_cast<int>(lane)};
    }
    plan.slots.push_back(slot);
  };
  for (const auto& [weight, lanes] : order) {
    if (!HasRepeats(*lanes)) add(*lanes);
  }
  for (const auto& [weight, lanes] : order) {
    for (int64_t element : *lanes) add({element});
  }
  plan.promotable = plan.slots.size() <= kMaxSlots;
  return plan;
}

}  // namespace tilewright::codegen
