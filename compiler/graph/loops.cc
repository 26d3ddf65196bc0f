#include "compiler/graph/loops.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::Quote;
using support::StrCat;

bool HasLoops(const Graph& g) {
  return std::ranges::any_of(g.nodes, [](const Node& n) { return n.op == kLoopEndOp; });
}

int64_t NumberOf(const Node& node) { return op::GetInt(node.attrs, "loop", -1); }

size_t CarriedBy(const Node& end) {
  return static_cast<size_t>(op::GetInt(end.attrs, "carried", 0));
}

// Behind a loop, a view of what it carried or stacked.
bool IsResultOf(const Node& end, const Node& node) {
  return (node.op == kLoopResultOp || node.op == kLoopStackOp) && node.inputs[0] == end.outputs[0];
}

// The nodes that depend on what the nodes of `from` make, or on a size that it is, but not on the
// end of their loop alone.
std::vector<bool> Dependents(const Graph& g, const std::vector<std::vector<ValueId>>& sizes,
                             const std::set<size_t>& from, size_t end) {
  std::vector<bool> value(g.values.size()), node(g.nodes.size());
  const auto depends = [&](ValueId id) { return value[id]; };
  // What finds a size may stand behind what needs it, before OrderFound.
  for (bool more = true; more;) {
    more = false;
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      if (node[n] || n == end || IsResultOf(g.nodes[end], g.nodes[n])) continue;
      node[n] = from.contains(n) || std::ranges::any_of(g.nodes[n].inputs, depends) ||
                std::ranges::any_of(sizes[n], depends);
      if (!node[n]) continue;
      for (ValueId id : g.nodes[n].outputs) value[id] = more = true;
    }
  }
  return node;
}

absl::Status Bad(const Node& node, const std::string& detail) {
  return support::InvalidArgument("graph.verify.loop", StrCat(Quote(node.name), ": ", detail));
}

// The nodes that make what the loop of this end carries, in the order of the values.
std::vector<size_t> ValuesOf(const std::vector<int>& producer, const Node& end) {
  std::vector<size_t> nodes;
  const size_t carried = CarriedBy(end);
  for (size_t i = carried; i < 2 * carried; ++i) {
    nodes.push_back(static_cast<size_t>(producer[end.inputs[i]]));
  }
  return nodes;
}

// Whether each value of the end is of a node loop_value of this loop, and each only once.
bool IsWhole(const Graph& g, const std::vector<int>& producer, const Node& end) {
  std::set<ValueId> seen;
  const size_t carried = CarriedBy(end);
  for (size_t i = carried; i < 2 * carried; ++i) {
    const int maker = producer[end.inputs[i]];
    if (maker < 0 || !seen.insert(end.inputs[i]).second) return false;
    const Node& value = g.nodes[static_cast<size_t>(maker)];
    if (value.op != kLoopValueOp || NumberOf(value) != NumberOf(end)) return false;
  }
  return carried > 0;
}

