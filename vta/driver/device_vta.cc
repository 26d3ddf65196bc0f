// Device plug-in of the accelerator (deploy/runtime/device_plugin.h), a shared object. Its devices
// have an index and a name (device_list.h). A launch is done when it returns.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "deploy/runtime/device_plugin.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/driver/device_list.h"
#include "vta/driver/self_test_code.h"
#include "vta/driver/vta_device.h"
#include "vta/sim/stream_work.h"
#include "vta/sim/timeline.h"

struct TwDevice {
  explicit TwDevice(std::shared_ptr<tilewright::vta::Accelerator> accelerator)
      : device(std::move(accelerator)) {}
  tilewright::vta::VtaDevice device;
  std::string error, fingerprint;
  TwDeviceTrace trace = {};
  std::string picture, events;  // of trace
};
struct TwDeviceMemory {
  tilewright::vta::DramRange range;
};
struct TwDeviceEvent {
  int64_t at = -1;  // cycles; -1: not recorded
};

namespace tilewright::vta {
namespace {

using support::StrCat;

// Stands for the self-test of the device's configuration.
constexpr std::string_view kSelfTestFormat = "vta-self-test";
constexpr char kFormats[] = "vta-stream,vta-self-test";
static_assert(std::string_view(kFormats).starts_with(kCodeFormat) &&
              std::string_view(kFormats).ends_with(kSelfTestFormat));

TwDeviceCode* AsCode(VtaCode* code) { return reinterpret_cast<TwDeviceCode*>(code); }
VtaCode* CodeOf(TwDeviceCode* code) { return reinterpret_cast<VtaCode*>(code); }
TwDeviceKernel* AsKernel(VtaKernel* kernel) { return reinterpret_cast<TwDeviceKernel*>(kernel); }
VtaKernel* KernelOf(TwDeviceKernel* kernel) { return reinterpret_cast<VtaKernel*>(kernel); }

TwDeviceResult Failed(TwDevice* d, TwDeviceResult result, std::string error) {
  d->error = std::move(error);
  return result;
}
// `otherwise`: for errors that mean the same everywhere in a function.
TwDeviceResult Failed(TwDevice* d, const absl::Status& status, TwDeviceResult otherwise) {
  const bool memory = status.code() == absl::StatusCode::kResourceExhausted;
  return Failed(d, memory ? TW_DEVICE_OUT_OF_MEMORY : otherwise, support::StatusText(status));
}

// The device is gone for errors of UNAVAILABLE: it needs a reset.
TwDeviceResult ResultOf(const absl::Status& status, TwDeviceResult otherwise) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return TW_DEVICE_LOST;
    case absl::StatusCode::kDeadlineExceeded:
      return TW_DEVICE_TIMED_OUT;
    default:
      return otherwise;
  }
}

TwDeviceResult Count(int32_t* devices) {
  *devices = CountDevices();
  return TW_DEVICE_OK;
}

TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  auto accelerator = OpenDevice(index);
  if (!accelerator.ok()) {
    const std::string text = support::StatusText(accelerator.status());
    if (error != nullptr && error_bytes > 0) {
      const size_t length = std::min(error_bytes - 1, text.size());
      std::memcpy(error, text.data(), length);
      error[length] = '\0';
    }
    const bool none = support::Slug(accelerator.status()) == "vta.driver.index";
    return none ? TW_DEVICE_NOT_FOUND : ResultOf(accelerator.status(), TW_DEVICE_FAILED);
  }
  auto opened = std::make_unique<TwDevice>(*std::move(accelerator));
  const BackendInfo& info = opened->device.info();
  // A job for one configuration goes to devices that accept it (tracker/device_match.h). The keys
  // of memories are those of targets (compiler/target/on_chip.h).
  const auto sized = [&](std::string_view key) {
    return info.any_memories ? StrCat(key, "_accepts=*\n") : std::string();
  };
  opened->fingerprint = StrCat("config_accepts=", info.configs, "\ndriver=1\n", sized("inputs"),
                               "kind=vta\n", sized("micro_ops"), "name=", info.name, "\n",
                               sized("sums"), "version=", info.version, "\n", sized("weights"));
  *device = opened.release();
  return TW_DEVICE_OK;
}
void Close(TwDevice* d) { delete d; }
const char* LastError(TwDevice* d) { return d->error.c_str(); }

