// Which optional graph passes pay for a model on a target. A pass changes what the tasks of a model
// are (block_layouts: the layouts of images, and transforms between them), so it pays where the
// tasks together are predicted to take less time. Pure functions of their arguments: a module, a
// job and a benchmark see the same tasks. Thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/target/target.h"

namespace tilewright::search {

// Runs the passes on an imported graph. Of optional passes that `context` neither enables nor
// disables, those run that pay. Open sizes are judged at typical ones. Errors of passes, and those
// of scheduling a task.
absl::StatusOr<graph::Graph> RunPassesThatPay(graph::Graph imported, const target::Target& target,
                                              graph::GraphPassContext context);

}  // namespace tilewright::search
