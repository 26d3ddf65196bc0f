// Operator fusion: groups of nodes that become one kernel each.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

// Operations in the expression of one output element, with shared parts counted as often as they
// are written: what keeps diamonds from growing without bound.
constexpr int64_t kMaxExpression = 64;
// Operations per element that a reduction computes on the fly.
constexpr int kMaxPrologue = 8;

class Fuser {
 public:
  explicit Fuser(const Graph& g)
      : g_(g),
        readers_(Readers(g)),
        outputs_(g.outputs.begin(), g.outputs.end()),
        producer_(g.values.size(), -1),
        group_(g.nodes.size(), -1) {
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      for (ValueId id : g.nodes[n].outputs) producer_[id] = static_cast<int>(n);
    }
  }

  // One group per operator, whatever it could join.
  Graph Wrap() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (IsView(g_.nodes[n]) || g_.nodes[n].op == kFusedOp) continue;
      group_[n] = static_cast<int>(n);
      members_[group_[n]] = {group_[n]};
    }
    return Rebuild(1);
  }

  absl::StatusOr<Graph> Run() {
    for (const Node& node : g_.nodes) {
      if (node.op == kFusedOp || op::FindOp(node.op) == nullptr) {
        return support::InvalidArgument(
            "graph.fuse.operator",
            StrCat("expected operators that are not fused yet, found ", node.op));
      }
    }
    // Later anchors first: of two branches that meet in an addition, the one computed last takes it
    // and reads the other's finished result.
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      if (ClassOf(n) != op::FusionClass::kInjective) Grow(static_cast<int>(n));
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (group_[n] < 0 && ClosesStages(static_cast<int>(n))) TakeStages(static_cast<int>(n));
    }
    // What no anchor took as its epilogue may be the prologue of a reduction.
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      if (ClassOf(n) == op::FusionClass::kReduction) TakePrologue(static_cast<int>(n));
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (ClassOf(n) == op::FusionClass::kComplexOutFusable) TakeConversions(static_cast<int>(n));
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (group_[n] >= 0 || IsView(g_.nodes[n])) continue;
      Grow(static_cast<int>(n));
      if (ClassOf(n) == op::FusionClass::kInjective) TakeConversions(static_cast<int>(n));
    }
    return Rebuild(2);
  }

 private:
  op::FusionClass ClassOf(size_t n) const { return op::FindOp(g_.nodes[n].op)->fusion; }
  bool SameElements(int a, int b) const {
    return op::SameElements(g_.values[g_.nodes[a].outputs[0]].type,
                            g_.values[g_.nodes[b].outputs[0]].type);
  }

  bool Joinable(int n, int root, bool anchor) const {
    if (group_[n] >= 0 || IsView(g_.nodes[n]) || !SameElements(n, root)) return false;
    const op::OpSpec* spec = op::FindOp(g_.nodes[n].op);
    return spec->fusion == op::FusionClass::kInjective && (!anchor || spec->elementwise());
  }

  // Whether the node makes bytes of what an operator that is staged (OpSpec) computes: then its
  // group is one of instructions, which does nothing else.
  bool ClosesStages(int n) const {
    const Node& node = g_.nodes[n];
    const int from = node.op == "cast" ? producer_[node.inputs[0]] : -1;
    const op::OpSpec* spec = from < 0 ? nullptr : op::FindOp(g_.nodes[from].op);
    return spec != nullptr && spec->staged;
  }

  int Uses(const Node& node, size_t operand) const {
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) types.push_back(g_.values[id].type);
    return op::OperandUses(*op::FindOp(node.op), operand, types, node.attrs);
  }

  // Nodes that an expression grown from `root` can reach without leaving joinable nodes, with their
  // expression sizes; the root counts 1.
  std::map<int, int64_t> Candidates(int root) const {
    const bool anchor = ClassOf(root) != op::FusionClass::kInjective;
    std::map<int, int64_t> size = {{root, 1}};
    std::set<int> frontier(readers_[g_.nodes[root].outputs[0]].begin(),
                           readers_[g_.nodes[root].outputs[0]].end());
    while (!frontier.empty()) {
      const int n = *frontier.begin();  // in topological order: all members before n are decided
      frontier.erase(frontier.begin());
      if (!Joinable(n, root, anchor)) continue;
      const Node& node = g_.nodes[n];
      int64_t total = 1;
      bool closed = false;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const int from = producer_[node.inputs[i]];
        auto it = from < 0 ? size.end() : size.find(from);
        if (it == size.end()) continue;
        total += Uses(node, i) * it->second;
        closed = closed || ClosesStages(from);
      }
      if (closed || total > kMaxExpression) continue;
      size[n] = total;
      const auto& next = readers_[g_.nodes[n].outputs[0]];
      frontier.insert(next.begin(), next.end());
    }
    return size;
  }

  // The members of the group that ends in `last`: its ancestors among the candidates.
  std::set<int> Ancestors(int last, const std::map<int, int64_t>& candidates) const {
    std::set<int> members = {last};
    std::vector<int> work = {last};
    while (!work.empty()) {
      const int n = work.back();
      work.pop_back();
      for (ValueId id : g_.nodes[n].inputs) {
        const int from = producer_[id];
        if (from >= 0 && candidates.count(from) > 0 && members.insert(from).second) {
          work.push_back(from);
        }
      }
    }
    return members;
  }

  // All uses of all members but the last stay inside.
  bool Closed(const std::set<int>& members, int last) const {
    for (int n : members) {
      if (n == last) continue;
      const ValueId out = g_.nodes[n].outputs[0];
      if (outputs_.count(out) > 0) return false;
      for (int reader : readers_[out]) {
        if (members.count(reader) == 0) return false;
      }
    }
    return true;
  }

  void Grow(int root) {
    std::set<int> members = {root};
    int last = root;
    if (ClassOf(root) != op::FusionClass::kOpaque && g_.nodes[root].outputs.size() == 1) {
      const std::map<int, int64_t> candidates = Candidates(root);
      for (auto it = candidates.rbegin(); it != candidates.rend(); ++it) {
        std::set<int> chosen = Ancestors(it->first, candidates);
        // An inner root keeps its own inputs outside: everything else must hang on it.
        if (chosen.count(root) == 0 || *chosen.begin() != root || !Closed(chosen, it->first)) {
          continue;
        }
        members = std::move(chosen);
        last = it->first;
        break;
      }
    }
    for (int n : members) group_[n] = last;
    members_[last] = std::move(members);
  }

  // Instructions on bytes that no anchor has: all that only `last` depends on, up to bytes.
  void TakeStages(int last) {
    std::set<int>& members = members_[last];
    std::vector<int> work = {last};
    while (!work.empty()) {
      const int reader = work.back();
      work.pop_back();
      members.insert(reader);
      group_[reader] = last;
      for (ValueId id : g_.nodes[reader].inputs) {
        const int from = producer_[id];
        if (from < 0 || ClosesStages(from) || !Joinable(from, last, /*anchor=*/true)) continue;
        if (outputs_.count(id) == 0 && readers_[id].size() == 1) work.push_back(from);
      }
    }
  }

  // Whether an element costs a few additions and multiplications: then it is computed again
  // wherever the reduction reads it.
  bool Cheap(const Node& node) const {
    const op::OpSpec* spec = op::FindOp(node.op);
    if (!spec->elementwise()) return false;
    std::vector<ir::Expr> args;
    for (ValueId id : node.inputs) {
      const op::TensorType& type = g_.values[id].type;
      absl::StatusOr<op::RefTensor> literal = op::RefTensor{};
      if (IsLiteral(node, id) && type.dtype.is_float()) literal = ConstantTensor(g_, id);
      if (!literal.ok()) return false;
      args.push_back(literal->values.size() == 1 ? ir::Float(literal->values[0], type.dtype)
                                                 : ir::MakeVar("x", type.dtype));
    }
    int operations = 0;
    bool calls = false;
    ir::VisitExprs(spec->scalar(args, node.attrs), [&](const ir::Expr& e) {
      ++operations;
      calls = calls || ir::IsMathCall(*e) || e->kind == ir::ExprKind::kDiv;
      return true;
    });
    return !calls && operations <= kMaxPrologue;
  }

  // Elementwise nodes in front of a reduction that nothing else reads become part of its group.
  void TakePrologue(int root) {
    const int last = group_[root];
    std::set<int>& members = members_.at(last);
    std::vector<int> work = {root};
    int taken = 0;
    while (!work.empty()) {
      const Node& reader = g_.nodes[work.back()];
      work.pop_back();
      for (ValueId id : reader.inputs) {
        const int from = producer_[id];
        if (from < 0 || group_[from] >= 0 || IsView(g_.nodes[from])) continue;
        if (outputs_.count(id) > 0 || readers_[id].size() != 1 || !Cheap(g_.nodes[from])) continue;
        if (++taken > kMaxPrologue) return;
        members.insert(from);
        group_[from] = last;
        work.push_back(from);
      }
    }
  }

  // What makes numbers wider for the group of `root` alone (the other operand of a quantised
  // addition) is part of it: reading the narrow ones is cheaper. What an anchor reads stays
  // outside.
  void TakeConversions(int root) {
    const int last = group_[root];
    std::set<int>& members = members_.at(last);
    for (const int reader : std::set<int>(members)) {
      if (reader == root) continue;
      for (ValueId id : g_.nodes[reader].inputs) {
        const int from = producer_[id];
        if (from < 0 || group_[from] >= 0 || IsView(g_.nodes[from])) continue;
        const Node& node = g_.nodes[from];
        if (node.inputs.empty()) continue;
        const op::TensorType &narrow = g_.values[node.inputs[0]].type, &wide = g_.values[id].type;
        if (narrow.shape != wide.shape || narrow.dtype.bytes() >= wide.dtype.bytes()) continue;
        if (outputs_.count(id) > 0 || readers_[id].size() != 1 || !Cheap(node)) continue;
        if (!SameElements(from, last)) continue;
        members.insert(from);
        group_[from] = last;
      }
    }
  }

  // Whether a constant becomes a literal of the expression that reads it.
  bool IsLiteral(const Node& reader, ValueId id) const {
    return g_.values[id].constant != nullptr && g_.values[id].type.elements() == 1 &&
           op::FindOp(reader.op)->fusion == op::FusionClass::kInjective;
  }

  Node Fused(int last) const {
    Node fused;
    auto body = std::make_shared<Graph>();
    std::map<ValueId, ValueId> renumbered;
    std::vector<std::string> ops;
    auto add = [&](ValueId id) {
      Value value = g_.values[id];
      renumbered[id] = static_cast<ValueId>(body->values.size());
      body->values.push_back(std::move(value));
      return renumbered[id];
    };
    // Data first, then weights, each in order of first use; literals stay constants of the body.
    for (const bool weights : {false, true}) {
      for (int n : members_.at(last)) {
        for (ValueId id : g_.nodes[n].inputs) {
          const bool inside = producer_[id] >= 0 && members_.at(last).count(producer_[id]) > 0;
          const bool constant = g_.values[id].constant != nullptr;
          if (inside || renumbered.count(id) > 0 || constant != weights) continue;
          if (IsLiteral(g_.nodes[n], id) && !ReadByAnchor(last, id)) continue;
          fused.inputs.push_back(id);
          body->inputs.push_back(add(id));
          body->values.back().constant = nullptr;
          body->values.back().weight = constant;
        }
      }
    }
    for (int n : members_.at(last)) {
      Node node = g_.nodes[n];
      for (ValueId& id : node.inputs) id = renumbered.count(id) > 0 ? renumbered[id] : add(id);
      for (ValueId& id : node.outputs) id = add(id);
      ops.push_back(node.op);
      body->nodes.push_back(std::move(node));
    }
    body->name = support::Join(ops, "_");
    fused.name = g_.nodes[last].name;
    fused.op = std::string(kFusedOp);
    fused.outputs = g_.nodes[last].outputs;
    for (ValueId id : fused.outputs) body->outputs.push_back(renumbered[id]);
    fused.body = std::move(body);
    return fused;
  }

  bool ReadByAnchor(int last, ValueId id) const {
    for (int n : members_.at(last)) {
      const auto& inputs = g_.nodes[n].inputs;
      if (ClassOf(n) != op::FusionClass::kInjective &&
          std::find(inputs.begin(), inputs.end(), id) != inputs.end()) {
        return true;
      }
    }
    return false;
  }

  // Groups of at least this many nodes become fused nodes.
  Graph Rebuild(size_t least) const {
    Graph result = g_;
    result.nodes.clear();
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const int last = group_[n];
      if (last < 0 || members_.at(last).size() < least) {
        result.nodes.push_back(g_.nodes[n]);
      } else if (last == static_cast<int>(n)) {
        result.nodes.push_back(Fused(last));
      }
    }
    return Compact(result);
  }

  const Graph& g_;
  const std::vector<std::vector<int>> readers_;
  const std::set<ValueId> outputs_;
  std::vector<int> producer_;
  std::vector<int> group_;  // last node of the group of each node; -1 = none yet, or a view
  std::map<int, std::set<int>> members_;  // by last node
};

}  // namespace

absl::StatusOr<Graph> FuseOperators(Graph g, const GraphPassContext&) { return Fuser(g).Run(); }

absl::StatusOr<Graph> WrapOperators(Graph g, const GraphPassContext&) { return Fuser(g).Wrap(); }

}  // namespace tilewright::graph