TwDeviceResult Describe(TwDevice* d, TwDeviceInfo* info) {
  if (info->struct_bytes < sizeof(size_t))
    return Failed(d, TW_DEVICE_INVALID, "vta.driver.info: expected struct_bytes to be set");
  const BackendInfo& backend = d->device.info();
  TwDeviceInfo all = {};
  all.struct_bytes = std::min(info->struct_bytes, sizeof(all));
  all.name = backend.name.c_str();
  all.fingerprint = d->fingerprint.c_str();
  all.code_formats = kFormats;
  all.memory_bytes = backend.memory_bytes;
  all.max_group_threads = 1;
  all.alignment = kDramAlignment;
  all.timer_ns = 1;
  all.device_timer = 1;
  all.unit = backend.unit.c_str();
  std::memcpy(info, &all, all.struct_bytes);
  return TW_DEVICE_OK;
}

TwDeviceResult Alloc(TwDevice* d, int64_t bytes, TwDeviceMemory** memory) {
  const absl::StatusOr<DramRange> range = d->device.Allocate(bytes);
  if (!range.ok()) return Failed(d, range.status(), TW_DEVICE_INVALID);
  *memory = new TwDeviceMemory{*range};
  return TW_DEVICE_OK;
}
void Free(TwDevice* d, TwDeviceMemory* memory) {
  if (memory == nullptr) return;
  d->device.Free(memory->range);
  delete memory;
}

bool InRange(const TwDeviceSlice& s, int64_t bytes) {
  return s.memory != nullptr && s.offset >= 0 && bytes >= 0 && s.offset <= s.memory->range.bytes &&
         bytes <= s.memory->range.bytes - s.offset;
}
TwDeviceResult OutOfRange(TwDevice* d) {
  return Failed(d, TW_DEVICE_INVALID,
                "vta.driver.range: expected a range within the allocation, found one beyond it");
}
uint8_t* BytesOf(TwDevice* d, const TwDeviceSlice& s) {
  return d->device.Bytes(s.memory->range).data() + s.offset;
}

TwDeviceResult Write(TwDevice* d, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return OutOfRange(d);
  if (bytes > 0) std::memcpy(BytesOf(d, target), source, static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}
TwDeviceResult Read(TwDevice* d, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return OutOfRange(d);
  if (bytes > 0) std::memcpy(target, BytesOf(d, source), static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}
TwDeviceResult Copy(TwDevice* d, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes)) return OutOfRange(d);
  if (bytes > 0) std::memmove(BytesOf(d, target), BytesOf(d, source), static_cast<size_t>(bytes));
  return TW_DEVICE_OK;
}
TwDeviceResult Map(TwDevice* d, TwDeviceMemory*, void**) {
  return Failed(d, TW_DEVICE_UNSUPPORTED, "vta.driver.map: expected read and write, found map");
}

TwDeviceResult Load(TwDevice* d, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  std::string_view code_bytes(static_cast<const char*>(image), bytes);
  std::string self_test;
  if (format == kSelfTestFormat) {
    // The hardware has one configuration, and the table of the plug-in does not know it.
    const auto config = FindConfig(support::Split(d->device.info().configs, ',')[0]);
    if (!config.ok()) return Failed(d, config.status(), TW_DEVICE_BAD_CODE);
    self_test = SelfTestCode(*config);
    code_bytes = self_test;
  } else if (format != kCodeFormat) {
    return Failed(d, TW_DEVICE_UNSUPPORTED,
                  StrCat("vta.driver.format: expected ", kCodeFormat, ", found ",
                         support::Quote(format, 40)));
  }
  auto loaded = d->device.Load(code_bytes);
  if (!loaded.ok()) return Failed(d, loaded.status(), TW_DEVICE_BAD_CODE);
  *code = AsCode(loaded->release());
  return TW_DEVICE_OK;
}
void Unload(TwDevice* d, TwDeviceCode* code) {
  if (code != nullptr) d->device.Unload(std::unique_ptr<VtaCode>(CodeOf(code)));
}
TwDeviceResult Find(TwDevice* d, TwDeviceCode* code, const char* name, TwDeviceKernel** kernel) {
  VtaKernel* found = CodeOf(code)->Find(name);
  if (found == nullptr) {
    return Failed(d, TW_DEVICE_NOT_FOUND,
                  StrCat("vta.driver.kernel: expected a program of the code, found ",
                         support::Quote(name, 60)));
  }
  *kernel = AsKernel(found);
  return TW_DEVICE_OK;
}

