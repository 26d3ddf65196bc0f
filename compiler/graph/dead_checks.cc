#include "compiler/graph/dead_checks.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/loops.h"

namespace tilewright::graph {
namespace {

class LiveChecks {
 public:
  explicit LiveChecks(const Graph& g)
      : g_(g), loops_(LoopsOfChecks(g)), needs_(SizesNeeded(g)), finds_(g.checks.size()) {
    for (const auto& [name, place] : FoundSizes(g)) finds_[place.check].insert(name);
  }

  std::vector<bool> Run() {
    const size_t outputs = g_.outputs.size() - g_.checks.size();
    std::vector<bool> kept(g_.checks.size());
    value_.assign(g_.values.size(), false);
    for (size_t i = 0; i < outputs; ++i) value_[g_.outputs[i]] = true;
    for (bool more = true; more;) {
      more = false;
      FollowOperands();
      for (size_t i = 0; i < kept.size(); ++i) {
        if (kept[i] || !Needed(i, kept)) continue;
        kept[i] = more = true;
        value_[LookedAt(g_, i)] = true;
      }
    }
    return kept;
  }

 private:
  void FollowOperands() {
    node_.assign(g_.nodes.size(), false);
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      node_[n] = std::ranges::any_of(g_.nodes[n].outputs, [&](ValueId id) { return value_[id]; });
      if (!node_[n]) continue;
      for (ValueId id : g_.nodes[n].inputs) value_[id] = true;
    }
  }
  bool Needed(size_t check, const std::vector<bool>& kept) const {
    if (finds_[check].empty()) {
      return std::ranges::all_of(loops_[check], [&](size_t end) { return node_[end]; });
    }
    const ValueId found = LookedAt(g_, check);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (node_[n] && std::ranges::find(needs_[n], found) != needs_[n].end()) return true;
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] && Expects(i, finds_[check])) return true;
    }
    return false;
  }
  bool Expects(size_t check, const std::set<std::string>& names) const {
    return std::ranges::any_of(g_.checks[check].expected, [&](const op::Dim& dim) {
      return std::ranges::any_of(dim.variables(),
                                 [&](const std::string& name) { return names.contains(name); });
    });
  }

  const Graph& g_;
  const std::vector<std::vector<size_t>> loops_;
  const std::vector<std::vector<ValueId>> needs_;
  std::vector<std::set<std::string>> finds_;
  std::vector<bool> value_, node_;
};

}  // namespace

Graph DropDeadChecks(Graph g) {
  if (g.checks.empty()) return g;
  const std::vector<bool> kept = LiveChecks(g).Run();
  const size_t outputs = g.outputs.size() - g.checks.size();
  std::vector<ValueId> left(g.outputs.begin(),
                            g.outputs.begin() + static_cast<std::ptrdiff_t>(outputs));
  std::vector<SizeCheck> checks;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    left.push_back(g.outputs[outputs + i]);
    checks.push_back(std::move(g.checks[i]));
  }
  g.outputs = std::move(left);
  g.checks = std::move(checks);
  return g;
}

}  // namespace tilewright::graph
