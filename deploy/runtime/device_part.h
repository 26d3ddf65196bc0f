// What a session has on a device: the code of its launches, one arena, the constants, and memory
// for inputs and outputs. Every kernel is looked up and every argument is worked out when the part
// is made; a launch is then one call of the plug-in. Borrows the plug-in, the device and the module
// file, which must outlive it. One thread at a time.
//
// Launches on a device have fixed sizes. In a module of open sizes the others may be open: a tensor
// has memory there for the largest that it may be.
#ifndef DEPLOY_RUNTIME_DEVICE_PART_H_
#define DEPLOY_RUNTIME_DEVICE_PART_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/device_layout.h"
#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/launch_graphs.h"
#include "deploy/runtime/launch_trace.h"

namespace tilewright::runtime {

struct DevicePartOptions {
  // The launches of code for this kind of device; "": all launches.
  std::string kind;
  int64_t guard_bytes = 0;      // behind each input and output, for the caller to fill and check
  std::string code_cache = {};  // folder of a CodeCache; empty: none
  bool launch_graphs = true;    // LaunchAll may use graphs (launch_graphs.h)
};

class DevicePart {
 public:
  using Functions = std::vector<const module::Function*>;
  // Loads the code, allocates the tensors that the functions' launches use, writes the constants.
  // The functions run in turn: their arena is one.
  // FAILED_PRECONDITION `runtime.load.format` if the device does not run a format of code, and
  // `runtime.load.alignment` if the arena is laid out for other devices. FAILED_PRECONDITION
  // `runtime.load.device_features` if the device lacks what the code needs. UNIMPLEMENTED
  // `runtime.load.open_sizes` for a launch on the device whose sizes are open, or that reads what a
  // state keeps; errors of DeviceStatus (DATA_LOSS if the code does not build).
  static absl::StatusOr<std::unique_ptr<DevicePart>> Create(const module::ModuleFile& file,
                                                            Functions functions,
                                                            const TwDevicePlugin& plugin,
                                                            TwDevice* device,
                                                            const DevicePartOptions& options);
  ~DevicePart();
  DevicePart(const DevicePart&) = delete;
  DevicePart& operator=(const DevicePart&) = delete;

  const TwDeviceInfo& info() const { return info_; }
  bool Runs(const module::Launch& launch) const;
  // Whether the tensor has memory here: a launch uses it, or a copy.
  bool Has(int64_t tensor) const { return slices_.contains(tensor); }

  // Queues a launch. REQUIRES: one of the function's that runs here.
  absl::Status Launch(const module::Launch& launch);
  // Runs a launch and returns what the device did meanwhile; `launch` of the result is not set.
  // UNIMPLEMENTED if the device cannot say it. REQUIRES: as Launch.
  absl::StatusOr<LaunchTrace> Trace(const module::Launch& launch);
  // Queues launches that are queued together each time. REQUIRES: as Launch, each one in one such
  // list only.
  absl::Status LaunchAll(std::span<const module::Launch* const> launches);
  // Copies the first `bytes` of a tensor and of its guard to the device, or back after all queued
  // work. REQUIRES: Has(tensor).
  absl::Status Upload(int64_t tensor, const void* data, int64_t bytes);
  absl::Status Download(int64_t tensor, void* data, int64_t bytes);
  // Queues a copy of a tensor into another one of its size. REQUIRES: Has() both; fixed sizes.
  absl::Status Copy(int64_t from, int64_t to);
  absl::Status Fill(int64_t tensor, uint8_t byte, int64_t extra = 0);
  absl::Status FillWorkspace(uint8_t byte);
  absl::Status Synchronize();

 private:
  struct BoundLaunch {
    TwDeviceLaunch call{};
    std::vector<TwDeviceSlice> buffers;
    std::vector<int64_t> sizes;
  };

  DevicePart(const module::ModuleFile& file, Functions functions, const TwDevicePlugin& plugin,
             TwDevice* device, DevicePartOptions options);
  absl::Status Check(TwDeviceResult result) const;
  absl::Status LoadCode();
  absl::Status CheckLaunches(const module::Function& function) const;
  std::vector<const module::Launch*> LaunchesOf(const module::Function& function) const;
  absl::StatusOr<std::set<int64_t>> PlanTensors();
  absl::Status Allocate();
  absl::Status PlaceTensor(const module::Tensor& tensor);
  absl::Status PlaceInRegion(const module::Tensor& tensor, int64_t offset, int64_t bytes,
                             TwDeviceMemory** region);
  absl::StatusOr<TwDeviceMemory*> NewMemory(int64_t bytes);
  absl::Status Bind(const module::Launch& launch);
  const module::Tensor& TensorOf(int64_t id) const;

  const module::ModuleFile& file_;
  const Functions functions_;
  const TwDevicePlugin& plugin_;
  TwDevice* device_;
  const DevicePartOptions options_;
  TwDeviceInfo info_{};
  std::vector<TwDeviceCode*> code_;  // by index in the module; nullptr: runs elsewhere
  std::vector<TwDeviceMemory*> memory_;
  DeviceLayout layout_;
  TwDeviceMemory* arena_ = nullptr;
  TwDeviceMemory* prepared_ = nullptr;
  TwDeviceMemory* constants_ = nullptr;
  TwDeviceSlice workspace_{};
  int64_t workspace_bytes_ = 0;
  std::map<int64_t, TwDeviceSlice> slices_;  // by tensor
  std::map<const module::Launch*, BoundLaunch> launches_;
  std::unique_ptr<LaunchGraphs> graphs_;
  std::vector<const TwDeviceLaunch*> queued_;  // of the call of LaunchAll; kept for its memory
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DEVICE_PART_H_
