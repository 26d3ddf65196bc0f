#include "compiler/codegen/local_slots.h"

#include <algorithm>
#include <tuple>

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

struct Uses {
  bool all_constant = true;
  std::map<std::pair<int64_t, int>, int64_t> contiguous;  // (first, lanes) → number of accesses
  std::vector<int64_t> elements;
};

void AddAccess(const Expr& index, Uses* uses) {
  std::vector<int64_t> elements;
  if (!ConstantElements(index, &elements)) {
    uses->all_constant = false;
    return;
  }
  bool contiguous = elements.size() == 1 || elements[1] == elements[0] + 1;
  if (contiguous) ++uses->contiguous[{elements[0], static_cast<int>(elements.size())}];
  uses->elements.insert(uses->elements.end(), elements.begin(), elements.end());
}

void CollectUses(const ir::Buffer& buffer, const Stmt& body, bool outlined_loops, Uses* uses) {
  ir::VisitExprsIn(body, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad && e->buffer == buffer) AddAccess(e->args[0], uses);
    return uses->all_constant;
  });
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kStore && s->buffer == buffer) AddAccess(s->indices[0], uses);
    if (outlined_loops && s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kParallel) {
      Uses inside;
      CollectUses(buffer, s->body, false, &inside);
      if (!inside.all_constant || !inside.elements.empty()) uses->all_constant = false;
    }
    return uses->all_constant;
  });
}

}  // namespace

SlotPlan PlanSlots(const ir::Buffer& buffer, const Stmt& body, bool outlined_loops) {
  SlotPlan plan;
  Uses uses;
  CollectUses(buffer, body, outlined_loops, &uses);
  if (!uses.all_constant) return plan;
  // The most used shapes first: what does not fit them pays for shuffles.
  std::vector<std::tuple<int64_t, int64_t, int>> order;  // (-weight, first, lanes)
  for (const auto& [access, count] : uses.contiguous) {
    order.emplace_back(-count * access.second, access.first, access.second);
  }
  std::sort(order.begin(), order.end());
  auto add = [&](int64_t first, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      if (plan.elements.contains(first + lane)) return;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      plan.elements[first + lane] = {static_cast<int>(plan.slots.size()), lane};
    }
    plan.slots.push_back({first, lanes});
  };
  for (const auto& [weight, first, lanes] : order) add(first, lanes);
  std::sort(uses.elements.begin(), uses.elements.end());
  for (int64_t element : uses.elements) add(element, 1);
  plan.promotable = plan.slots.size() <= kMaxSlots;
  return plan;
}

}  // namespace tilewright::codegen
