#include "compiler/codegen/local_slots.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/codegen/linear_index.h"
#include "compiler/ir/structural.h"
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

struct LaneUse {
  int64_t weight = 0;
  Expr mask;             // of the first access
  bool one_mask = true;  // every access has it, and so has the store that each load is part of
};
struct Uses {
  bool all_constant = true;
  std::map<LocalSlot, LaneUse> lanes;        // by distinct set of lanes
  std::set<const ir::ExprNode*> bound_vars;  // inside the allocation
};

bool SameMask(const Expr& a, const Expr& b) {
  return a != nullptr && b != nullptr && (a == b || ir::StructuralEqual(a, b));
}

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
    auto loads = [&](const Expr& e) { WalkExpr(e, weight, nullptr); };
    switch (s->kind) {
      case StmtKind::kFor:
        WalkFor(s, weight);
        return;
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) Walk(child, weight);
        return;
      case StmtKind::kStore:
        WalkExpr(s->value, weight, s->mask);
        loads(s->indices[0]);
        loads(s->mask);
        if (s->buffer == buffer_) Add(s->indices[0], weight, s->mask, s->mask);
        return;
      default:
        if (s->kind == StmtKind::kLet) uses_->bound_vars.insert(s->var.get());
        loads(s->condition);
        loads(s->value);
        Walk(s->body, weight);
        Walk(s->else_body, weight);
        return;
    }
  }

 private:
  void WalkFor(const Stmt& s, int64_t weight) {
    uses_->bound_vars.insert(s->var.get());
    WalkExpr(s->range.min, weight, nullptr);
    WalkExpr(s->range.extent, weight, nullptr);
    bool outlined = outlined_loops_ && s->for_kind == ir::ForKind::kParallel;
    Uses inside;
    Uses* outer = uses_;
    if (outlined) uses_ = &inside;
    Walk(s->body, std::min(kMaxWeight, weight * kLoopWeight));
    uses_ = outer;
    // The body becomes a function of its own, which cannot reach the values of this one.
    if (outlined && (!inside.all_constant || !inside.lanes.empty())) uses_->all_constant = false;
  }

  // `store_mask`: of the store whose value `e` is part of.
  void WalkExpr(const Expr& e, int64_t weight, const Expr& store_mask) {
    if (e == nullptr) return;
    ir::VisitExprs(e, [&](const Expr& part) {
      if (part->kind == ExprKind::kLoad && part->buffer == buffer_) {
        Add(part->args[0], weight, part->mask, store_mask);
      }
      return uses_->all_constant;
    });
  }

  void Add(const Expr& index, int64_t weight, const Expr& mask, const Expr& store_mask) {
    LocalSlot elements;
    if (!ConstantElements(index, &elements)) {
      uses_->all_constant = false;
      return;
    }
    auto [it, first] = uses_->lanes.try_emplace(elements);
    LaneUse& use = it->second;
    if (first) use.mask = mask;
    use.weight += weight * static_cast<int64_t>(elements.size());
    use.one_mask = use.one_mask && SameMask(use.mask, mask) && SameMask(mask, store_mask);
  }

  const ir::Buffer& buffer_;
  bool outlined_loops_;
  Uses* uses_;
};

// For each slot, whether its masks may be ignored.
std::vector<bool> IgnorableMasks(const SlotPlan& plan, const Uses& uses) {
  std::map<int64_t, int> patterns;  // distinct sets of lanes that an element is part of
  for (const auto& [lanes, use] : uses.lanes) {
    for (int64_t element : lanes) ++patterns[element];
  }
  std::vector<bool> ignore;
  for (const LocalSlot& slot : plan.slots) {
    auto it = uses.lanes.find(slot);
    bool ok = it != uses.lanes.end() && it->second.one_mask;
    for (int64_t element : slot) ok = ok && patterns[element] == 1;
    if (ok) {
      ir::VisitExprs(it->second.mask, [&](const Expr& e) {
        ok = ok && e->kind != ExprKind::kLoad && !uses.bound_vars.contains(e.get());
        return ok;
      });
    }
    ignore.push_back(ok);
  }
  return ignore;
}

}  // namespace

SlotPlan PlanSlots(const ir::Buffer& buffer, const Stmt& body, bool outlined_loops) {
  SlotPlan plan;
  Uses uses;
  UseCollector(buffer, outlined_loops, &uses).Walk(body, 1);
  if (!uses.all_constant) return plan;
  // The most used sets of lanes first: what does not fit them pays for shuffles.
  std::vector<std::pair<int64_t, const LocalSlot*>> order;
  for (const auto& [lanes, use] : uses.lanes) order.emplace_back(-use.weight, &lanes);
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
  plan.ignore_masks = IgnorableMasks(plan, uses);
  return plan;
}

}  // namespace tilewright::codegen
