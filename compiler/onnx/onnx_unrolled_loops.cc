#include "compiler/onnx/onnx_unrolled_loops.h"

#include <algorithm>
#include <utility>

#include "compiler/onnx/onnx_sequences.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;
using Ids = std::vector<ValueId>;

bool Unrolls(NodeReader& n, const pb::GraphProto& body, int64_t trips) {
  const int64_t most = n.importer().has_loops() ? 1 << 12 : 1 << 14;
  int64_t nodes = 0;
  ForEachNode(body, [&](const pb::NodeProto&) { ++nodes; });
  return trips <= kMaxTrips && trips * nodes <= most;
}

absl::Status TooManyTrips(NodeReader& n) {
  return n.Error("too_large",
                 StrCat("expected at most ", kMaxTrips, " trips, which are unrolled, found more"));
}

absl::StatusOr<Ids> Trip(NodeReader& n, const pb::GraphProto& body, const Ids& inputs,
                         size_t results) {
  TW_ASSIGN(Ids out, n.importer().ImportBody(body, inputs));
  if (out.size() == results) return out;
  return n.Error("outputs",
                 StrCat("expected a subgraph with ", results, " outputs, found ", out.size()));
}

ValueId Gathered::Join(Composer& c, size_t result, int64_t axis, bool backwards) {
  std::vector<ValueId> parts = parts_[result];
  if (backwards) std::reverse(parts.begin(), parts.end());
  const int64_t rank = c.Rank(parts[0]) + 1;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return c.Fail("axis", "expected axes of the results");
  for (ValueId& part : parts) {
    if (c.Rank(part) + 1 != rank) {
      return c.Fail("shape", "expected results of one rank from all trips, found others");
    }
    part = AsRow(c, part, axis);
  }
  return c.Concat(std::move(parts), axis);
}

}  // namespace tilewright::graph::onnx