// Fills `report`, if it is given and the device can.
TwDeviceResult LaunchWith(TwDevice* d, const TwDeviceLaunch* launch, CycleReport* report) {
  for (int axis = 0; axis < 3; ++axis) {
    if (launch->grid[axis] == 1 && launch->group[axis] == 1) continue;
    return Failed(d, TW_DEVICE_UNSUPPORTED,
                  "vta.driver.group: expected one group of one thread, found more");
  }
  if (launch->num_sizes != 0 || launch->workspace != nullptr) {
    return Failed(d, TW_DEVICE_INVALID,
                  "vta.driver.operands: expected neither sizes nor a workspace, found some");
  }
  std::vector<DramRange> operands;
  for (int64_t i = 0; i < launch->num_buffers; ++i) {
    const TwDeviceSlice& s = launch->buffers[i];
    if (!InRange(s, 0)) return OutOfRange(d);
    operands.push_back({s.memory->range.address + s.offset, s.memory->range.bytes - s.offset});
  }
  const absl::Status ran = d->device.Launch(KernelOf(launch->kernel), operands, report);
  if (ran.ok()) return TW_DEVICE_OK;
  const bool operand = support::Slug(ran) == "vta.driver.operands";
  return Failed(d, operand ? TW_DEVICE_INVALID : ResultOf(ran, TW_DEVICE_KERNEL_FAILED),
                support::StatusText(ran));
}
TwDeviceResult Launch(TwDevice* d, const TwDeviceLaunch* launch) {
  return LaunchWith(d, launch, nullptr);
}

TwDeviceResult Trace(TwDevice* d, const TwDeviceLaunch* launch, const TwDeviceTrace** trace) {
  const std::optional<CycleTiming>& timing = d->device.info().traced_timing;
  if (!timing.has_value()) {
    return Failed(d, TW_DEVICE_UNSUPPORTED,
                  StrCat("vta.driver.trace: expected a device that sees what its modules do, such "
                         "as the cycle model; found ",
                         d->device.info().name));
  }
  CycleReport report;
  const TwDeviceResult ran = LaunchWith(d, launch, &report);
  if (ran != TW_DEVICE_OK) return ran;
  const Program& program = *KernelOf(launch->kernel)->program;
  const StreamWork work = WorkOf(program.stream, report, *timing);
  d->picture = TimelineSvg(program.stream, report);
  d->events = ChromeTrace(program.stream, report);
  d->trace = {.struct_bytes = sizeof(TwDeviceTrace),
              .program = program.name.c_str(),
              .time = report.cycles,
              .picture = d->picture.c_str(),
              .events = d->events.c_str(),
              .work_name = "products of a vector and a matrix",
              .work = work.products,
              .bytes = work.bytes,
              .peak_work = work.peak_products,
              .peak_bytes = work.peak_bytes};
  *trace = &d->trace;
  return TW_DEVICE_OK;
}

TwDeviceResult Synchronize(TwDevice*) { return TW_DEVICE_OK; }

TwDeviceResult EventCreate(TwDevice*, TwDeviceEvent** event) {
  *event = new TwDeviceEvent;
  return TW_DEVICE_OK;
}
void EventDestroy(TwDevice*, TwDeviceEvent* event) { delete event; }
TwDeviceResult EventRecord(TwDevice* d, TwDeviceEvent* event) {
  event->at = d->device.cycles();
  return TW_DEVICE_OK;
}
TwDeviceResult EventElapsed(TwDevice* d, TwDeviceEvent* from, TwDeviceEvent* to, int64_t* cycles) {
  if (from->at < 0 || to->at < 0) {
    return Failed(d, TW_DEVICE_INVALID,
                  "vta.driver.event: expected recorded events, found a new one");
  }
  *cycles = to->at - from->at;
  return TW_DEVICE_OK;
}

const TwDevicePlugin* Table() {
  // The bytes say nothing: the format does.
  static const TwDeviceSelfTest kSelfTest = {kSelfTestFormat.data(), kSelfTestProgram.data(),
                                             kSelfTestProgram.size(), kSelfTestProgram.data(), 1};
  static const TwDevicePlugin kTable = [] {
    TwDevicePlugin table = TW_DEVICE_PLUGIN_TABLE_OF_WHOLE_NUMBERS("vta", &kSelfTest);
    table.trace = Trace;
    return table;
  }();
  return &kTable;
}

}  // namespace
}  // namespace tilewright::vta

extern "C" __attribute__((visibility("default"))) const TwDevicePlugin* tw_device_plugin(
    uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? tilewright::vta::Table() : nullptr;
}
