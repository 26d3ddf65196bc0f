// What the tests of shapes that depend on data share: models, tensors, a graph's constants.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/support/hash.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph::import_tests {

// 0, 1, 2, ...
inline RefTensor Ramp(Shape shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  Numbers values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i));
  return TensorOf(std::move(shape), std::move(values));
}

// By digest, as ParseGraph takes them.
inline std::map<std::string, std::shared_ptr<const ConstantData>> ConstantsOf(const Graph& g) {
  std::map<std::string, std::shared_ptr<const ConstantData>> found;
  for (const Value& value : g.values) {
    if (value.constant == nullptr) continue;
    found[support::Sha256Hex(value.constant->view())] = value.constant;
  }
  return found;
}

// "total" and "rows": the running sum of "x" while it is below 10, at most "trips" times, and an
// entry for each trip.
inline void AddRunningSum(OnnxBuilder* b) {
  b->Small("go", kBool, {}, {1}).Scalar("start", 0).Scalar("limit", 10);
  b->Node("Loop", {"trips", "go", "start"}, "total")->add_output("rows");
  AddBody(&*b->graph().mutable_node()->rbegin(), "body", {"i", "going", "before"},
          {"more", "after", "after"}, [](OnnxBuilder& g) {
            g.Node("Add", {"before", "x"}, "after");
            g.Node("Less", {"after", "limit"}, "more");
          });
}

}  // namespace tilewright::graph::import_tests
