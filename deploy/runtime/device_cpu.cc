// The CPU of the process as a device: memory is the host's, a launch is a call. The functions keep
// no state but the device's; what the caller passes is checked as far as a C interface can.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/plugin_parts.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

struct TwDevice {
  std::string error, name, fingerprint, formats;
};
struct TwDeviceMemory {
  char* data;
  int64_t bytes;
};
struct TwDeviceKernel {
  std::string name;
  TwKernelFn entry;
};
struct TwDeviceCode {
  tilewright::runtime::LoadedCode code;
  std::vector<std::unique_ptr<TwDeviceKernel>> kernels;
};
struct TwDeviceEvent {
  int64_t ns = -1;
};

namespace tilewright::runtime {
namespace {

using support::StrCat;

TwDeviceResult Failed(TwDevice* device, TwDeviceResult result, std::string_view reason,
                      std::string_view detail) {
  device->error = StrCat("device.cpu.", reason, ": ", detail);
  return result;
}

using plugin::InRange;

char* At(const TwDeviceSlice& slice) { return slice.memory->data + slice.offset; }

TwDeviceResult OutOfRange(TwDevice* device) {
  return Failed(device, TW_DEVICE_INVALID, "range",
                "expected a range within the allocation, found one beyond it");
}

TwDeviceResult Count(int32_t* devices) {
  *devices = 1;
  return TW_DEVICE_OK;
}

TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  if (index != 0) {
    std::string text = StrCat("device.cpu.index: expected 0, found ", index);
    if (error != nullptr && error_bytes > 0) {
      size_t n = std::min(error_bytes - 1, text.size());
      std::memcpy(error, text.data(), n);
      error[n] = '\0';
    }
    return TW_DEVICE_NOT_FOUND;
  }
  CpuInfo cpu = DetectCpu();
  auto* d = new TwDevice;
  d->name = cpu.model_name.empty() ? cpu.arch : cpu.model_name;
  d->fingerprint = StrCat("arch=", cpu.arch, "\nfeatures=", support::Join(cpu.features, ","),
                          "\nkind=cpu\nl2_bytes=", cpu.l2_bytes, "\nmodel=", d->name, "\n");
  d->formats = std::string(NativeCodeFormat());
  *device = d;
  return TW_DEVICE_OK;
}

void Close(TwDevice* device) { delete device; }
const char* LastError(TwDevice* device) { return device->error.c_str(); }

TwDeviceResult Describe(TwDevice* device, TwDeviceInfo* info) {
  TwDeviceInfo all = {};
  all.struct_bytes = std::min(info->struct_bytes, sizeof(all));
  all.name = device->name.c_str();
  all.fingerprint = device->fingerprint.c_str();
  all.code_formats = device->formats.c_str();
  all.max_group_threads = 1;
  all.alignment = TW_BUFFER_ALIGNMENT;
  all.timer_ns = 1;
  all.host_visible = 1;
  if (info->struct_bytes < sizeof(size_t))
    return Failed(device, TW_DEVICE_INVALID, "info", "expected struct_bytes to be set");
  std::memcpy(info, &all, all.struct_bytes);
  return TW_DEVICE_OK;
}

TwDeviceResult Alloc(TwDevice* device, int64_t bytes, TwDeviceMemory** memory) {
  if (bytes < 1) return Failed(device, TW_DEVICE_INVALID, "bytes", "expected at least 1 byte");
  constexpr int64_t kMost = int64_t{1} << 46;
  int64_t padded = (bytes + TW_BUFFER_ALIGNMENT - 1) / TW_BUFFER_ALIGNMENT * TW_BUFFER_ALIGNMENT;
  void* data = bytes > kMost ? nullptr
                             : std::aligned_alloc(TW_BUFFER_ALIGNMENT, static_cast<size_t>(padded));
  if (data == nullptr) {
    return Failed(device, TW_DEVICE_OUT_OF_MEMORY, "memory",
                  StrCat("expected ", bytes, " bytes, found less"));
  }
  *memory = new TwDeviceMemory{static_cast<char*>(data), bytes};
  return TW_DEVICE_OK;
}

void Free(TwDevice*, TwDeviceMemory* memory) {
  if (memory == nullptr) return;
  std::free(memory->data);
  delete memory;
}

TwDeviceResult Write(TwDevice* device, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return OutOfRange(device);
  if (bytes > 0) std::memcpy(At(target), source, static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}

TwDeviceResult Read(TwDevice* device, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return OutOfRange(device);
  if (bytes > 0) std::memcpy(target, At(source), static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}

TwDeviceResult Copy(TwDevice* device, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes)) return OutOfRange(device);
  if (bytes > 0) std::memmove(At(target), At(source), static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}

TwDeviceResult Map(TwDevice*, TwDeviceMemory* memory, void** address) {
  *address = memory->data;
  return TW_DEVICE_OK;
}

TwDeviceResult Load(TwDevice* device, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  if (format != NativeCodeFormat()) {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "format",
                  StrCat("expected ", NativeCodeFormat(), ", found ", support::Quote(format, 40)));
  }
  auto loaded = LoadedCode::Load(format, {static_cast<const char*>(image), bytes});
  if (!loaded.ok())
    return Failed(device, TW_DEVICE_BAD_CODE, "code", support::StatusText(loaded.status()));
  *code = new TwDeviceCode{*std::move(loaded), {}};
  return TW_DEVICE_OK;
}

void Unload(TwDevice*, TwDeviceCode* code) { delete code; }

TwDeviceResult Find(TwDevice* device, TwDeviceCode* code, const char* name,
                    TwDeviceKernel** kernel) {
  auto symbol = code->code.Symbol(StrCat(TW_KERNEL_SYMBOL_PREFIX, name));
  if (!symbol.ok()) {
    return Failed(device, TW_DEVICE_NOT_FOUND, "kernel",
                  StrCat("expected kernel ", support::Quote(name, 60), " in the code, found none"));
  }
  code->kernels.push_back(std::make_unique<TwDeviceKernel>(
      TwDeviceKernel{name, reinterpret_cast<TwKernelFn>(*symbol)}));
  *kernel = code->kernels.back().get();
  return TW_DEVICE_OK;
}

// Parallel loops run on the calling thread: threads are a session's (runtime.h), not a device's.
int32_t SerialFor(TwContext*, TwTaskBody body, void* closure, int64_t num_tasks) {
  for (int64_t t = 0; t < num_tasks; ++t) {
    if (int32_t result = body(closure, t); result != TW_OK) return result;
  }
  return TW_OK;
}

TwDeviceResult Launch(TwDevice* device, const TwDeviceLaunch* launch) {
  for (int a = 0; a < 3; ++a) {
    if (launch->grid[a] != 1 || launch->group[a] != 1) {
      return Failed(device, TW_DEVICE_UNSUPPORTED, "grid",
                    "expected a grid and a group of one, as kernels of a CPU hold all their loops");
    }
  }
  std::vector<void*> buffers;
  for (int64_t i = 0; i < launch->num_buffers; ++i) {
    const TwDeviceSlice& slice = launch->buffers[i];
    if (!InRange(slice, 0) || slice.offset % TW_BUFFER_ALIGNMENT != 0) return OutOfRange(device);
    buffers.push_back(At(slice));
  }
  TwContext context = {TW_ABI_VERSION, 1, nullptr, SerialFor};
  void* workspace = launch->workspace == nullptr ? nullptr : At(*launch->workspace);
  int32_t result = launch->kernel->entry(&context, buffers.data(), launch->sizes, workspace);
  if (result == TW_OK) return TW_DEVICE_OK;
  return Failed(device, TW_DEVICE_KERNEL_FAILED, "kernel",
                StrCat("expected ", launch->kernel->name, " to return 0, found ", result));
}

TwDeviceResult Synchronize(TwDevice*) { return TW_DEVICE_OK; }

TwDeviceResult EventCreate(TwDevice*, TwDeviceEvent** event) {
  *event = new TwDeviceEvent;
  return TW_DEVICE_OK;
}
void EventDestroy(TwDevice*, TwDeviceEvent* event) { delete event; }
TwDeviceResult EventRecord(TwDevice*, TwDeviceEvent* event) {
  event->ns = support::SystemClock().NowNs();
  return TW_DEVICE_OK;
}
TwDeviceResult EventElapsed(TwDevice* device, TwDeviceEvent* from, TwDeviceEvent* to, int64_t* ns) {
  if (from->ns < 0 || to->ns < 0)
    return Failed(device, TW_DEVICE_INVALID, "event", "expected recorded events, found a new one");
  *ns = to->ns - from->ns;
  return TW_DEVICE_OK;
}

constexpr TwDevicePlugin kTable = TW_DEVICE_PLUGIN_TABLE("cpu", nullptr);

}  // namespace

const TwDevicePlugin* CpuDevicePlugin() { return &kTable; }

}  // namespace tilewright::runtime
