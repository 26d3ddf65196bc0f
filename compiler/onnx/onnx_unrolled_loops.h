// Loops whose trips are nodes of the graph each. Part of the import; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

inline constexpr int64_t kMaxTrips = 1024;

// Whether the trips are few enough to be nodes of the graph each.
bool Unrolls(NodeReader& n, const pb::GraphProto& body, int64_t trips);
// graph.onnx.too_large
absl::Status TooManyTrips(NodeReader& n);

// One trip: the subgraph's results, of which there have to be `results`.
absl::StatusOr<std::vector<ValueId>> Trip(NodeReader& n, const pb::GraphProto& body,
                                          const std::vector<ValueId>& inputs, size_t results);

// What the trips of a loop gave, one list per result.
class Gathered {
 public:
  explicit Gathered(size_t results) : parts_(results) {}
  void Add(size_t result, ValueId part) { parts_[result].push_back(part); }
  // All parts along a new dimension `axis`, the first trip's last if `backwards`.
  ValueId Join(Composer& c, size_t result, int64_t axis, bool backwards);

 private:
  std::vector<std::vector<ValueId>> parts_;
};

}  // namespace tilewright::graph::onnx
