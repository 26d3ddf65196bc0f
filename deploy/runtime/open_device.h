// A device of a plug-in that a session has opened; closes it. One thread at a time.
#ifndef DEPLOY_RUNTIME_OPEN_DEVICE_H_
#define DEPLOY_RUNTIME_OPEN_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/runtime/device_plugin.h"

namespace tilewright::runtime {

// Returns the index of a device of the plug-in that `device` names: by its index, by its name, or
// the first if it is empty. NOT_FOUND `runtime.device.name` for another name; UNAVAILABLE
// `runtime.device.open` if a device cannot say its name.
absl::StatusOr<int32_t> FindDevice(const TwDevicePlugin& plugin, const std::string& device);

class OpenDevice {
 public:
  OpenDevice() = default;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice();
  // `device`: SessionOptions::device. UNAVAILABLE `runtime.device.open`; as FindDevice.
  absl::Status Open(const TwDevicePlugin* plugin, const std::string& device);
  TwDevice* get() const { return device_; }

 private:
  friend absl::StatusOr<int32_t> FindDevice(const TwDevicePlugin& plugin,
                                            const std::string& device);
  absl::Status OpenIndex(int32_t index);

  const TwDevicePlugin* plugin_ = nullptr;
  TwDevice* device_ = nullptr;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_OPEN_DEVICE_H_
