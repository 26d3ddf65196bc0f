#include "deploy/runtime/device_loader.h"

#include <dlfcn.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

using support::StrCat;

namespace {

// Of a table of this ABI version: what follows may be absent.
constexpr size_t kLeastTableBytes = offsetof(TwDevicePlugin, self_test);

}  // namespace

absl::Status CheckDeviceTable(const TwDevicePlugin* table) {
  if (table == nullptr) {
    return support::FailedPrecondition(
        "runtime.device.version",
        StrCat("expected a plug-in for ABI version ", TW_DEVICE_ABI_VERSION,
               ", found one that does not serve it"));
  }
  if (table->struct_bytes < kLeastTableBytes || table->abi_version != TW_DEVICE_ABI_VERSION) {
    return support::FailedPrecondition(
        "runtime.device.version",
        StrCat("expected a table of version ", TW_DEVICE_ABI_VERSION, " with ", kLeastTableBytes,
               " bytes, found version ", table->abi_version, " with ", table->struct_bytes));
  }
  const TwDevicePlugin& t = *table;
  bool whole = t.kind != nullptr && t.count != nullptr && t.open != nullptr && t.close != nullptr &&
               t.last_error != nullptr && t.describe != nullptr && t.alloc != nullptr &&
               t.free != nullptr && t.write != nullptr && t.read != nullptr && t.copy != nullptr &&
               t.map != nullptr && t.load != nullptr && t.unload != nullptr && t.find != nullptr &&
               t.launch != nullptr && t.synchronize != nullptr && t.event_create != nullptr &&
               t.event_destroy != nullptr && t.event_record != nullptr &&
               t.event_elapsed != nullptr;
  if (whole) return absl::OkStatus();
  return support::FailedPrecondition("runtime.device.table",
                                     "expected every function of the table, found one missing");
}

const TwDeviceSelfTest* SelfTestOf(const TwDevicePlugin& table) {
  const bool known = table.struct_bytes >= offsetof(TwDevicePlugin, self_test) + sizeof(void*);
  return known ? table.self_test : nullptr;
}

const TwDeviceSelfTest* WholeSelfTestOf(const TwDevicePlugin& table) {
  constexpr size_t kEnd = offsetof(TwDevicePlugin, whole_self_test) + sizeof(void*);
  return table.struct_bytes >= kEnd ? table.whole_self_test : nullptr;
}

absl::StatusOr<DevicePlugin> DevicePlugin::Open(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return support::NotFound("runtime.device.load",
                             StrCat("expected a device plug-in at ", path, ", found: ",
                                    why != nullptr ? why : "the loader gave no reason"));
  }
  DevicePlugin plugin(handle, nullptr);
  auto entry = reinterpret_cast<TwDevicePluginFn>(dlsym(handle, TW_DEVICE_PLUGIN_SYMBOL));
  if (entry == nullptr) {
    return support::FailedPrecondition(
        "runtime.device.table",
        StrCat("expected the symbol ", TW_DEVICE_PLUGIN_SYMBOL, " in ", path, ", found none"));
  }
  plugin.table_ = entry(TW_DEVICE_ABI_VERSION);
  TW_TRY(CheckDeviceTable(plugin.table_));
  return plugin;
}

DevicePlugin::DevicePlugin(DevicePlugin&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      table_(std::exchange(other.table_, nullptr)) {}

DevicePlugin& DevicePlugin::operator=(DevicePlugin&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(table_, other.table_);
  return *this;
}

DevicePlugin::~DevicePlugin() {
  if (handle_ != nullptr) dlclose(handle_);
}

absl::StatusOr<std::string> FindDevicePlugin(std::string_view kind) {
  const std::string file = StrCat("libtilewright_device_", kind, ".so");
  std::vector<std::string> folders;
  if (const auto given = support::GetEnv("TILEWRIGHT_PLUGIN_DIR"); given.has_value()) {
    folders = {*given};
  } else {
    TW_ASSIGN(const std::string here, support::SelfExeDir());
    folders = {here + "/../lib/tilewright-agent", here + "/../lib", here};
    // Of a program that is not ours (Python): next to the runtime library.
    Dl_info own;
    if (dladdr(reinterpret_cast<const void*>(&FindDevicePlugin), &own) != 0 &&
        own.dli_fname != nullptr) {
      folders.push_back(support::DirName(own.dli_fname));
    }
  }
  for (const std::string& folder : folders) {
    const std::string path = support::PathJoin(folder, file);
    if (support::FileExists(path)) return path;
  }
  return support::NotFound("runtime.device.missing",
                           StrCat("expected ", file, " in ", support::Join(folders, " or "),
                                  "; install it or name its folder by TILEWRIGHT_PLUGIN_DIR"));
}

absl::Status DeviceStatus(const TwDevicePlugin& plugin, TwDevice* device, TwDeviceResult result) {
  if (result == TW_DEVICE_OK) return absl::OkStatus();
  struct Row {
    TwDeviceResult result;
    absl::StatusCode code;
    const char* slug;
  };
  static constexpr Row kRows[] = {
      {TW_DEVICE_INVALID, absl::StatusCode::kInvalidArgument, "runtime.device.invalid"},
      {TW_DEVICE_NOT_FOUND, absl::StatusCode::kNotFound, "runtime.device.not_found"},
      {TW_DEVICE_OUT_OF_MEMORY, absl::StatusCode::kResourceExhausted,
       "runtime.device.out_of_memory"},
      {TW_DEVICE_UNSUPPORTED, absl::StatusCode::kUnimplemented, "runtime.device.unsupported"},
      {TW_DEVICE_BAD_CODE, absl::StatusCode::kDataLoss, "runtime.device.bad_code"},
      {TW_DEVICE_KERNEL_FAILED, absl::StatusCode::kInternal, "runtime.device.kernel_failed"},
      {TW_DEVICE_LOST, absl::StatusCode::kUnavailable, "runtime.device.lost"},
      {TW_DEVICE_TIMED_OUT, absl::StatusCode::kDeadlineExceeded, "runtime.device.timed_out"},
  };
  const char* text = device == nullptr ? "" : plugin.last_error(device);
  for (const Row& row : kRows) {
    if (row.result == result)
      return support::MakeError(row.code, row.slug, text == nullptr ? "" : text);
  }
  return support::Internal("runtime.device.failed", text == nullptr ? "" : text);
}

}  // namespace tilewright::runtime
