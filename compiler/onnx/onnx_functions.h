// Functions that a model brings with it (FunctionProto), as exporters write them for operators of
// their own. Inside of compiler/graph.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "compiler/onnx/onnx_importer.h"

namespace tilewright::graph::onnx {

// Puts the nodes of its function's body in the place of each node that calls one, in subgraphs and
// bodies too; the functions are gone then. A node that `is_known` says the import converts itself
// stays. REQUIRES: a graph. Values of a body are named after the call's first output, nodes after
// the call.
// graph.onnx.function: recursion, a body for another opset, or more nodes than kMaxInlinedNodes.
absl::Status InlineFunctions(const std::function<bool(const pb::NodeProto&)>& is_known,
                             pb::ModelProto* model);

inline constexpr int64_t kMaxInlinedNodes = 200'000;
inline constexpr int64_t kMaxInlinedBytes = int64_t{1} << 28;

}  // namespace tilewright::graph::onnx
