// Loads that are the same for all virtual threads happen once. A pure function; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/transform/passes.h"

namespace tilewright::vta {

// kLoops → kLoops, before inject_virtual_threads: a buffer that every virtual thread would fill
// with the same is one buffer for all of them, of as many versions as there are threads. It takes
// the space that their own buffers would take, but DRAM brings the data once. The iterations of the
// loops around take turns with the versions: one is loaded while threads still read another.
absl::StatusOr<ir::Function> ShareLoads(const ir::Function& f, const transform::PassContext& ctx);

}  // namespace tilewright::vta
