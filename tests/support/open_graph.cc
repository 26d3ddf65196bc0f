#include "tests/support/open_graph.h"

#include <algorithm>
#include <set>
#include <vector>

#include "compiler/graph/symbolic_shapes.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using op::Dim;

class Opener {
 public:
  Opener(const Graph& g, int64_t before, Dim open)
      : g_(g), before_(before), open_(std::move(open)) {}

  Graph Run() {
    for (ValueId id : g_.inputs) Open(id);
    std::vector<Node> kept;
    for (const Node& node : g_.nodes) {
      Node opened = node;
      if (TypesOf(&opened)) {
        kept.push_back(std::move(opened));
        continue;
      }
      for (ValueId id : node.outputs) {
        g_.inputs.push_back(id);
        Open(id);
      }
    }
    g_.nodes = std::move(kept);
    return std::move(g_);
  }

 private:
  void Open(ValueId id) {
    for (Dim& dim : g_.values[id].type.shape) {
      if (dim == Dim(before_)) dim = open_;
    }
  }

  // Sets the types of the node's results; false where its operator takes no such sizes.
  bool TypesOf(Node* node) {
    const op::OpSpec& spec = *op::FindOp(node->op);
    std::vector<op::Attrs> forms = {node->attrs};
    const std::string attr(spec.sizes_attr);
    if (node->attrs.contains(attr)) {
      std::vector<Dim> sizes = op::GetDims(node->attrs, attr);
      std::replace(sizes.begin(), sizes.end(), Dim(before_), open_);
      forms.insert(forms.begin(), node->attrs);
      forms[0][attr] = op::ShapeAttr(sizes);
    }
    for (const op::Attrs& attrs : forms) {
      node->attrs = attrs;
      op::DimEqualities equal;
      const auto types = graph::ResultTypes(g_, *node, &equal);
      // What only some sizes give would refuse the others.
      if (!types.ok() || !equal.empty()) continue;
      for (size_t i = 0; i < node->outputs.size(); ++i)
        g_.values[node->outputs[i]].type = (*types)[i];
      return true;
    }
    return false;
  }

  Graph g_;
  const int64_t before_;
  const Dim open_;
};

}  // namespace

OpenedGraph OpenGraph(const Graph& g, support::Rng* rng, bool may_be_nothing, int64_t most) {
  std::set<int64_t> sizes;
  for (ValueId id : g.inputs) {
    for (const Dim& dim : g.values[id].type.shape) {
      if (dim.value() > 1 && dim.value() <= most) sizes.insert(dim.value());
    }
  }
  if (sizes.empty()) return {};
  OpenedGraph opened;
  const int64_t before = rng->Choice(std::vector<int64_t>(sizes.begin(), sizes.end()));
  opened.size = may_be_nothing ? "R_plus_1" : "R";
  const Dim variable = Dim::Variable(opened.size);
  opened.before = may_be_nothing ? before + 1 : before;
  opened.graph = Opener(g, before, may_be_nothing ? variable - Dim(1) : variable).Run();
  opened.graph = graph::Compact(std::move(opened.graph));
  // Some windows are larger than the smallest image.
  const auto takes = [&](int64_t size) {
    return graph::Specialize(opened.graph, {{opened.size, size}}).ok();
  };
  graph::SizeRange range{1, may_be_nothing ? most + 1 : most, may_be_nothing ? "R" : ""};
  while (range.min < opened.before && !takes(range.min)) ++range.min;
  while (range.max > opened.before && !takes(range.max)) --range.max;
  opened.graph.size_ranges[opened.size] = range;
  const bool any = std::ranges::any_of(opened.graph.nodes, [&](const Node& node) {
    return !opened.graph.values[node.outputs[0]].type.fixed();
  });
  if (!any) opened.graph.nodes.clear();
  return opened;
}

}  // namespace tilewright::tests
