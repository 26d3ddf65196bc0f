// libFuzzer entry for the graph text: whatever parses prints, parses again to the same text, and
// goes through type inference.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace graph = tilewright::graph;
  auto g = graph::ParseGraph({reinterpret_cast<const char*>(data), size});
  if (!g.ok()) return 0;
  std::string text = graph::Print(*g);
  auto again = graph::ParseGraph(text);
  // Constants of some size stand as digests, whose bytes a text does not have.
  if (again.ok()) TW_CHECK(graph::Print(*again) == text) << text;
  (void)graph::InferTypes(*g, {});
  return 0;
}
