// A device of a plug-in that a session has opened; closes it. One thread at a time.
#ifndef DEPLOY_RUNTIME_OPEN_DEVICE_H_
#define DEPLOY_RUNTIME_OPEN_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "deploy/runtime/device_plugin.h"

namespace tilewright::runtime {

class OpenDevice {
 public:
  OpenDevice() = default;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice();
  // `device`: SessionOptions::device. UNAVAILABLE `runtime.device.open`, NOT_FOUND
  // `runtime.device.name`.
  absl::Status Open(const TwDevicePlugin* plugin, const std::string& device);
  TwDevice* get() const { return device_; }

 private:
  absl::Status OpenIndex(int32_t index);
  absl::Status OpenNamed(const std::string& name);

  const TwDevicePlugin* plugin_ = nullptr;
  TwDevice* device_ = nullptr;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_OPEN_DEVICE_H_
