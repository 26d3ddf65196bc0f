// A device plug-in whose device is the emulated GPU: for kinds that have no plug-in of the product.
// Its code objects are texts: those of Metal, or of HIP where the compiler is one that hands texts
// on (fake_clang.sh). Built once for each kind: EMULATED_KIND, EMULATED_FORMAT, EMULATED_LANGUAGE,
// EMULATED_FEATURES. Faults of kernels go to standard error, too.
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/plugin_parts.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/simt/simt_compile.h"

namespace simt = tilewright::simt;
namespace plugin = tilewright::plugin;

struct TwDevice {
  simt::Emulator emulator{{.group_threads = 1024, .shared_bytes = 64 << 10}};
  tilewright::support::SystemClock clock;
  std::string error;
};
struct TwDeviceMemory {
  char* address;
  int64_t bytes;
};
struct TwDeviceKernel {
  simt::Kernel kernel;
};
struct TwDeviceCode {
  std::map<std::string, TwDeviceKernel> kernels;
};
struct TwDeviceEvent {
  int64_t ns = 0;
};

namespace {

TwDeviceResult Failed(TwDevice* device, TwDeviceResult result, const std::string& text) {
  device->error = "device." EMULATED_KIND "." + text;
  return result;
}

TwDeviceResult Count(int32_t* devices) {
  *devices = 1;
  return TW_DEVICE_OK;
}
TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  if (index != 0)
    return plugin::NotOpened(error, error_bytes, TW_DEVICE_NOT_FOUND, "expected device 0");
  *device = new TwDevice;
  return TW_DEVICE_OK;
}
void Close(TwDevice* device) { delete device; }
const char* LastError(TwDevice* device) { return device->error.c_str(); }
TwDeviceResult Describe(TwDevice* device, TwDeviceInfo* info) {
  TwDeviceInfo all = {};
  all.name = "Emulated GPU";
  all.fingerprint = "features=" EMULATED_FEATURES "\nkind=" EMULATED_KIND "\n";
  all.code_formats = EMULATED_FORMAT;
  all.max_group_threads = 1024;
  all.alignment = 512;
  all.timer_ns = 1;
  return plugin::GiveInfo(all, info) ? TW_DEVICE_OK
                                     : Failed(device, TW_DEVICE_INVALID, "info: no struct_bytes");
}

// Numbers of 32 bits: in such steps the memory knows what was written.
TwDeviceResult Alloc(TwDevice* device, int64_t bytes, TwDeviceMemory** memory) {
  void* address = device->emulator.memory().Allocate(static_cast<size_t>(bytes), 4, "memory");
  if (address == nullptr) return Failed(device, TW_DEVICE_OUT_OF_MEMORY, "memory: none is left");
  *memory = new TwDeviceMemory{static_cast<char*>(address), bytes};
  return TW_DEVICE_OK;
}
void Free(TwDevice* device, TwDeviceMemory* memory) {
  if (memory == nullptr) return;
  device->emulator.memory().Free(memory->address);
  delete memory;
}
TwDeviceResult Write(TwDevice* device, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!plugin::InRange(target, bytes)) return Failed(device, TW_DEVICE_INVALID, "range: of write");
  char* const to = target.memory->address + target.offset;
  std::memcpy(to, source, static_cast<size_t>(bytes));
  device->emulator.memory().MarkWritten(to, static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}
TwDeviceResult Read(TwDevice* device, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!plugin::InRange(source, bytes)) return Failed(device, TW_DEVICE_INVALID, "range: of read");
  std::memcpy(target, source.memory->address + source.offset, static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}
TwDeviceResult Copy(TwDevice* device, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!plugin::InRange(source, bytes)) return Failed(device, TW_DEVICE_INVALID, "range: of copy");
  return Write(device, target, source.memory->address + source.offset, bytes);
}
TwDeviceResult Map(TwDevice* device, TwDeviceMemory*, void**) {
  return Failed(device, TW_DEVICE_UNSUPPORTED, "map: the memory is not the host's");
}

