// Each kernel of a network against the reference: which one computes something else than the graph
// says, and which only has operands that are wrong already. Pure functions; thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"
#include "deploy/runtime/compare.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

// Of floats: |a - e| <= atol + rtol * max|e|, so that what cancels to almost nothing is measured by
// its tensor; where a kernel rounds to 16 bits, at least by one step of the largest. Integers may
// differ by 1, where a requantization rounds.
struct Precision {
  double rtol = 1e-3;
  double atol = 1e-5;
};

enum class LayerVerdict {
  kSame,
  kDiffers,   // it differs, and does so from the operands that it got
  kInherits,  // it differs since its operands do
};

struct LayerResult {
  std::string kernel;  // the node's name
  op::TensorType type;
  runtime::CompareResult compared;
  LayerVerdict verdict = LayerVerdict::kSame;
};

// The bytes of a value, by its id. Every kernel's result is there (graph::ShowValues).
using ActualValues = std::map<graph::ValueId, std::string_view>;

// A result per kernel, in the graph's order. `sizes`: of variables of the inputs. `progress` hears
// how many of all nodes are done.
absl::StatusOr<std::vector<LayerResult>> CompareLayers(
    const graph::Graph& graph, const op::Sizes& sizes, const std::vector<op::RefTensor>& inputs,
    const ActualValues& actual, const Precision& precision,
    const std::function<void(size_t done, size_t all)>& progress);

// One tensor of this type. Where a run found another size, all elements differ.
absl::StatusOr<runtime::CompareResult> CompareWithReference(const op::RefTensor& expected,
                                                            std::string_view actual,
                                                            const Precision& precision);

}  // namespace tilewright::cli
