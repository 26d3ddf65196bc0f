#include "compiler/driver/placement.h"

#include <algorithm>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/loops.h"
#include "compiler/op/op.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/kind_table.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using support::StrCat;

// Operands and results of a kernel that only counts or compares: the processor has done it before a
// device has begun, and needs the result to go on.
constexpr int64_t kMostControlElements = 16;

bool IsSerial(const graph::Node& node) {
  return std::ranges::any_of(node.body->nodes, [](const graph::Node& part) {
    const op::OpSpec* spec = op::FindOp(part.op);
    return spec != nullptr && spec->serial;
  });
}

int64_t ElementsOf(const graph::Graph& g, const graph::Node& node) {
  int64_t elements = 0;
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const graph::ValueId id : *ids) elements += g.values[id].type.elements();
  }
  return elements;
}

void PlaceOpen(const graph::Graph& main, const graph::Node& node, const std::string& kind,
               Placement* placement) {
  const std::set<std::string> of_inputs = graph::InputVariables(main);
  std::vector<std::string> names;
  for (const std::string& name : graph::SizeVariables(*node.body)) {
    const auto range = main.size_ranges.find(name);
    const bool counted = range != main.size_ranges.end() && !range->second.size.empty();
    names.push_back(counted ? range->second.size : name);
    if (of_inputs.contains(name)) placement->open_sizes.insert(name);
  }
  // Sizes that a run finds stay what they are.
  if (placement->open_sizes.size() < names.size()) placement->open_sizes.clear();
  placement->host_reason = StrCat("a run decides about ", support::Join(names, ", "),
                                  "; kernels for ", kind, " have fixed sizes");
}

}  // namespace

std::vector<Placement> PlaceTasks(std::span<const graph::Graph* const> graphs,
                                  const ModelTasks& model, const target::Target& target) {
  std::vector<Placement> placements(model.tasks.size());
  if (!targets::BackendOf(target).on_device) return placements;
  for (size_t f = 0; f < graphs.size(); ++f) {
    const graph::Graph& g = *graphs[f];
    const std::vector<graph::Loop> loops = graph::LoopsOf(g);
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      if (model.of_node[f][n] < 0) continue;
      const auto position = static_cast<size_t>(model.of_node[f][n]);
      const Task& task = model.tasks[position];
      Placement& placement = placements[position];
      if (!placement.host_reason.empty() || !task.library.empty()) continue;
      const auto holds = [&](const graph::Loop& loop) { return loop.Holds(n); };
      if (task.open_sizes) {
        PlaceOpen(*graphs[0], g.nodes[n], target.kind, &placement);
      } else if (IsSerial(g.nodes[n])) {
        placement.host_reason = "its steps follow each other";
      } else if (std::ranges::any_of(loops, holds) &&
                 ElementsOf(g, g.nodes[n]) <= kMostControlElements) {
        placement.host_reason = "it is small, and counts or compares in a loop";
      }
    }
  }
  return placements;
}

absl::StatusOr<target::Target> HostOf(const target::Target&) {
  return target::ParseTarget(StrCat(target::kProcessors, ",arch=", runtime::DetectCpu().arch));
}

}  // namespace tilewright::driver
