// A model at some of its sizes. For each of them the compiler takes the whole graph, as if the
// model had been imported at these sizes: layouts, algorithms, schedules and packed weights are
// those of a module of fixed sizes. The graph becomes a function that replaces "main" there. Pure
// functions; thread-safe. Links no LLVM.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/module/manifest.h"

namespace tilewright::driver {

// Sizes of open dimensions by their names in the model (graph::ImportOptions::open), of some or of
// all. Dimensions that it does not name stay open.
using SizePoint = std::map<std::string, int64_t>;

// A module has "main" and so many others at most.
inline constexpr size_t kMaxSizePoints = 63;

// INVALID_ARGUMENT driver.specialise.fixed (no dimension is open), .name (a dimension that is not
// open), .size (out of its range), .empty (a point that names none), .twice, .too_many.
absl::Status CheckSizePoints(const std::map<std::string, graph::SizeRange>& open,
                             std::span<const SizePoint> points);

// Returns the fused graph of the model at each point. Constants of equal bytes are one, in these
// graphs and in `main`, the fused graph of all sizes. REQUIRES: CheckSizePoints is ok. Errors of
// the import and of passes, with the point.
absl::StatusOr<std::vector<graph::Graph>> SpecialiseModel(std::string_view onnx,
                                                          const graph::ImportOptions& options,
                                                          std::span<const SizePoint> points,
                                                          const graph::GraphPassContext& passes,
                                                          graph::Graph* main);

// Returns the values of main's variables at which `specialised` replaces it: what its inputs have
// in place of them. INVALID_ARGUMENT driver.specialise.ends if its inputs and outputs are not
// main's at these sizes.
absl::StatusOr<module::Sizes> SpecialisedAt(const graph::Graph& main,
                                            const graph::Graph& specialised);

// "batch=1,seq=128"
std::string PointText(const std::map<std::string, int64_t>& point);

}  // namespace tilewright::driver
