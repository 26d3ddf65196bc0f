// libFuzzer entry for ONNX import: whatever imports goes through every graph pass and the memory
// plan. A second time with the sizes of its inputs open.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/support/status.h"
#include "tests/support/open_model.h"
#include "tilewright_onnx.pb.h"

namespace {

namespace graph = tilewright::graph;

void TryImport(std::string_view bytes, const graph::ImportOptions& options) {
  auto g = graph::ImportOnnx(bytes, options);
  if (!g.ok()) return;
  graph::GraphPassContext context;
  context.fold_max_flops = 1e6;
  context.fold_max_bytes = 1 << 16;
  auto fused = graph::RunGraphPasses(*g, context);
  TW_CHECK(fused.ok()) << fused.status();
  const tilewright::op::Sizes maxima = graph::MaximaOf(*fused);
  // Of open sizes the largest may be too large for memory.
  TW_CHECK(graph::PlanMemory(*fused, {}, graph::kArenaAlignment, maxima).ok() || !maxima.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  graph::ImportOptions options;
  options.max_bytes = 1 << 20;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TryImport(bytes, options);
  tilewright_onnx::ModelProto model;
  if (!model.ParseFromArray(data, static_cast<int>(size))) return 0;
  tilewright::tests::OpenModel(&model, &options);
  if (!options.open.empty()) TryImport(model.SerializeAsString(), options);
  return 0;
}
