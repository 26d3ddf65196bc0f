// Sizes that only a run knows, as values of the graph: what conversions compare with the shape that
// a model states. Part of the import.
#pragma once

#include <vector>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

// i64[rank]: 1 for each dimension that the node's input `i` names as an axis, else 0.
ValueId NamedDimensions(Composer& c, int i, int64_t rank);
// Refuses runs in which `shape` without the dimensions that `removed` marks is not `stated`.
void ExpectKept(Composer& c, ValueId removed, const std::vector<int64_t>& shape,
                const std::vector<int64_t>& stated);
// How many of start, start + step, ... come before `end`: numbers of one type; i64.
ValueId StepsBetween(Composer& c, ValueId start, ValueId end, ValueId step);

}  // namespace tilewright::graph::onnx
