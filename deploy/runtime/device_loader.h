// Finds the device plug-in of a target kind. The CPU is linked in, the others are shared objects. A
// DevicePlugin owns its shared object; tables and handles of devices must not outlive it. One
// thread at a time loads plug-ins; const use is thread-safe.
#ifndef DEPLOY_RUNTIME_DEVICE_LOADER_H_
#define DEPLOY_RUNTIME_DEVICE_LOADER_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/runtime/device_plugin.h"

namespace tilewright::runtime {

// The CPU of this process: code objects of the native format, kernels with the ABI of c_abi.h, one
// thread. Work is done when the call returns.
const TwDevicePlugin* CpuDevicePlugin();

class DevicePlugin {
 public:
  // Loads the shared object at `path` and checks its table. NOT_FOUND `runtime.device.load` if it
  // does not load; FAILED_PRECONDITION `runtime.device.version` or `.table` if it cannot serve this
  // runtime. Loading runs the object's constructors: load only objects that you trust.
  static absl::StatusOr<DevicePlugin> Open(const std::string& path);

  DevicePlugin(DevicePlugin&& other) noexcept;
  DevicePlugin& operator=(DevicePlugin&& other) noexcept;
  ~DevicePlugin();

  const TwDevicePlugin& table() const { return *table_; }

 private:
  DevicePlugin(void* handle, const TwDevicePlugin* table) : handle_(handle), table_(table) {}

  void* handle_;
  const TwDevicePlugin* table_;
};

// Whether a table can be used by this runtime: version, size and every function.
absl::Status CheckDeviceTable(const TwDevicePlugin* table);

// Returns the kernel with which agents test the device; null if they cannot measure on it.
const TwDeviceSelfTest* SelfTestOf(const TwDevicePlugin& table);

// Returns the same of a device that computes with whole numbers only.
const TwDeviceSelfTest* WholeSelfTestOf(const TwDevicePlugin& table);

// Returns the path of the plug-in of a target kind ("opencl"): libtilewright_device_KIND.so in the
// folder that TILEWRIGHT_PLUGIN_DIR names, otherwise at its place in packages and the build tree,
// relative to this program. NOT_FOUND `runtime.device.missing`.
absl::StatusOr<std::string> FindDevicePlugin(std::string_view kind);

// Returns a result as a status: `runtime.device.<reason>` with the device's own text.
absl::Status DeviceStatus(const TwDevicePlugin& plugin, TwDevice* device, TwDeviceResult result);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DEVICE_LOADER_H_