// The text says how many threads a warp has; else there are 32.
uint32_t WarpOf(const std::string& text) {
  static const std::regex kLanes(R"(#define TW_LANES (\d+)\n)");
  std::smatch found;
  return std::regex_search(text, found, kLanes) ? static_cast<uint32_t>(std::stoul(found[1])) : 32;
}
TwDeviceResult Load(TwDevice* device, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  if (std::string_view(format) != EMULATED_FORMAT)
    return Failed(device, TW_DEVICE_UNSUPPORTED, "format: expected " EMULATED_FORMAT);
  const std::string text(static_cast<const char*>(image), bytes);
  const std::vector<std::string> names = simt::KernelNames(text);
  const auto kernels = simt::Compile({{EMULATED_LANGUAGE, text, names, WarpOf(text)}});
  if (!kernels.ok())
    return Failed(device, TW_DEVICE_BAD_CODE, tilewright::support::StatusText(kernels.status()));
  auto made = std::make_unique<TwDeviceCode>();
  for (size_t i = 0; i < names.size(); ++i) made->kernels[names[i]] = {(*kernels)[0][i]};
  *code = made.release();
  return TW_DEVICE_OK;
}
void Unload(TwDevice*, TwDeviceCode* code) { delete code; }
TwDeviceResult Find(TwDevice* device, TwDeviceCode* code, const char* name,
                    TwDeviceKernel** kernel) {
  const auto found = code->kernels.find(name);
  if (found == code->kernels.end())
    return Failed(device, TW_DEVICE_NOT_FOUND, std::string("kernel: none is called ") + name);
  *kernel = &found->second;
  return TW_DEVICE_OK;
}

TwDeviceResult Launch(TwDevice* device, const TwDeviceLaunch* launch) {
  simt::LaunchRequest request{.kernel = launch->kernel->kernel};
  for (size_t a = 0; a < 3; ++a) {
    request.groups[a] = launch->grid[a];
    request.threads[a] = launch->group[a];
  }
  for (int64_t i = 0; i < launch->num_sizes; ++i)
    request.arguments.push_back(static_cast<uint64_t>(launch->sizes[i]));
  for (int64_t i = 0; i < launch->num_buffers; ++i) {
    const TwDeviceSlice& slice = launch->buffers[i];
    request.arguments.push_back(reinterpret_cast<uint64_t>(slice.memory->address + slice.offset));
  }
  const absl::Status status = device->emulator.Launch(request);
  if (status.ok()) return TW_DEVICE_OK;
  const std::string text = tilewright::support::StatusText(status);
  std::cerr << "[emulated " EMULATED_KIND "] " << text << "\n";
  return Failed(device, TW_DEVICE_KERNEL_FAILED, "fault: " + text);
}
TwDeviceResult Synchronize(TwDevice*) { return TW_DEVICE_OK; }

TwDeviceResult EventCreate(TwDevice*, TwDeviceEvent** event) {
  *event = new TwDeviceEvent;
  return TW_DEVICE_OK;
}
void EventDestroy(TwDevice*, TwDeviceEvent* event) { delete event; }
TwDeviceResult EventRecord(TwDevice* device, TwDeviceEvent* event) {
  event->ns = device->clock.NowNs();
  return TW_DEVICE_OK;
}
TwDeviceResult EventElapsed(TwDevice*, TwDeviceEvent* from, TwDeviceEvent* to, int64_t* ns) {
  *ns = to->ns - from->ns;
  return TW_DEVICE_OK;
}

constexpr TwDevicePlugin kTable = TW_DEVICE_PLUGIN_TABLE(EMULATED_KIND, nullptr);

}  // namespace

extern "C" __attribute__((visibility("default"))) const TwDevicePlugin* tw_device_plugin(
    uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? &kTable : nullptr;
}
