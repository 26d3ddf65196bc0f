#include "deploy/runtime/open_device.h"

#include <algorithm>
#include <optional>
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
  TW_ASSIGN(const int32_t index, FindDevice(*plugin, device));
  return OpenIndex(index);
}

absl::Status OpenDevice::OpenIndex(int32_t index) {
  char error[512] = {};
  const TwDeviceResult result = plugin_->open(index, &device_, error, sizeof(error));
  if (result == TW_DEVICE_OK) return absl::OkStatus();
  device_ = nullptr;
  return support::Unavailable("runtime.device.open", error);
}

absl::StatusOr<int32_t> FindDevice(const TwDevicePlugin& plugin, const std::string& device) {
  const std::optional<int64_t> index = support::ParseInt64(device.empty() ? "0" : device);
  if (index.has_value()) return static_cast<int32_t>(std::clamp<int64_t>(*index, -1, INT32_MAX));
  std::vector<std::string> found;
  int32_t devices = 0;
  if (plugin.count(&devices) != TW_DEVICE_OK) devices = 0;
  for (int32_t at = 0; at < devices; ++at) {
    OpenDevice open;
    open.plugin_ = &plugin;
    TW_TRY(open.OpenIndex(at));
    TwDeviceInfo info{};
    info.struct_bytes = sizeof(info);
    TW_TRY(DeviceStatus(plugin, open.get(), plugin.describe(open.get(), &info)));
    if (info.name == device) return at;
    found.emplace_back(info.name);
  }
  return support::NotFound(
      "runtime.device.name",
      support::StrCat("expected an index or one of ", support::Join(found, ", "), ", found ",
                      support::Quote(device, 60)));
}

}  // namespace tilewright::runtime
