// The ways of an If as loops of one trip or none: a run computes the one that it takes. Part of the
// import; one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

// A way that was imported to see what it makes, and the nodes that this made.
struct SampledWay {
  const pb::GraphProto& body;
  std::vector<ValueId> results = {};
  size_t first_node = 0, end_node = 0;
};
using SizeRanges = std::map<std::string, SizeRange>;

// Whether the way costs more than the copies of what goes in and out that a loop needs, and can be
// one: results are tensors of `sizes`, the variables that there are without it.
bool IsWorthALoop(Importer& importer, const SampledWay& way, const SizeRanges& sizes);
// The results where `condition`, bool[], holds; zeros where it does not. Notes errors as `c` does.
// REQUIRES: IsWorthALoop.
absl::StatusOr<std::vector<ValueId>> ComputeOnlyIf(Composer& c, ValueId condition,
                                                   const SampledWay& way);

}  // namespace tilewright::graph::onnx
