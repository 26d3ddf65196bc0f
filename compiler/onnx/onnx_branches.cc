#include "compiler/onnx/onnx_branches.h"

#include <algorithm>
#include <map>
#include <string>

#include "compiler/onnx/onnx_loops.h"
#include "deploy/support/status.h"

namespace tilewright::graph::onnx {
namespace {

using Ids = std::vector<ValueId>;

constexpr double kLeastWork = 1e5;  // operations: some 10 us, far more than the control of a loop
constexpr double kWorkPerElement = 8;  // that is copied in or out

// The type with the largest sizes; nullopt where one has no bound.
std::optional<op::TensorType> Largest(const Importer& importer, op::TensorType type) {
  for (op::Dim& dim : type.shape) {
    const std::optional<int64_t> most = importer.Bound(dim, /*largest=*/true);
    if (!most) return std::nullopt;
    dim = *most;
  }
  return type;
}
double ElementsOf(const Importer& importer, ValueId id) {
  const auto type = Largest(importer, importer.TypeOf(id));
  return type ? static_cast<double>(type->elements()) : 0;
}

double WorkOf(const Importer& importer, const SampledWay& way) {
  double work = 0;
  for (size_t n = way.first_node; n < way.end_node; ++n) {
    const Node& node = importer.NodeAt(n);
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec == nullptr || spec->control) continue;
    std::vector<op::TensorType> types, results;
    const auto add = [&](const std::vector<ValueId>& ids, std::vector<op::TensorType>* all) {
      for (const ValueId id : ids) {
        if (auto type = Largest(importer, importer.TypeOf(id))) all->push_back(*std::move(type));
      }
      return all->size() == ids.size();
    };
    if (!add(node.inputs, &types) || !add(node.outputs, &results)) continue;
    work += op::Flops(*spec, types, results, node.attrs);
  }
  return work;
}

// The tensors outside that the way reads and only a run knows, by name.
std::map<std::string, ValueId> ReadAround(Importer& importer, const pb::GraphProto& body) {
  std::map<std::string, ValueId> around;
  for (const std::string& name : NamesReadAround(body)) {
    if (name.empty()) continue;
    const absl::StatusOr<ValueId> id = importer.Lookup(name);
    if (!id.ok() || importer.ContainerOf(*id) != nullptr || importer.IsDims(*id)) continue;
    if (importer.ValueOf(*id).constant == nullptr) around[name] = *id;
  }
  return around;
}

}  // namespace

bool IsWorthALoop(Importer& importer, const SampledWay& way, const SizeRanges& sizes) {
  double copied = 0;
  for (const ValueId id : way.results) {
    if (importer.ContainerOf(id) != nullptr || importer.PackedTypeOf(id) != nullptr ||
        importer.IsEmpty(id)) {
      return false;
    }
    for (const op::Dim& dim : importer.TypeOf(id).shape) {
      if (!std::ranges::all_of(dim.variables(),
                               [&](const std::string& name) { return sizes.contains(name); })) {
        return false;
      }
    }
    copied += ElementsOf(importer, id);
  }
  for (const auto& [name, id] : ReadAround(importer, way.body)) {
    copied += ElementsOf(importer, id);
  }
  return WorkOf(importer, way) >= kLeastWork + kWorkPerElement * copied;
}

absl::StatusOr<Ids> ComputeOnlyIf(Composer& c, ValueId condition, const SampledWay& way) {
  Importer& importer = c.node().importer();
  LoopBuilder loop(c);
  loop.Carry(condition);
  Ids next = {c.Scalar(0, ir::kBool)};
  std::map<std::string, ValueId> in_trip;
  std::map<ValueId, ValueId> carried;
  for (const auto& [name, id] : ReadAround(importer, way.body)) {
    ValueId& value = carried.try_emplace(id, kNone).first->second;
    if (value == kNone) next.push_back(value = loop.Carry(id));
    in_trip[name] = value;
  }
  const size_t first = loop.num_carried();
  for (const ValueId id : way.results) {
    loop.Carry(c.BroadcastTo(c.Scalar(0, c.TypeOf(id).dtype), c.Dims(id)));
  }
  TW_TRY(c.status());
  TW_ASSIGN(const Ids made, importer.ImportBody(way.body, {}, in_trip));
  next.insert(next.end(), made.begin(), made.end());
  loop.Close(next, {});
  Ids results;
  for (size_t i = 0; i < made.size(); ++i) results.push_back(loop.Result(first + i));
  TW_TRY(c.status());
  return results;
}

}  // namespace tilewright::graph::onnx
