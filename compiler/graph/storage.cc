// Which values share storage: the views of a graph.
#include <algorithm>
#include <set>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/keep_state.h"
#include "compiler/graph/loops.h"
#include "compiler/graph/storage_map.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

// Where a run of elements begins in the operand of a slice, in bytes; nullopt if it is no run.
std::optional<int64_t> RunOf(const Graph& g, const Node& slice) {
  const op::TensorType& type = g.values[slice.inputs[0]].type;
  const std::vector<int64_t> sizes = g.values[slice.outputs[0]].type.sizes(), from = type.sizes();
  const auto starts = op::GetInts(slice.attrs, "starts", {});
  const auto steps = op::GetInts(slice.attrs, "steps", {});
  int64_t at = 0;
  bool single = true;  // the dimensions so far have one position in the result
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool whole = sizes[d] == from[d];
    if ((sizes[d] > 1 && steps[d] != 1) || (!single && !whole)) return std::nullopt;
    single = single && sizes[d] == 1;
    at = at * from[d] + starts[d];
  }
  return at * type.dtype.bytes();
}

bool IsAlias(const Node& node) {
  const op::OpSpec* spec = op::FindOp(node.op);
  return spec != nullptr && spec->alias;
}

}  // namespace

bool IsView(const Node& node) {
  if (IsAlias(node) || IsAppend(node) || IsLoopNode(node)) return true;
  return (node.op == "slice" || node.op == "concat") && node.attrs.contains(std::string(kViewAttr));
}

bool IsJoin(const Node& node) { return node.op == "concat" && IsView(node); }

StorageMap::StorageMap(const Graph& g) : g_(g), open_(IsSymbolic(g)), bound_(InputVariables(g)) {
  std::vector<ValueId> ends = g.inputs;
  for (size_t id = 0; id < g.values.size(); ++id) {
    if (g.values[id].constant != nullptr) ends.push_back(static_cast<ValueId>(id));
  }
  std::vector<ValueId> reshaped(g.values.size());  // the root when aliases alone are views
  for (size_t id = 0; id < reshaped.size(); ++id) reshaped[id] = static_cast<ValueId>(id);
  for (const Node& node : g.nodes) {
    if (IsAlias(node)) reshaped[node.outputs[0]] = reshaped[node.inputs[0]];
  }
  for (ValueId id : g.outputs) ends.push_back(reshaped[id]);
  for (ValueId id : StateValues(g)) ends.push_back(reshaped[id]);
  for (const Node& node : g.nodes) {  // what a loop writes
    if (IsLoopNode(node) && node.op != kLoopResultOp) ends.push_back(node.outputs[0]);
  }
  for (ValueId id : ends) Put(id, {id, 0, true});
}

StorageMap::Place StorageMap::At(ValueId id) const {
  return id < static_cast<ValueId>(places_.size()) ? places_[id] : Place{id, 0, false};
}

void StorageMap::Put(ValueId id, Place place) {
  while (static_cast<ValueId>(places_.size()) <= id) {
    places_.push_back({static_cast<ValueId>(places_.size()), 0, false});
  }
  places_[id] = place;
}

Storage StorageMap::Of(ValueId id) const {
  Storage found{id, 0};
  while (At(found.root).root != found.root) {
    found.offset = found.offset + At(found.root).offset;
    found.root = At(found.root).root;
  }
  return found;
}

void StorageMap::Take(const Node& node) {
  if (IsAppend(node)) return;  // the list and the entries have storage outside
  const ValueId out = node.outputs[0];
  if (IsLoopNode(node)) {
    if (node.op == kLoopResultOp) Put(out, {node.inputs[1], 0, false});
    return;
  }
  if (!IsJoin(node)) {
    Put(out, {node.inputs[0], node.op == "slice" ? *RunOf(g_, node) : 0, false});
    return;
  }
  op::Dim offset;
  for (ValueId id : node.inputs) {
    Put(Of(id).root, {out, offset, false});
    offset = offset + *op::BytesOf(g_.values[id].type);
  }
}

std::optional<int64_t> StorageMap::SliceOffset(const Node& slice) const {
  if (open_ || Outside(slice.inputs[0]) || Outside(slice.outputs[0])) return std::nullopt;
  return RunOf(g_, slice);
}

bool StorageMap::HoldsParts(const Node& concat) const {
  const op::TensorType& type = g_.values[concat.outputs[0]].type;
  int64_t axis = op::GetInt(concat.attrs, "axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(type.shape.size());
  const auto is_bound = [&](const op::Dim& dim) {
    return std::ranges::all_of(dim.variables(),
                               [&](const std::string& name) { return bound_.contains(name); });
  };
  return !Outside(concat.outputs[0]) && op::BytesOf(type) &&
         std::ranges::all_of(type.shape, is_bound) &&
         std::all_of(type.shape.begin(), type.shape.begin() + axis,
                     [](const op::Dim& size) { return size == op::Dim(1); });
}

bool StorageMap::MayBePart(ValueId id) const {
  const Storage place = Of(id);
  const std::optional<op::Dim> bytes = op::BytesOf(g_.values[id].type);
  return !At(place.root).outside && place.offset == op::Dim(0) && bytes &&
         bytes == op::BytesOf(g_.values[place.root].type);
}

std::vector<Storage> StorageOf(const Graph& graph) {
  StorageMap map(graph);
  for (const Node& node : graph.nodes) {
    if (IsView(node)) map.Take(node);
  }
  std::vector<Storage> storage;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    storage.push_back(map.Of(static_cast<ValueId>(id)));
  }
  return storage;
}

absl::Status CheckViews(const Graph& g) {
  StorageMap map(g);
  for (const Node& node : g.nodes) {
    if (!IsView(node)) continue;
    bool fits = true;
    if (node.op == "slice") fits = map.SliceOffset(node).has_value();
    if (IsJoin(node)) {
      std::set<ValueId> roots;
      fits = map.HoldsParts(node);
      for (ValueId id : node.inputs) {
        fits = fits && map.MayBePart(id) && roots.insert(map.Of(id).root).second;
      }
    }
    if (!fits) {
      return support::InvalidArgument(
          "graph.verify.view",
          support::StrCat("expected a ", node.op, " of storage in the arena as a view, found ",
                          support::Quote(node.name)));
    }
    map.Take(node);
  }
  return absl::OkStatus();
}

Graph ShowValues(Graph graph) {
  bool moves = false;
  for (Node& node : graph.nodes) {
    if (IsView(node) && node.attrs.erase(std::string(kViewAttr)) > 0) moves = true;
  }
  if (moves) graph = *WrapOperators(std::move(graph), {});
  const std::vector<Storage> storage = StorageOf(graph);
  std::set<ValueId> shown;
  for (ValueId id : graph.outputs) shown.insert(storage[id].root);
  std::vector<ValueId> added;
  const std::vector<Loop> loops = LoopsOf(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    // A loop may have made nothing.
    if (IsView(node) || std::ranges::any_of(loops, [&](const Loop& l) { return l.Holds(n); }))
      continue;
    for (ValueId id : node.outputs) {
      if (shown.insert(id).second) added.push_back(id);
    }
  }
  // The last outputs belong to the checks.
  const auto at = graph.outputs.end() - static_cast<std::ptrdiff_t>(graph.checks.size());
  graph.outputs.insert(at, added.begin(), added.end());
  return graph;
}

}  // namespace tilewright::graph
