// Which tensor of a module each value of a graph is, and where constants and intermediates lie.
// Inside of the driver. One owner; not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/module/module_writer.h"

namespace tilewright::driver {

// The constants of a module, for all of its functions: equal bytes are stored once, and equal bytes
// of one type are one tensor.
class ConstantSection {
 public:
  // `parts` must outlive it.
  ConstantSection(int64_t alignment, module::ModuleParts* parts)
      : alignment_(alignment), parts_(*parts) {}
  // Returns the id of the constant's tensor. The values of all calls must outlive the section; the
  // parts refer to their bytes, and keep them.
  absl::StatusOr<int64_t> TensorOf(const graph::Value& value);

 private:
  int64_t OffsetOf(const std::shared_ptr<const graph::ConstantData>& data);

  const int64_t alignment_;
  module::ModuleParts& parts_;
  std::map<const graph::ConstantData*, int64_t> seen_;  // graphs share constants
  struct Stored {
    std::string_view bytes;
    int64_t offset = 0;
  };
  std::map<size_t, std::vector<Stored>> by_size_;
  std::map<std::tuple<int64_t, module::DType, std::vector<int64_t>>, int64_t> tensors_;
};

// Lays out one graph, which becomes one function.
class ModelLayout {
 public:
  // All must outlive it.
  ModelLayout(const graph::Graph& g, const graph::MemoryPlan& plan, ConstantSection* constants,
              module::Manifest* manifest)
      : g_(g),
        plan_(plan),
        constants_(*constants),
        manifest_(*manifest),
        open_(graph::IsSymbolic(g)),
        storage_(graph::StorageOf(g)) {}

  // Adds the tensors, and to the function its inputs, outputs and checks.
  absl::Status Run(module::Function* function);
  int64_t TensorId(graph::ValueId id) const { return tensor_.at(PlaceOf(id)); }
  // Of a graph of open sizes: the intermediates that no other one begins after.
  std::vector<int64_t> LastIntermediates() const;

 private:
  // Values of one place are one tensor, whatever their shapes: the bytes of a root that they are,
  // as texts of numbers or expressions.
  struct Place {
    graph::ValueId root;
    std::string offset, bytes;
    auto operator<=>(const Place&) const = default;
  };
  Place PlaceOf(graph::ValueId id) const;
  bool Known(graph::ValueId id) const { return tensor_.contains(PlaceOf(id)); }
  absl::Status AddEnds(module::Function* function);
  absl::Status Add(graph::ValueId id, module::TensorKind kind, int64_t offset);
  absl::Status AddState(const graph::Node& append);
  absl::Status Operand(graph::ValueId id);
  absl::Status Intermediate(graph::ValueId id);
  absl::Status Constant(graph::ValueId id);
  void PlaceOpen();
  std::vector<int64_t> Below(graph::ValueId id) const;

  const graph::Graph& g_;
  const graph::MemoryPlan& plan_;
  ConstantSection& constants_;
  module::Manifest& manifest_;
  const bool open_;
  const std::vector<graph::Storage> storage_;
  std::set<graph::ValueId> joined_;  // roots whose parts several kernels write
  std::map<Place, int64_t> tensor_;
};

}  // namespace tilewright::driver
