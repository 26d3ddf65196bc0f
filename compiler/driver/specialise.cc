#include "compiler/driver/specialise.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using support::StrCat;

std::string NamesText(const std::map<std::string, graph::SizeRange>& open) {
  std::vector<std::string> names;
  for (const auto& [name, range] : open)
    names.push_back(StrCat(support::Quote(name, 64), " (", range.min, " to ", range.max, ")"));
  return support::Join(names, ", ");
}

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

absl::StatusOr<Graph> ImportAt(std::string_view onnx, graph::ImportOptions options,
                               const SizePoint& point, const graph::GraphPassContext& passes) {
  for (const auto& [name, size] : point) {
    options.open.erase(name);
    options.shapes[name] = {size};
  }
  TW_ASSIGN(Graph imported, graph::ImportOnnx(onnx, options));
  return graph::RunGraphPasses(std::move(imported), passes);
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

std::string PointText(const std::map<std::string, int64_t>& point) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : point) parts.push_back(StrCat(name, "=", size));
  return support::Join(parts, ",");
}

absl::Status CheckSizePoints(const std::map<std::string, graph::SizeRange>& open,
                             std::span<const SizePoint> points) {
  if (points.empty()) return absl::OkStatus();
  if (open.empty()) {
    return support::InvalidArgument(
        "driver.specialise.fixed",
        StrCat("expected dimensions that stay open, found none: all sizes are "
               "fixed, so there is nothing to specialise at ",
               PointText(points[0])));
  }
  if (points.size() > kMaxSizePoints) {
    return support::InvalidArgument(
        "driver.specialise.too_many",
        StrCat("expected at most ", kMaxSizePoints, " points, found ", points.size()));
  }
  std::set<SizePoint> seen;
  for (const SizePoint& point : points) {
    if (point.empty())
      return support::InvalidArgument("driver.specialise.empty",
                                      "expected a size in each point, found none");
    for (const auto& [name, size] : point) {
      const auto range = open.find(name);
      if (range == open.end()) {
        return support::InvalidArgument(
            "driver.specialise.name",
            StrCat("expected one of the open dimensions ", NamesText(open), ", found ",
                   support::Quote(name, 64)));
      }
      if (size >= range->second.min && size <= range->second.max) continue;
      return support::InvalidArgument("driver.specialise.size",
                                      StrCat("expected ", name, " from ", range->second.min, " to ",
                                             range->second.max, ", found ", size));
    }
    if (!seen.insert(point).second) {
      return support::InvalidArgument(
          "driver.specialise.twice",
          StrCat("expected each point once, found ", PointText(point), " twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Graph>> SpecialiseModel(std::string_view onnx,
                                                   const graph::ImportOptions& options,
                                                   std::span<const SizePoint> points,
                                                   const graph::GraphPassContext& passes,
                                                   Graph* main) {
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
                                    "expected fixed sizes in place of variables, found none");
  const std::map<std::string, op::Dim> values(at.begin(), at.end());
  absl::Status ends = CheckEnds(main, main.inputs, specialised, specialised.inputs, values);
  if (ends.ok()) ends = CheckEnds(main, main.outputs, specialised, specialised.outputs, values);
  if (!ends.ok()) return support::WithContext(ends, StrCat("at ", PointText(at)));
  return at;
}

}  // namespace tilewright::driver
