// Slices and concats that move nothing: a slice that is one run of its operand's bytes is read
// where it lies, and the operands of a concat are written where its result has them. Channels of
// one image are such runs. Chains of concats, as a dense block of convolutions has them, share one
// storage.
//
// A view replaces a copy only where one would be made: if the operand is computed by the same
// kernel that moves it, that kernel computes no more than what is read.
#include <set>

#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "compiler/graph/storage_map.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

class Viewer {
 public:
  Viewer(Graph* g, int64_t alignment)
      : g_(*g),
        alignment_(alignment),
        readers_(Readers(*g)),
        producer_(Producers(*g)),
        outputs_(OutputSet(*g)),
        maxima_(MaximaOf(*g)),
        map_(*g) {}

  void Run() {
    std::vector<Node> nodes;
    for (Node node : g_.nodes) {
      if (!IsView(node) && ((node.op == "slice" && SliceIsView(node)) ||
                            (node.op == "concat" && PartsGoInto(&node, &nodes)))) {
        node.attrs[std::string(kViewAttr)] = int64_t{1};
      }
      if (IsView(node)) {
        map_.Take(node);
        if (node.op != kViewOp) viewed_.insert(node.outputs[0]);
      }
      nodes.push_back(std::move(node));
    }
    g_.nodes = std::move(nodes);
  }

 private:
  std::optional<op::Dim> Bytes(ValueId id) const { return op::BytesOf(g_.values[id].type); }
  // At the largest sizes; 0 if the number is too large.
  int64_t MostBytes(ValueId id) const {
    const std::optional<op::Dim> bytes = Bytes(id);
    return bytes ? bytes->Evaluate(maxima_).value_or(0) : 0;
  }
  op::FusionClass ClassOf(const Node& node) const { return op::FindOp(node.op)->fusion; }

  // Whether the node ends a chain of elementwise operators behind an anchor, whose kernel computes
  // all of it.
  bool EndsAnchor(const Node& node) const {
    if (ClassOf(node) != op::FusionClass::kInjective) return true;
    if (!op::FindOp(node.op)->elementwise()) return false;
    for (ValueId id : node.inputs) {
      const int from = producer_[id];
      const bool joins = from >= 0 && readers_[id].size() == 1 && outputs_.count(id) == 0 &&
                         Bytes(id) && Bytes(id) == Bytes(node.outputs[0]);
      if (joins && EndsAnchor(g_.nodes[from])) return true;
    }
    return false;
  }

  // Whether a kernel writes the value to memory, whatever reads it.
  bool IsWritten(ValueId id) const {
    const int from = producer_[id];
    if (from < 0 || readers_[id].size() > 1 || viewed_.count(id) > 0) return true;
    const Node& node = g_.nodes[from];
    return node.op == kViewOp ? IsWritten(node.inputs[0]) : EndsAnchor(node);
  }

  bool SliceIsView(const Node& node) const {
    const std::optional<int64_t> at = map_.SliceOffset(node);
    return at && *at % alignment_ == 0 && IsWritten(node.inputs[0]);
  }

  // Whether the result is a view of its operands. Those that have storage of another value are
  // copied to their place; if that is more than half of the bytes, the concat stays a kernel.
  bool PartsGoInto(Node* node, std::vector<Node>* nodes) {
    if (!map_.HoldsParts(*node)) return false;
    std::set<ValueId> roots;
    std::vector<bool> copied;
    op::Dim at;
    int64_t saved = 0;
    for (ValueId id : node->inputs) {
      if (!at.DivideExactly(op::Dim(alignment_))) return false;
      copied.push_back(!map_.MayBePart(id) || !roots.insert(map_.Of(id).root).second);
      if (!copied.back() && IsWritten(id)) saved += MostBytes(id);
      at = at + *Bytes(id);
    }
    if (2 * saved < MostBytes(node->outputs[0])) return false;
    for (size_t i = 0; i < copied.size(); ++i) {
      if (!copied[i]) continue;
      const ValueId from = node->inputs[i];
      const ValueId part =
          AddValue(&g_, support::StrCat(g_.values[from].name, "_part"), g_.values[from].type);
      nodes->push_back(MakeNode(support::StrCat(node->name, "_part", i), "identity", {from}, part));
      node->inputs[i] = part;
    }
    return true;
  }

  Graph& g_;
  const int64_t alignment_;
  const std::vector<std::vector<int>> readers_;
  const std::vector<int> producer_;  // of the graph as it was: copies have no place in it
  const std::set<ValueId> outputs_;
  const op::Sizes maxima_;
  StorageMap map_;
  std::set<ValueId> viewed_;  // results of slices and concats that are views
};

}  // namespace

absl::StatusOr<Graph> ViewMoves(Graph g, const GraphPassContext& ctx) {
  if (ctx.view_alignment > 0) Viewer(&g, ctx.view_alignment).Run();
  return g;
}

}  // namespace tilewright::graph