// What depends on the values of the loop and is not behind its end lies in the body.
absl::Status CheckBody(const Graph& g, const std::set<size_t>& values, size_t end) {
  std::vector<bool> in(g.values.size());
  const auto is_in = [&](ValueId id) { return in[id]; };
  const std::vector<std::vector<ValueId>> sizes = SizesNeeded(g);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    const bool of_size = std::ranges::any_of(sizes[n], is_in);
    const bool value = values.contains(n);
    if (n == end || (!of_size && !value && std::ranges::none_of(node.inputs, is_in))) continue;
    if (n > end && !of_size && IsResultOf(g.nodes[end], node)) continue;
    if (n > end || (!value && n < *values.rbegin())) {
      return Bad(node, StrCat("expected it in the body of the loop that ends with ",
                              Quote(g.nodes[end].name), ", found it outside"));
    }
    for (ValueId id : node.outputs) in[id] = true;
  }
  for (ValueId id : std::span(g.outputs).first(g.outputs.size() - g.checks.size())) {
    if (!in[id]) continue;
    return Bad(g.nodes[end], StrCat("expected outputs behind the loop, found ",
                                    Quote(g.values[id].name), " of its body"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLoopNode(const Node& node) {
  return node.op == kLoopValueOp || node.op == kLoopEndOp || node.op == kLoopResultOp ||
         node.op == kLoopStackOp;
}

std::vector<Loop> LoopsOf(const Graph& g) {
  std::vector<Loop> loops;
  if (!HasLoops(g)) return loops;
  const std::vector<int> producer = Producers(g);
  std::map<ValueId, size_t> of_end;  // by the result of its end
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    if (node.op == kLoopStackOp) {
      loops[of_end.at(node.inputs[0])].stacked.push_back({node.inputs[1], node.outputs[0]});
    }
    if (node.op != kLoopEndOp) continue;
    Loop loop{.begin = 0, .end = n, .carried = {}, .stacked = {}, .checks = {}};
    const std::vector<size_t> values = ValuesOf(producer, node);
    for (size_t i = 0; i < values.size(); ++i) {
      const Node& value = g.nodes[values[i]];
      loop.begin = std::max(loop.begin, values[i] + 1);
      loop.carried.push_back({value.inputs[0], value.outputs[0], node.inputs[i]});
    }
    of_end[node.outputs[0]] = loops.size();
    loops.push_back(std::move(loop));
  }
  for (size_t i = 0; i < g.checks.size(); ++i) {
    const int maker = producer[LookedAt(g, i)];
    const auto holds = [&](const Loop& loop) {
      return maker >= 0 && loop.Holds(static_cast<size_t>(maker));
    };
    const auto innermost = std::ranges::find_if(loops, holds);
    if (innermost != loops.end()) innermost->checks.push_back(i);
  }
  return loops;
}

Graph OrderLoops(Graph g) {
  if (!HasLoops(g)) return g;
  // From the outermost loop inwards: inner ones are parts of what outer ones order.
  for (size_t at = g.nodes.size(); at-- > 0;) {
    if (g.nodes[at].op != kLoopEndOp) continue;
    const std::vector<int> producer = Producers(g);
    const std::vector<std::vector<ValueId>> sizes = SizesNeeded(g);
    std::set<size_t> from;
    for (size_t n : ValuesOf(producer, g.nodes[at])) from.insert(n);
    const size_t first = *from.begin();
    // A loop in the body begins anew in every trip, even if nothing else of it depends on one.
    std::set<size_t> inner = from;
    for (size_t before = 0; before != inner.size();) {
      before = inner.size();
      const std::vector<bool> depends = Dependents(g, sizes, inner, at);
      for (size_t n = first; n < at; ++n) {
        if (g.nodes[n].op != kLoopEndOp || !depends[n]) continue;
        for (size_t value : ValuesOf(producer, g.nodes[n])) inner.insert(value);
      }
    }
    const std::vector<bool> depends = Dependents(g, sizes, inner, at);
    std::vector<Node> before, values, body, end, behind;
    for (size_t n = first; n < g.nodes.size(); ++n) {
      std::vector<Node>* part = from.contains(n) ? &values
                                : n == at        ? &end
                                : depends[n]     ? &body
                                : n < at         ? &before
                                                 : &behind;
      part->push_back(g.nodes[n]);
    }
    at = first + before.size() + values.size() + body.size();
    auto to = g.nodes.begin() + static_cast<std::ptrdiff_t>(first);
    for (std::vector<Node>* part : {&before, &values, &body, &end, &behind}) {
      to = std::move(part->begin(), part->end(), to);
    }
  }
  return g;
}

std::vector<std::vector<size_t>> LoopsOfChecks(const Graph& g) {
  std::vector<std::vector<size_t>> ends(g.checks.size());
  if (!HasLoops(g)) return ends;
  const std::vector<int> producer = Producers(g);
  const std::vector<std::vector<ValueId>> sizes = SizesNeeded(g);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op != kLoopEndOp) continue;
    const std::vector<size_t> values = ValuesOf(producer, g.nodes[n]);
    const std::vector<bool> body = Dependents(g, sizes, {values.begin(), values.end()}, n);
    for (size_t i = 0; i < ends.size(); ++i) {
      const int maker = producer[LookedAt(g, i)];
      if (maker >= 0 && body[static_cast<size_t>(maker)]) ends[i].push_back(n);
    }
  }
  return ends;
}

absl::Status CheckLoops(const Graph& g) {
  if (std::ranges::none_of(g.nodes, IsLoopNode)) return absl::OkStatus();
  const std::vector<int> producer = Producers(g);
  std::map<int64_t, size_t> ends;  // by the number of the loop
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    const auto maker = [&](size_t operand) {
      const int at = producer[node.inputs[operand]];
      return at < 0 ? nullptr : &g.nodes[static_cast<size_t>(at)];
    };
    if (node.op == kLoopEndOp &&
        (!ends.emplace(NumberOf(node), n).second || !IsWhole(g, producer, node))) {
      return Bad(node, "expected the values of one loop of its own number, found others");
    }
    if (node.op != kLoopResultOp && node.op != kLoopStackOp) continue;
    const Node* end = maker(0);
    const bool of_end = end != nullptr && end->op == kLoopEndOp;
    const auto from = of_end ? static_cast<std::ptrdiff_t>(CarriedBy(*end)) : 0;
    if (!of_end || std::find(end->inputs.begin() + from, end->inputs.end(), node.inputs[1]) ==
                       end->inputs.end()) {
      return Bad(node, "expected the end of a loop and an operand of it, found others");
    }
  }
  for (const Node& node : g.nodes) {
    if (node.op == kLoopValueOp && !ends.contains(NumberOf(node))) {
      return Bad(node, "expected the end of its loop, found none");
    }
  }
  for (const auto& [number, end] : ends) {
    std::set<size_t> values;
    for (size_t n : ValuesOf(producer, g.nodes[end])) values.insert(n);
    TW_TRY(CheckBody(g, values, end));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::graph
