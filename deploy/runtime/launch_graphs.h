// Launches that a session queues in the same order again and again. Where the device's plug-in can,
// they become one graph of launches, which costs the host one call. Borrows the plug-in and the
// device. One thread at a time.
#ifndef DEPLOY_RUNTIME_LAUNCH_GRAPHS_H_
#define DEPLOY_RUNTIME_LAUNCH_GRAPHS_H_

#include <map>
#include <span>

#include "absl/status/status.h"
#include "deploy/runtime/device_plugin.h"

namespace tilewright::runtime {

// Whether graphs are wanted: the environment variable TILEWRIGHT_LAUNCH_GRAPHS is not `off`.
bool LaunchGraphsWanted();

class LaunchGraphs {
 public:
  LaunchGraphs(const TwDevicePlugin& plugin, TwDevice* device, bool wanted);
  // Destroys the graphs: before their kernels' code is unloaded.
  ~LaunchGraphs();
  LaunchGraphs(const LaunchGraphs&) = delete;
  LaunchGraphs& operator=(const LaunchGraphs&) = delete;

  // Queues the launches in their order. The first time it queues them one by one, when drivers load
  // what they put off until then. The second time it makes their graph. A device that cannot, or
  // has no memory for it, gets them one by one from then on. REQUIRES: each list begins with a
  // launch of its own, and neither the list nor its launches change. Errors of DeviceStatus.
  absl::Status Queue(std::span<const TwDeviceLaunch* const> launches);

 private:
  enum class State : uint8_t { kNew, kQueuedOnce, kGraph, kOneByOne };
  struct List {
    State state = State::kNew;
    TwDeviceGraph* graph = nullptr;
  };
  absl::Status QueueOneByOne(std::span<const TwDeviceLaunch* const> launches);
  absl::Status MakeGraph(std::span<const TwDeviceLaunch* const> launches, List* list);

  const TwDevicePlugin& plugin_;
  TwDevice* device_;
  const bool wanted_;
  std::map<const TwDeviceLaunch*, List> lists_;  // by the first launch
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_LAUNCH_GRAPHS_H_
