#include "deploy/runtime/device_layout.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "deploy/module/loops_check.h"
#include "deploy/module/size_plan.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using module::Function;
using module::Manifest;
using module::SizePlan;
using module::Tensor;

struct Placed {
  int64_t id, begin, end;  // in the module's arena, at the largest sizes
  int64_t at, bytes;       // in the device's
};

const Tensor& TensorOf(const Manifest& manifest, int64_t id) {
  return manifest.tensors[static_cast<size_t>(id)];
}

// Whether places of the function follow from other tensors.
bool PlacesMove(const Manifest& manifest, const Function& function) {
  const auto moves = [&](int64_t id) { return !TensorOf(manifest, id).after.empty(); };
  for (const module::Launch& launch : function.launches) {
    if (std::ranges::any_of(launch.args, moves)) return true;
  }
  return std::ranges::any_of(module::LoopTensors(function), moves);
}

// The first place for `bytes` in front of, between or behind `taken`, which are sorted.
int64_t FirstGap(const std::vector<std::pair<int64_t, int64_t>>& taken, int64_t bytes,
                 int64_t alignment) {
  int64_t at = 0;
  for (const auto& [begin, end] : taken) {
    if (at + bytes <= begin) break;
    at = std::max(at, (end + alignment - 1) / alignment * alignment);
  }
  return at;
}

}  // namespace

absl::Status AddLayout(const Manifest& manifest, const Function& function,
                       const std::set<int64_t>& tensors, int64_t alignment, DeviceLayout* layout) {
  const bool moves = PlacesMove(manifest, function);
  SizePlan plan;
  if (moves) {
    TW_TRY(module::SizePlanner(manifest, function)
               .Plan(module::MaximaOf(manifest, function.at), &plan));
    if (plan.arena_bytes >= module::kMaxBytes) {
      return support::Unimplemented(
          "runtime.load.open_sizes",
          support::StrCat("expected tensors of less than ", module::kMaxBytes,
                          " bytes in all on a device, found sizes that may need more; compile the "
                          "model for smaller ranges"));
    }
  }
  std::vector<Placed> places;
  for (const int64_t id : tensors) {
    const Tensor& tensor = TensorOf(manifest, id);
    if (tensor.kind != module::TensorKind::kIntermediate) continue;
    const int64_t begin = moves ? plan.tensors[static_cast<size_t>(id)].offset : tensor.offset;
    const int64_t bytes = std::max<int64_t>(tensor.bytes, 1);
    places.push_back({id, begin, begin + bytes, begin, bytes});
  }
  std::ranges::sort(places, {}, [](const Placed& p) { return std::pair(p.begin, p.id); });
  for (size_t i = 0; moves && i < places.size(); ++i) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t j = 0; j < i; ++j) {
      const Placed& other = places[j];
      if (other.end <= places[i].begin) taken.emplace_back(other.at, other.at + other.bytes);
    }
    std::ranges::sort(taken);
    places[i].at = FirstGap(taken, places[i].bytes, alignment);
  }
  for (const Placed& place : places) {
    layout->offsets[place.id] = place.at;
    layout->arena_bytes = std::max(layout->arena_bytes, place.at + place.bytes);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
