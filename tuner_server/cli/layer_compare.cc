#include "tuner_server/cli/layer_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "compiler/driver/tasks.h"
#include "compiler/graph/evaluation.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

using graph::ValueId;
using op::RefTensor;

// Twice what a value of 16 bits is rounded by: sums that lie between two of them go to either.
double RoundingOf(ir::DType type) {
  if (type.Element() == ir::kBF16) return 0x1p-7;
  return type.Element() == ir::kF16 ? 0x1p-10 : 0;
}

// The same of all values inside of a kernel.
double RoundingIn(const graph::Node& node) {
  double largest = 0;
  if (node.body == nullptr) return largest;
  for (const graph::Value& value : node.body->values) {
    largest = std::max(largest, RoundingOf(value.type.dtype));
  }
  return largest;
}

class Comparison {
 public:
  Comparison(const graph::Graph& graph, const op::Sizes& sizes, const ActualValues& actual,
             const Precision& precision)
      : graph_(graph),
        storage_(graph::StorageOf(graph)),
        actual_(actual),
        precision_(precision),
        checked_(graph.outputs.end() - static_cast<std::ptrdiff_t>(graph.checks.size()),
                 graph.outputs.end()),
        expected_(graph, sizes) {}

  absl::Status Begin(const std::vector<RefTensor>& inputs) { return expected_.Begin(inputs); }

  // Computes a node's results and compares them; views have nothing to compare, nor have loops
  // before they are done. Returns the next node.
  absl::StatusOr<size_t> Take(size_t n, std::vector<LayerResult>* layers) {
    TW_ASSIGN(const size_t behind, expected_.Step(n));
    const graph::Node& node = graph_.nodes[n];
    if (behind > n + 1 || graph::IsView(node)) return behind;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      const RefTensor& expected = expected_.ValueOf(id);
      // The module itself looks at what checks are about, and shows nobody.
      if (storage_[id].root != id || checked_.contains(id)) continue;
      TW_ASSIGN(const std::string_view bytes, ActualOf(id));
      LayerResult layer{node.name, expected.type, {}, LayerVerdict::kSame};
      TW_ASSIGN(layer.compared, CompareWithReference(expected, bytes, PrecisionOf(node)));
      if (!layer.compared.ok()) {
        TW_ASSIGN(layer.verdict, Blame(node, i, bytes));
      }
      layers->push_back(std::move(layer));
    }
    return behind;
  }

 private:
  Precision PrecisionOf(const graph::Node& node) const {
    return {std::max(precision_.rtol, RoundingIn(node)), precision_.atol};
  }

  absl::StatusOr<std::string_view> ActualOf(ValueId id) const {
    const auto found = actual_.find(storage_[id].root);
    if (found != actual_.end()) return found->second;
    return support::Internal("cli.compare.value",
                             "the module does not show " + graph_.values[id].name);
  }

  // Whether the kernel computes from its own operands what the reference does.
  absl::StatusOr<LayerVerdict> Blame(const graph::Node& node, size_t result,
                                     std::string_view bytes) const {
    std::vector<RefTensor> args;
    for (ValueId id : node.inputs) {
      if (!actual_.contains(storage_[id].root)) {
        args.push_back(expected_.ValueOf(id));
        continue;
      }
      TW_ASSIGN(const std::string_view operand, ActualOf(id));
      const op::TensorType& type = expected_.ValueOf(id).type;
      if (operand.size() != static_cast<size_t>(type.bytes())) return LayerVerdict::kInherits;
      TW_ASSIGN(RefTensor tensor, op::FromBytes(type, operand));
      args.push_back(std::move(tensor));
    }
    TW_ASSIGN(const std::vector<RefTensor> results, expected_.ResultsFrom(node, args));
    TW_ASSIGN(const runtime::CompareResult own,
              CompareWithReference(results[result], bytes, PrecisionOf(node)));
    return own.ok() ? LayerVerdict::kInherits : LayerVerdict::kDiffers;
  }

  const graph::Graph& graph_;
  const std::vector<graph::Storage> storage_;  // views are reshapes alone (ShowValues)
  const ActualValues& actual_;
  const Precision& precision_;
  const std::set<ValueId> checked_;
  graph::Evaluation expected_;
};

}  // namespace

absl::StatusOr<runtime::CompareResult> CompareWithReference(const RefTensor& expected,
                                                            std::string_view actual,
                                                            const Precision& precision) {
  TW_ASSIGN(const module::DType dtype, driver::ModuleDType(expected.type.dtype));
  const std::string bytes = op::ToBytes(expected);
  if (bytes.size() != actual.size()) {  // the run found another size
    constexpr double kFar = std::numeric_limits<double>::infinity();
    const int64_t count = std::max<int64_t>(expected.type.elements(), 1);
    return runtime::CompareResult{
        .count = count, .mismatches = count, .max_abs_diff = kFar, .relative_norm = kFar};
  }
  double largest = 0;
  for (const double value : expected.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  const ir::DType type = expected.type.dtype;
  const double rtol = std::max(precision.rtol, RoundingOf(type));
  const double limit = type.is_float() ? precision.atol + rtol * largest : type.is_bool() ? 0 : 1;
  return runtime::CompareTensors(dtype, actual.data(), bytes.data(), expected.type.elements(),
                                 {limit, 0});
}

absl::StatusOr<std::vector<LayerResult>> CompareLayers(
    const graph::Graph& graph, const op::Sizes& sizes, const std::vector<RefTensor>& inputs,
    const ActualValues& actual, const Precision& precision,
    const std::function<void(size_t done, size_t all)>& progress) {
  Comparison comparison(graph, sizes, actual, precision);
  TW_TRY(comparison.Begin(inputs));
  std::vector<LayerResult> layers;
  for (size_t n = 0; n < graph.nodes.size();) {
    TW_ASSIGN(n, comparison.Take(n, &layers));
    progress(n, graph.nodes.size());
  }
  return layers;
}

}  // namespace tilewright::cli
