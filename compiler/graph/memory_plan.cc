// Static memory planning: one arena, lifetimes in node order. Placing tensors one by one at the
// lowest free offset is near the bound when large ones come first, but not always; several orders
// are tried and then improved by promoting the tensors that stick out, which ends at the bound in
// almost every graph.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/keep_state.h"
#include "compiler/graph/loops.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

constexpr int kImprovementRounds = 200;
constexpr uint64_t kSeed = 0x7411e5;

struct Tensor {
  ValueId root;
  int64_t bytes;
  std::optional<op::Dim> size;  // the same at all sizes; nothing where it is too long
  int first, last;              // nodes: written by `first`, read until `last`
};

int64_t Aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// What a loop needs lives through all of its trips. By root.
void LiveThroughLoops(const Graph& g, const std::vector<Storage>& storage, std::vector<int>* first,
                      std::vector<int>* last) {
  const auto read = [&](ValueId id, int at) {
    int& until = (*last)[storage[id].root];
    until = std::max(until, at);
  };
  for (const Loop& loop : LoopsOf(g)) {  // inner ones before those around them
    const int before = static_cast<int>(loop.begin) - 1, end = static_cast<int>(loop.end);
    for (const Loop::Carried& carried : loop.carried) {
      read(carried.init, before);
      (*first)[carried.value] = before;
      read(carried.value, end);
      read(carried.next, end);
    }
    for (const Loop::Stacked& stacked : loop.stacked) {
      (*first)[stacked.whole] = before;
      read(stacked.part, end);
      read(stacked.whole, end);
    }
    for (size_t root = 0; root < first->size(); ++root) {
      int& until = (*last)[root];
      if ((*first)[root] <= before && before < until && until < end) until = end;
    }
  }
}

absl::StatusOr<std::vector<Tensor>> Lifetimes(const Graph& g, const std::vector<Storage>& storage,
                                              int64_t alignment, const op::Sizes& maxima) {
  std::vector<int> first(g.values.size(), -1), last(g.values.size(), -1);
  std::vector<bool> outside(g.values.size(), false);
  for (ValueId id : g.inputs) outside[storage[id].root] = true;
  for (ValueId id : g.outputs) outside[storage[id].root] = true;
  for (ValueId id : StateValues(g)) outside[storage[id].root] = true;
  for (size_t id = 0; id < g.values.size(); ++id) {
    if (g.values[id].constant != nullptr) outside[storage[id].root] = true;
  }
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const int at = static_cast<int>(n);
    if (IsView(g.nodes[n])) continue;  // no kernel: reads nothing
    for (ValueId id : g.nodes[n].inputs) last[storage[id].root] = at;
    for (ValueId id : g.nodes[n].outputs) {
      const ValueId root = storage[id].root;
      if (first[root] < 0) first[root] = at;  // several kernels write the parts of a concat
      last[root] = at;
    }
  }
  LiveThroughLoops(g, storage, &first, &last);
  std::vector<Tensor> tensors;
  for (size_t id = 0; id < g.values.size(); ++id) {
    const ValueId root = static_cast<ValueId>(id);
    if (storage[id].root != root || outside[id] || first[id] < 0) continue;
    const op::TensorType& type = g.values[id].type;
    op::TensorType largest = type;
    for (op::Dim& dim : largest.shape) {
      TW_ASSIGN(const int64_t extent, dim.Evaluate(maxima));
      dim = extent;
    }
    TW_TRY(op::CheckType(largest));
    tensors.push_back(
        {root, Aligned(largest.bytes(), alignment), op::BytesOf(type), first[id], last[id]});
  }
  return tensors;
}

// At all sizes, up to the alignment.
bool SameSize(const Tensor& a, const Tensor& b) {
  const bool open = !a.size || !b.size || !a.size->is_constant() || !b.size->is_constant();
  return open ? a.size && a.size == b.size : a.bytes == b.bytes;
}

// Results that may overwrite an operand join its tensor: one life from the operand's first write to
// the result's last read. Both must lie in the arena, have one size, and the operand die there.
void Merge(const Graph& g, const std::vector<Storage>& storage, const InPlaceOperands& may,
           std::vector<Tensor>* tensors, MemoryPlan* plan, std::vector<ValueId>* shared) {
  std::map<ValueId, size_t> at;  // root → tensor
  for (size_t t = 0; t < tensors->size(); ++t) at[(*tensors)[t].root] = t;
  for (size_t n = 0; n < g.nodes.size() && n < may.size(); ++n) {
    const Node& node = g.nodes[n];
    if (IsView(node) || node.outputs.size() != 1) continue;
    auto out = at.find(node.outputs[0]);
    if (out == at.end()) continue;
    for (int operand : may[n]) {
      const ValueId root = (*shared)[storage[node.inputs[operand]].root];
      auto in = at.find(root);
      const auto uses = std::count_if(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
        return (*shared)[storage[id].root] == root;
      });
      if (in == at.end() || uses != 1) continue;
      Tensor &from = (*tensors)[in->second], &to = (*tensors)[out->second];
      if (from.last != static_cast<int>(n) || !SameSize(from, to)) continue;
      from.last = to.last;
      to.bytes = 0;  // removed below
      plan->in_place[n] = operand;
      (*shared)[node.outputs[0]] = root;
      at.erase(out);
      break;
    }
  }
  std::erase_if(*tensors, [](const Tensor& t) { return t.bytes == 0; });
}

