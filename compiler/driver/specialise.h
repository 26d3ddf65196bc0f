// A model at some of its sizes. For each of them the compiler takes the whole graph, as if the
// model had been imported at these sizes: layouts, algorithms, schedules and packed weights are
// those of a module of fixed sizes. The graph becomes a function that replaces "main" there. Pure
// functions; thread-safe. Links no LLVM.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_model.h"
#include "deploy/module/manifest.h"
#include "deploy/module/size_points.h"

namespace tilewright::driver {

using module::SizePoint;

// Runs the graph passes on an imported graph.
using PassRunner = std::function<absl::StatusOr<graph::Graph>(graph::Graph)>;
// Returns the fused graph of the model at each point. Constants of equal bytes are one, in these
// graphs and in `main`, the fused graph of all sizes. REQUIRES: module::CheckSizePoints is ok.
// Errors of the import and of passes, with the point.
absl::StatusOr<std::vector<graph::Graph>> SpecialiseModel(const graph::OnnxModel& onnx,
                                                          const graph::ImportOptions& options,
                                                          std::span<const SizePoint> points,
                                                          const PassRunner& passes,
                                                          graph::Graph* main);

// Returns the sizes at which what is open is judged where nobody names one: a power of two near a
// quarter of each range's largest size, within the range.
module::Sizes TypicalSizes(const graph::Graph& graph);

// Returns the values of main's variables at which `specialised` replaces it: what its inputs have
// in place of them. INVALID_ARGUMENT driver.specialise.ends if its inputs and outputs are not
// main's at these sizes.
absl::StatusOr<module::Sizes> SpecialisedAt(const graph::Graph& main,
                                            const graph::Graph& specialised);

}  // namespace tilewright::driver
