// libFuzzer entry for ONNX import: whatever imports goes through every graph pass and the memory
// plan.
#include <cstddef>
#include <cstdint>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace graph = tilewright::graph;
  graph::ImportOptions options;
  options.max_bytes = 1 << 20;
  auto g = graph::ImportOnnx({reinterpret_cast<const char*>(data), size}, options);
  if (!g.ok()) return 0;
  graph::GraphPassContext context;
  context.fold_max_flops = 1e6;
  context.fold_max_bytes = 1 << 16;
  auto fused = graph::RunGraphPasses(*g, context);
  TW_CHECK(fused.ok()) << fused.status();
  TW_CHECK(graph::PlanMemory(*fused).ok());
  return 0;
}
