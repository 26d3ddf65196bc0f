#include "compiler/driver/specialise.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "compiler/onnx/onnx_import.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using module::PointText;
using support::StrCat;

// Equal bytes become one object.
class ConstantPool {
 public:
  void Share(Graph* g) {
    for (graph::Value& value : g->values) {
      if (value.constant == nullptr) continue;
      const std::string digest = support::Sha256Hex(value.constant->view());
      value.constant = pool_.try_emplace(digest, value.constant).first->second;
    }
  }

 private:
  std::map<std::string, std::shared_ptr<const graph::ConstantData>> pool_;
};

absl::StatusOr<Graph> ImportAt(const graph::OnnxModel& onnx, graph::ImportOptions options,
                               const SizePoint& point, const PassRunner& passes) {
  for (const auto& [name, size] : point) {
    options.open.erase(name);
    options.shapes[name] = {size};
  }
  TW_ASSIGN(Graph imported, graph::ImportOnnx(onnx, options));
  return passes(std::move(imported));
}

absl::Status CheckEnds(const Graph& main, const std::vector<graph::ValueId>& of_main,
                       const Graph& other, const std::vector<graph::ValueId>& of_other,
                       const std::map<std::string, op::Dim>& at) {
  if (of_main.size() != of_other.size()) {
    return support::InvalidArgument(
        "driver.specialise.ends",
        StrCat("expected ", of_main.size(), " inputs or outputs, found ", of_other.size()));
  }
  for (size_t i = 0; i < of_main.size(); ++i) {
    const graph::Value& expected = main.values[of_main[i]];
    const graph::Value& found = other.values[of_other[i]];
    op::TensorType type = expected.type;
    for (op::Dim& dim : type.shape) dim = dim.Substitute(at);
    if (expected.name == found.name && type == found.type) continue;
    return support::InvalidArgument(
        "driver.specialise.ends",
        StrCat("expected ", support::Quote(expected.name), " ", op::ToText(type), ", found ",
               support::Quote(found.name), " ", op::ToText(found.type)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Graph>> SpecialiseModel(const graph::OnnxModel& onnx,
                                                   const graph::ImportOptions& options,
                                                   std::span<const SizePoint> points,
                                                   const PassRunner& passes, Graph* main) {
  std::vector<Graph> graphs;
  if (points.empty()) return graphs;
  ConstantPool pool;
  pool.Share(main);
  for (const SizePoint& point : points) {
    absl::StatusOr<Graph> fused = ImportAt(onnx, options, point, passes);
    if (!fused.ok()) return support::WithContext(fused.status(), StrCat("at ", PointText(point)));
    pool.Share(&*fused);
    graphs.push_back(*std::move(fused));
  }
  return graphs;
}

module::Sizes TypicalSizes(const Graph& graph) {
  module::Sizes typical;
  for (const auto& [name, range] : graph.size_ranges) {
    const auto quarter = static_cast<uint64_t>(std::max<int64_t>(1, range.max / 4));
    const auto size = static_cast<int64_t>(std::bit_floor(quarter));
    typical[name] = std::clamp(size, range.min, range.max);
  }
  return typical;
}

absl::StatusOr<module::Sizes> SpecialisedAt(const Graph& main, const Graph& specialised) {
  module::Sizes at;
  for (size_t i = 0; i < std::min(main.inputs.size(), specialised.inputs.size()); ++i) {
    const auto& open = main.values[main.inputs[i]].type.shape;
    const auto& own = specialised.values[specialised.inputs[i]].type.shape;
    for (size_t d = 0; d < std::min(open.size(), own.size()); ++d) {
      const std::string name = open[d].variable();
      if (!name.empty() && own[d].is_constant()) at.emplace(name, own[d].value());
    }
  }
  if (at.empty())
    return support::InvalidArgument("driver.specialise.ends",
                                    "expected points that fix sizes of inputs, found none such");
  const std::map<std::string, op::Dim> values(at.begin(), at.end());
  absl::Status ends = CheckEnds(main, main.inputs, specialised, specialised.inputs, values);
  if (ends.ok()) ends = CheckEnds(main, main.outputs, specialised, specialised.outputs, values);
  if (!ends.ok()) return support::WithContext(ends, StrCat("at ", PointText(at)));
  return at;
}

}  // namespace tilewright::driver