bool Overlap(const Tensor& a, const Tensor& b) { return a.first <= b.last && b.first <= a.last; }

// Places tensors in the given order, each at the lowest offset that is free during its life.
int64_t Place(const std::vector<Tensor>& tensors, const std::vector<int>& order,
              std::vector<int64_t>* offsets) {
  offsets->assign(tensors.size(), -1);
  int64_t arena = 0;
  std::vector<std::pair<int64_t, int64_t>> taken;  // offset, end
  for (int t : order) {
    taken.clear();
    for (size_t other = 0; other < tensors.size(); ++other) {
      if ((*offsets)[other] >= 0 && Overlap(tensors[t], tensors[other])) {
        taken.emplace_back((*offsets)[other], (*offsets)[other] + tensors[other].bytes);
      }
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [start, end] : taken) {
      if (start >= at + tensors[t].bytes) break;
      at = std::max(at, end);
    }
    (*offsets)[t] = at;
    arena = std::max(arena, at + tensors[t].bytes);
  }
  return arena;
}

// Per value: the roots of the tensors that live at the same time and lie below.
std::vector<std::vector<ValueId>> Below(const std::vector<Tensor>& tensors,
                                        const std::vector<int64_t>& offsets, size_t values) {
  std::vector<std::vector<ValueId>> below(values);
  for (size_t a = 0; a < tensors.size(); ++a) {
    for (size_t b = 0; b < tensors.size(); ++b) {
      if (offsets[b] < offsets[a] && Overlap(tensors[a], tensors[b])) {
        below[tensors[a].root].push_back(tensors[b].root);
      }
    }
  }
  return below;
}

int64_t LivenessBound(const std::vector<Tensor>& tensors, size_t nodes) {
  std::vector<int64_t> change(nodes + 1, 0);
  for (const Tensor& t : tensors) {
    change[t.first] += t.bytes;
    change[t.last + 1] -= t.bytes;
  }
  int64_t live = 0, bound = 0;
  for (int64_t delta : change) bound = std::max(bound, live += delta);
  return bound;
}

using Less = std::function<bool(const Tensor&, const Tensor&)>;

std::vector<Less> Orders() {
  auto life = [](const Tensor& t) { return t.last - t.first; };
  return {
      [](const Tensor& a, const Tensor& b) { return a.bytes > b.bytes; },
      [=](const Tensor& a, const Tensor& b) {
        return a.bytes * (life(a) + 1) > b.bytes * (life(b) + 1);
      },
      [=](const Tensor& a, const Tensor& b) { return life(a) > life(b); },
      [](const Tensor& a, const Tensor& b) { return a.first < b.first; },
      [](const Tensor& a, const Tensor& b) { return a.last > b.last; },
  };
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const Graph& fused, const InPlaceOperands& may,
                                      int64_t alignment, const op::Sizes& maxima) {
  const std::vector<Storage> storage = StorageOf(fused);
  TW_ASSIGN(std::vector<Tensor> tensors, Lifetimes(fused, storage, alignment, maxima));
  MemoryPlan plan;
  plan.offset.assign(fused.values.size(), -1);
  plan.in_place.assign(fused.nodes.size(), -1);
  std::vector<ValueId> shared(fused.values.size());  // root → the root whose tensor it lives in
  std::iota(shared.begin(), shared.end(), 0);
  Merge(fused, storage, may, &tensors, &plan, &shared);
  plan.liveness_bound = LivenessBound(tensors, fused.nodes.size());

  std::vector<int> order(tensors.size()), best_order;
  std::vector<int64_t> offsets, best;
  int64_t arena = INT64_MAX;
  auto consider = [&] {
    const int64_t size = Place(tensors, order, &offsets);
    if (size >= arena) return false;
    arena = size;
    best = offsets;
    best_order = order;
    return true;
  };
  for (const Less& less : Orders()) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return less(tensors[a], tensors[b]); });
    consider();
  }
  // A tensor that reaches the top moves to a random earlier place in the order.
  support::Rng rng(kSeed);
  for (int round = 0; round < kImprovementRounds && arena > plan.liveness_bound; ++round) {
    order = best_order;
    std::vector<size_t> top;
    for (size_t i = 0; i < order.size(); ++i) {
      if (best[order[i]] + tensors[order[i]].bytes == arena) top.push_back(i);
    }
    const size_t from = rng.Choice(top);
    const size_t to = rng.Uniform(from + 1);
    std::rotate(order.begin() + static_cast<int64_t>(to),
                order.begin() + static_cast<int64_t>(from),
                order.begin() + static_cast<int64_t>(from) + 1);
    consider();
  }
  for (size_t t = 0; t < tensors.size(); ++t) plan.offset[tensors[t].root] = best[t];
  if (IsSymbolic(fused)) plan.after = Below(tensors, best, fused.values.size());
  const std::vector<int64_t> of_root = plan.offset;
  for (size_t id = 0; id < storage.size(); ++id) {
    const ValueId root = shared[storage[id].root];
    TW_ASSIGN(const int64_t offset, storage[id].offset.Evaluate(maxima));
    plan.offset[id] = of_root[root] < 0 ? -1 : of_root[root] + offset;
    if (!plan.after.empty()) plan.after[id] = plan.after[root];
  }
  plan.arena_bytes = tensors.empty() ? 0 : arena;
  return plan;
}

}  // namespace tilewright::graph
