#include "deploy/runtime/open_device.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

OpenDevice::~OpenDevice() {
  if (device_ != nullptr) plugin_->close(device_);
}

absl::Status OpenDevice::Open(const TwDevicePlugin* plugin, const std::string& device) {
  plugin_ = plugin;
  const std::optional<int64_t> index = support::ParseInt64(device.empty() ? "0" : device);
  if (!index.has_value()) return OpenNamed(device);
  return OpenIndex(static_cast<int32_t>(std::clamp<int64_t>(*index, -1, INT32_MAX)));
}

absl::Status OpenDevice::OpenIndex(int32_t index) {
  char error[512] = {};
  const TwDeviceResult result = plugin_->open(index, &device_, error, sizeof(error));
  if (result == TW_DEVICE_OK) return absl::OkStatus();
  device_ = nullptr;
  return support::Unavailable("runtime.device.open", error);
}

absl::Status OpenDevice::OpenNamed(const std::string& name) {
  std::vector<std::string> found;
  int32_t devices = 0;
  if (plugin_->count(&devices) != TW_DEVICE_OK) devices = 0;
  for (int32_t index = 0; index < devices; ++index) {
    TW_TRY(OpenIndex(index));
    TwDeviceInfo info{};
    info.struct_bytes = sizeof(info);
    TW_TRY(DeviceStatus(*plugin_, device_, plugin_->describe(device_, &info)));
    if (info.name == name) return absl::OkStatus();
    found.emplace_back(info.name);
    plugin_->close(std::exchange(device_, nullptr));
  }
  return support::NotFound(
      "runtime.device.name",
      support::StrCat("expected an index or one of ", support::Join(found, ", "), ", found ",
                      support::Quote(name, 60)));
}

}  // namespace tilewright::runtime
