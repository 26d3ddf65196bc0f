#include "deploy/runtime/launch_graphs.h"

#include <cstddef>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/env.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

constexpr size_t kLeastLaunches = 2;  // a graph of one launch costs what the launch costs

bool HasGraphs(const TwDevicePlugin& plugin) {
  constexpr size_t kEnd = offsetof(TwDevicePlugin, graph_launch) + sizeof(void*);
  return plugin.struct_bytes >= kEnd && plugin.graph_create != nullptr &&
         plugin.graph_destroy != nullptr && plugin.graph_launch != nullptr;
}

}  // namespace

bool LaunchGraphsWanted() { return support::GetEnv("TILEWRIGHT_LAUNCH_GRAPHS") != "off"; }

LaunchGraphs::LaunchGraphs(const TwDevicePlugin& plugin, TwDevice* device, bool wanted)
    : plugin_(plugin), device_(device), wanted_(wanted && HasGraphs(plugin)) {}

LaunchGraphs::~LaunchGraphs() {
  for (const auto& [first, list] : lists_) {
    if (list.graph != nullptr) plugin_.graph_destroy(device_, list.graph);
  }
}

absl::Status LaunchGraphs::QueueOneByOne(std::span<const TwDeviceLaunch* const> launches) {
  for (const TwDeviceLaunch* launch : launches)
    TW_TRY(DeviceStatus(plugin_, device_, plugin_.launch(device_, launch)));
  return absl::OkStatus();
}

absl::Status LaunchGraphs::MakeGraph(std::span<const TwDeviceLaunch* const> launches, List* list) {
  const TwDeviceResult made = plugin_.graph_create(
      device_, launches.data(), static_cast<int64_t>(launches.size()), &list->graph);
  if (made == TW_DEVICE_UNSUPPORTED || made == TW_DEVICE_OUT_OF_MEMORY) {
    list->state = State::kOneByOne;
    return absl::OkStatus();
  }
  TW_TRY(DeviceStatus(plugin_, device_, made));
  list->state = State::kGraph;
  return absl::OkStatus();
}

absl::Status LaunchGraphs::Queue(std::span<const TwDeviceLaunch* const> launches) {
  if (!wanted_ || launches.size() < kLeastLaunches) return QueueOneByOne(launches);
  List& list = lists_[launches.front()];
  if (list.state == State::kQueuedOnce) TW_TRY(MakeGraph(launches, &list));
  if (list.state == State::kGraph)
    return DeviceStatus(plugin_, device_, plugin_.graph_launch(device_, list.graph));
  TW_TRY(QueueOneByOne(launches));
  if (list.state == State::kNew) list.state = State::kQueuedOnce;
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
