#include "tuner_server/cli/layer_compare.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "compiler/driver/tasks.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

using graph::ValueId;
using op::RefTensor;

class Comparison {
 public:
  Comparison(const graph::Graph& graph, const ActualValues& actual, const Precision& precision)
      : graph_(graph),
        storage_(graph::StorageOf(graph)),
        actual_(actual),
        precision_(precision),
        checked_(graph.outputs.end() - static_cast<std::ptrdiff_t>(graph.checks.size()),
                 graph.outputs.end()),
        expected_(graph.values.size()) {}

  absl::Status Begin(const std::vector<RefTensor>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) expected_[graph_.inputs[i]] = inputs[i];
    for (size_t id = 0; id < expected_.size(); ++id) {
      const graph::Value& value = graph_.values[id];
      if (value.constant == nullptr) continue;
      TW_ASSIGN(expected_[id], op::FromBytes(value.type, value.constant->view()));
    }
    return absl::OkStatus();
  }

  // Computes a node's results and compares them; views have nothing to compare.
  absl::Status Take(const graph::Node& node, std::vector<LayerResult>* layers) {
    std::vector<RefTensor> args;
    for (ValueId id : node.inputs) args.push_back(expected_[id]);
    TW_ASSIGN(std::vector<RefTensor> results, graph::InterpretNode(node, args));
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId id = node.outputs[i];
      expected_[id] = std::move(results[i]);
      // The module itself looks at what checks are about, and shows nobody.
      if (storage_[id].root != id || checked_.contains(id)) continue;
      TW_ASSIGN(const std::string_view bytes, ActualOf(id));
      LayerResult layer{node.name, graph_.values[id].type, {}, LayerVerdict::kSame};
      TW_ASSIGN(layer.compared, CompareWithReference(expected_[id], bytes, precision_));
      if (!layer.compared.ok()) {
        TW_ASSIGN(layer.verdict, Blame(node, i, bytes));
      }
      layers->push_back(std::move(layer));
    }
    return absl::OkStatus();
  }

 private:
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
        args.push_back(expected_[id]);
        continue;
      }
      TW_ASSIGN(const std::string_view operand, ActualOf(id));
      TW_ASSIGN(RefTensor tensor, op::FromBytes(graph_.values[id].type, operand));
      args.push_back(std::move(tensor));
    }
    TW_ASSIGN(const std::vector<RefTensor> results, graph::InterpretNode(node, args));
    TW_ASSIGN(const runtime::CompareResult own,
              CompareWithReference(results[result], bytes, precision_));
    return own.ok() ? LayerVerdict::kInherits : LayerVerdict::kDiffers;
  }

  const graph::Graph& graph_;
  const std::vector<graph::Storage> storage_;  // views are reshapes alone (ShowValues)
  const ActualValues& actual_;
  const Precision& precision_;
  const std::set<ValueId> checked_;
  std::vector<RefTensor> expected_;
};

}  // namespace

absl::StatusOr<runtime::CompareResult> CompareWithReference(const RefTensor& expected,
                                                            std::string_view actual,
                                                            const Precision& precision) {
  TW_ASSIGN(const module::DType dtype, driver::ModuleDType(expected.type.dtype));
  const std::string bytes = op::ToBytes(expected);
  if (bytes.size() != actual.size()) {
    return support::Internal("cli.compare.value",
                             support::StrCat("expected ", bytes.size(), " bytes of ",
                                             op::ToText(expected.type), ", found ", actual.size()));
  }
  double largest = 0;
  for (const double value : expected.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  const bool floats = expected.type.dtype.is_float();
  const double limit = floats                          ? precision.atol + precision.rtol * largest
                       : expected.type.dtype.is_bool() ? 0
                                                       : 1;
  return runtime::CompareTensors(dtype, actual.data(), bytes.data(), expected.type.elements(),
                                 {limit, 0});
}

absl::StatusOr<std::vector<LayerResult>> CompareLayers(
    const graph::Graph& graph, const std::vector<RefTensor>& inputs, const ActualValues& actual,
    const Precision& precision, const std::function<void(size_t done, size_t all)>& progress) {
  if (inputs.size() != graph.inputs.size()) {
    return support::InvalidArgument(
        "graph.interp.inputs",
        support::StrCat("expected ", graph.inputs.size(), " inputs, found ", inputs.size()));
  }
  Comparison comparison(graph, actual, precision);
  TW_TRY(comparison.Begin(inputs));
  std::vector<LayerResult> layers;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    TW_TRY(comparison.Take(graph.nodes[n], &layers));
    progress(n + 1, graph.nodes.size());
  }
  return layers;
}

}  // namespace tilewright::cli
