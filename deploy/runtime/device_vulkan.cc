// Device plug-in for Vulkan devices (target kind `vulkan`). A shared object of its own that finds
// libvulkan when it is loaded; without one it has no devices. Code objects are lists of SPIR-V
// modules (spirv_abi.h). Links nothing of ours. The parts: vulkan_api.h the library's functions,
// vulkan_context.h a device and its memory, vulkan_queue.h its queue, vulkan_pipeline.h its
// kernels.
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/plugin_parts.h"
#include "deploy/runtime/spirv_abi.h"
#include "deploy/runtime/vulkan_context.h"
#include "deploy/runtime/vulkan_pipeline.h"
#include "deploy/runtime/vulkan_queue.h"

namespace vk = tilewright::vulkan;
namespace plugin = tilewright::plugin;
using plugin::InRange;

struct TwDevice {
  explicit TwDevice(VkPhysicalDevice physical) : context(physical) {}
  vk::Context context;
  std::unique_ptr<vk::Queue> queue;
  VkPipelineCache cache = VK_NULL_HANDLE;
  vk::Allocation staging;  // once it was needed
  std::string error, name, fingerprint;
  TwDeviceInfo info = {};
};
struct TwDeviceMemory {
  vk::Allocation allocation;
  int64_t bytes;
};
// A kernel's handle is a vk::Pipeline.
struct TwDeviceCode {
  std::vector<std::unique_ptr<vk::Pipeline>> kernels;
};
struct TwDeviceEvent {
  VkQueryPool query = VK_NULL_HANDLE;
  int64_t host_ns = 0;  // of devices without timestamps
  bool recorded = false;
};

namespace {

constexpr int64_t kAlignment = 256;  // of buffers in an allocation: no device asks for more
constexpr int64_t kStagingBytes = 4 << 20;

TwDeviceResult ResultOf(VkResult code) {
  switch (code) {
    case VK_SUCCESS:
      return TW_DEVICE_OK;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
      return TW_DEVICE_OUT_OF_MEMORY;
    case VK_ERROR_INVALID_SHADER_NV:
      return TW_DEVICE_BAD_CODE;
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return TW_DEVICE_UNSUPPORTED;
    case VK_ERROR_DEVICE_LOST:
    case VK_TIMEOUT:  // work that does not end: the queue is of no use any more
      return TW_DEVICE_LOST;
    default:
      return TW_DEVICE_FAILED;
  }
}

TwDeviceResult Failed(TwDevice* device, TwDeviceResult result, const std::string& reason,
                      const std::string& detail) {
  device->error = "device.vulkan." + reason + ": " + detail;
  return result;
}

// The text of a call that failed.
TwDeviceResult Checked(TwDevice* device, const char* call, VkResult code) {
  if (code == VK_SUCCESS) return TW_DEVICE_OK;
  if (code == VK_TIMEOUT) {
    return Failed(device, TW_DEVICE_LOST, "timeout",
                  "expected work to end within " +
                      std::to_string(vk::Queue::kMostWaitNs / 1'000'000'000) +
                      " s, found it running; close the device");
  }
  return Failed(
      device, ResultOf(code), "call",
      "expected " + std::string(call) + " to succeed, found error " + std::to_string(code));
}

TwDeviceResult Wait(TwDevice* device) {
  return Checked(device, "vkWaitForFences", device->queue->Wait());
}

TwDeviceResult Count(int32_t* devices) {
  *devices = static_cast<int32_t>(vk::ComputeDevices().size());
  return TW_DEVICE_OK;
}

void Inspect(TwDevice* d) {
  const VkPhysicalDeviceLimits& limits = d->context.limits();
  d->name = d->context.name();
  d->fingerprint = d->context.Fingerprint();
  TwDeviceInfo& info = d->info;
  info.name = d->name.c_str();
  info.fingerprint = d->fingerprint.c_str();
  info.code_formats = TW_SPIRV_FORMAT;
  info.memory_bytes = d->context.memory_bytes();
  info.shared_bytes = limits.maxComputeSharedMemorySize;
  info.max_group_threads = limits.maxComputeWorkGroupInvocations;
  info.alignment =
      std::max(kAlignment, static_cast<int64_t>(limits.minStorageBufferOffsetAlignment));
  info.device_timer = d->context.timestamp_bits() > 0 ? 1 : 0;
  info.timer_ns = info.device_timer != 0
                      ? std::max<int64_t>(1, static_cast<int64_t>(limits.timestampPeriod))
                      : 1000;
}

// Work that does not end keeps what it uses: a device that is lost is left as it is, with its
// memory, until the process ends.
void Close(TwDevice* d) {
  if (d->queue != nullptr && d->queue->lost()) return;
  const vk::DeviceApi& api = d->context.api();
  if (d->context.device() != VK_NULL_HANDLE && api.DeviceWaitIdle != nullptr) {
    api.DeviceWaitIdle(d->context.device());
    d->context.Free(&d->staging);
    if (d->cache != VK_NULL_HANDLE)
      api.DestroyPipelineCache(d->context.device(), d->cache, nullptr);
  }
  d->queue.reset();
  delete d;
}

VkResult OpenParts(TwDevice* d) {
  VkResult code = d->context.Open();
  if (code != VK_SUCCESS) return code;
  d->queue = std::make_unique<vk::Queue>(d->context);
  code = d->queue->Open();
  VkPipelineCacheCreateInfo cache = {};
  cache.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  if (code == VK_SUCCESS) {
    code = d->context.api().CreatePipelineCache(d->context.device(), &cache, nullptr, &d->cache);
  }
  return code;
}

TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  const std::vector<VkPhysicalDevice> all = vk::ComputeDevices();
  const auto fail = [&](TwDeviceResult result, const std::string& text) {
    return plugin::NotOpened(error, error_bytes, result, text);
  };
  if (index < 0 || static_cast<size_t>(index) >= all.size()) {
    return fail(TW_DEVICE_NOT_FOUND, "device.vulkan.index: expected one of " +
                                         std::to_string(all.size()) + " devices, found " +
                                         std::to_string(index));
  }
  auto* d = new TwDevice(all[static_cast<size_t>(index)]);
  const VkResult code = OpenParts(d);
  if (code != VK_SUCCESS) {
    Close(d);
    return fail(ResultOf(code), "device.vulkan.open: expected a device with a queue, found error " +
                                    std::to_string(code));
  }
  Inspect(d);
  *device = d;
  return TW_DEVICE_OK;
}

const char* LastError(TwDevice* device) { return device->error.c_str(); }

TwDeviceResult Describe(TwDevice* device, TwDeviceInfo* info) {
  const bool given = plugin::GiveInfo(device->info, info);
  return given ? TW_DEVICE_OK
               : Failed(device, TW_DEVICE_INVALID, "info", "expected struct_bytes, found 0");
}

TwDeviceResult Alloc(TwDevice* device, int64_t bytes, TwDeviceMemory** memory) {
  if (bytes < 1) return Failed(device, TW_DEVICE_INVALID, "bytes", "expected at least 1 byte");
  const int64_t most = device->info.memory_bytes;
  if (bytes > most) {  // some drivers accept any size and fail at the first use
    return Failed(
        device, TW_DEVICE_OUT_OF_MEMORY, "memory",
        "expected at most " + std::to_string(most) + " bytes, found " + std::to_string(bytes));
  }
  auto made = std::make_unique<TwDeviceMemory>(TwDeviceMemory{{}, bytes});
  const VkResult code = device->context.Allocate(bytes, &made->allocation);
  if (code != VK_SUCCESS) return Checked(device, "vkAllocateMemory", code);
  *memory = made.release();
  return TW_DEVICE_OK;
}

void Free(TwDevice* device, TwDeviceMemory* memory) {
  if (memory == nullptr) return;
  device->queue->Wait();  // work under way may use it
  if (!device->queue->lost()) device->context.Free(&memory->allocation);
  delete memory;
}

TwDeviceResult OutOfRange(TwDevice* device) {
  return Failed(device, TW_DEVICE_INVALID, "range",
                "expected a range within the allocation, found one beyond it");
}

TwDeviceResult CopyBuffer(TwDevice* device, VkBuffer target, int64_t target_offset, VkBuffer source,
                          int64_t source_offset, int64_t bytes) {
  VkCommandBuffer commands = VK_NULL_HANDLE;
  const VkResult code = device->queue->Next(&commands);
  if (code != VK_SUCCESS) return Checked(device, "vkQueueSubmit", code);
  const VkBufferCopy region = {static_cast<VkDeviceSize>(source_offset),
                               static_cast<VkDeviceSize>(target_offset),
                               static_cast<VkDeviceSize>(bytes)};
  device->context.api().CmdCopyBuffer(commands, source, target, 1, &region);
  return TW_DEVICE_OK;
}

// Moves bytes between the host and memory that is not mapped, a part at a time. One of source and
// target is null.
TwDeviceResult Stage(TwDevice* device, TwDeviceSlice slice, const void* source, void* target,
                     int64_t bytes) {
  if (device->staging.buffer == VK_NULL_HANDLE) {
    const VkResult code = device->context.AllocateStaging(kStagingBytes, &device->staging);
    if (code != VK_SUCCESS) return Checked(device, "vkAllocateMemory", code);
  }
  const VkBuffer memory = slice.memory->allocation.buffer, staging = device->staging.buffer;
  for (int64_t done = 0; done < bytes; done += kStagingBytes) {
    const int64_t part = std::min(kStagingBytes, bytes - done), at = slice.offset + done;
    TwDeviceResult result = TW_DEVICE_OK;
    if (source != nullptr) {
      result = Wait(device);
      if (result != TW_DEVICE_OK) return result;
      std::memcpy(device->staging.mapped, static_cast<const char*>(source) + done,
                  static_cast<size_t>(part));
      result = CopyBuffer(device, memory, at, staging, 0, part);
    } else {
      result = CopyBuffer(device, staging, 0, memory, at, part);
    }
    if (result == TW_DEVICE_OK) result = Wait(device);
    if (result != TW_DEVICE_OK) return result;
    if (target != nullptr) {
      std::memcpy(static_cast<char*>(target) + done, device->staging.mapped,
                  static_cast<size_t>(part));
    }
  }
  return TW_DEVICE_OK;
}

TwDeviceResult Write(TwDevice* device, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  void* mapped = target.memory->allocation.mapped;
  if (mapped == nullptr) return Stage(device, target, source, nullptr, bytes);
  const TwDeviceResult result = Wait(device);  // earlier work may read or write it
  if (result == TW_DEVICE_OK) {
    std::memcpy(static_cast<char*>(mapped) + target.offset, source, static_cast<size_t>(bytes));
  }
  return result;
}

TwDeviceResult Read(TwDevice* device, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  const void* mapped = source.memory->allocation.mapped;
  if (mapped == nullptr) return Stage(device, source, nullptr, target, bytes);
  const TwDeviceResult result = Wait(device);
  if (result == TW_DEVICE_OK) {
    std::memcpy(target, static_cast<const char*>(mapped) + source.offset,
                static_cast<size_t>(bytes));
  }
  return result;
}

TwDeviceResult Copy(TwDevice* device, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  return CopyBuffer(device, target.memory->allocation.buffer, target.offset,
                    source.memory->allocation.buffer, source.offset, bytes);
}

TwDeviceResult Map(TwDevice* device, TwDeviceMemory*, void**) {
  return Failed(device, TW_DEVICE_UNSUPPORTED, "map",
                "expected read and write: memory may be the device's");
}

TwDeviceResult Load(TwDevice* device, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  if (std::string(format) != TW_SPIRV_FORMAT) {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "format",
                  "expected " TW_SPIRV_FORMAT ", found " + std::string(format).substr(0, 40));
  }
  auto made = std::make_unique<TwDeviceCode>();
  const std::string wrong = vk::ReadList(image, bytes, &made->kernels);
  if (!wrong.empty()) return Failed(device, TW_DEVICE_BAD_CODE, "code", wrong);
  *code = made.release();
  return TW_DEVICE_OK;
}

void Unload(TwDevice* device, TwDeviceCode* code) {
  if (code == nullptr) return;
  device->queue->Wait();  // work under way may use it
  if (device->queue->lost()) return;
  for (const auto& k : code->kernels) k->Destroy(device->context);
  delete code;
}

TwDeviceResult Find(TwDevice* device, TwDeviceCode* code, const char* name,
                    TwDeviceKernel** kernel) {
  const auto found = std::find_if(code->kernels.begin(), code->kernels.end(),
                                  [&](const auto& k) { return k->facts().name == name; });
  if (found == code->kernels.end()) {
    return Failed(
        device, TW_DEVICE_NOT_FOUND, "kernel",
        "expected kernel " + std::string(name).substr(0, 60) + " in the code, found none");
  }
  vk::Pipeline* made = found->get();
  if (!made->made()) {
    const std::string lacking = made->Lacking(device->context);
    if (!lacking.empty())
      return Failed(device, TW_DEVICE_UNSUPPORTED, "kernel", made->facts().name + ": " + lacking);
    const VkResult result = made->Make(device->context, device->cache);
    if (result != VK_SUCCESS) return Checked(device, "vkCreateComputePipelines", result);
  }
  *kernel = static_cast<TwDeviceKernel*>(static_cast<void*>(made));
  return TW_DEVICE_OK;
}

vk::Pipeline& PipelineOf(const TwDeviceLaunch& launch) {
  return *static_cast<vk::Pipeline*>(static_cast<void*>(launch.kernel));
}

// The buffers of a launch, each as large as the kernel declares it.
TwDeviceResult Arguments(TwDevice* device, const TwDeviceLaunch& launch,
                         std::vector<VkDescriptorBufferInfo>* buffers) {
  const vk::KernelFacts& facts = PipelineOf(launch).facts();
  std::vector<TwDeviceSlice> slices(launch.buffers, launch.buffers + launch.num_buffers);
  if (launch.workspace != nullptr) slices.push_back(*launch.workspace);
  const auto size_bytes = launch.num_sizes * static_cast<int64_t>(sizeof(int64_t));
  if (slices.size() != facts.buffers.size() || size_bytes != facts.size_bytes) {
    return Failed(device, TW_DEVICE_INVALID, "arguments",
                  facts.name + ": expected " + std::to_string(facts.buffers.size()) +
                      " buffers and " + std::to_string(facts.size_bytes) +
                      " bytes of sizes, found " + std::to_string(slices.size()) + " and " +
                      std::to_string(size_bytes));
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const TwDeviceSlice& slice = slices[i];
    if (!InRange(slice, std::max<int64_t>(facts.buffers[i], 1))) return OutOfRange(device);
    const int64_t open = std::min<int64_t>(slice.memory->bytes - slice.offset,
                                           device->context.limits().maxStorageBufferRange);
    buffers->push_back({slice.memory->allocation.buffer, static_cast<VkDeviceSize>(slice.offset),
                        static_cast<VkDeviceSize>(facts.buffers[i] > 0 ? facts.buffers[i] : open)});
  }
  return TW_DEVICE_OK;
}

TwDeviceResult Launch(TwDevice* device, const TwDeviceLaunch* launch) {
  vk::Pipeline& kernel = PipelineOf(*launch);
  constexpr int64_t kMostGroups = int64_t{1} << 31;
  for (size_t a = 0; a < 3; ++a) {
    if (launch->grid[a] < 1 || launch->group[a] < 1)
      return Failed(device, TW_DEVICE_INVALID, "grid", "expected at least one group and thread");
    if (launch->grid[a] >= kMostGroups)
      return Failed(device, TW_DEVICE_UNSUPPORTED, "grid", "expected fewer than 2^31 groups");
    if (launch->group[a] != kernel.facts().group[a]) {
      return Failed(device, TW_DEVICE_UNSUPPORTED, "group",
                    kernel.facts().name + ": expected groups of " +
                        std::to_string(kernel.facts().group[a]) + " threads along axis " +
                        std::to_string(a) + ", found " + std::to_string(launch->group[a]));
    }
  }
  std::vector<VkDescriptorBufferInfo> buffers;
  const TwDeviceResult result = Arguments(device, *launch, &buffers);
  if (result != TW_DEVICE_OK) return result;
  return Checked(
      device, "vkQueueSubmit",
      kernel.Launch(device->context, device->queue.get(), buffers, launch->sizes, launch->grid));
}

TwDeviceResult Synchronize(TwDevice* device) { return Wait(device); }

TwDeviceResult EventCreate(TwDevice* device, TwDeviceEvent** event) {
  auto made = std::make_unique<TwDeviceEvent>();
  VkQueryPoolCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = 1;
  if (device->info.device_timer != 0) {
    const VkResult code = device->context.api().CreateQueryPool(device->context.device(), &info,
                                                                nullptr, &made->query);
    if (code != VK_SUCCESS) return Checked(device, "vkCreateQueryPool", code);
  }
  *event = made.release();
  return TW_DEVICE_OK;
}

void EventDestroy(TwDevice* device, TwDeviceEvent* event) {
  if (event == nullptr) return;
  device->queue->Wait();
  if (device->queue->lost()) return;
  if (event->query != VK_NULL_HANDLE)
    device->context.api().DestroyQueryPool(device->context.device(), event->query, nullptr);
  delete event;
}

int64_t HostNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

TwDeviceResult EventRecord(TwDevice* device, TwDeviceEvent* event) {
  event->recorded = false;
  if (event->query == VK_NULL_HANDLE) {  // the host's clock, when all earlier work is done
    const TwDeviceResult result = Wait(device);
    if (result != TW_DEVICE_OK) return result;
    event->host_ns = HostNs();
  } else {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    const VkResult code = device->queue->Next(&commands);
    if (code != VK_SUCCESS) return Checked(device, "vkQueueSubmit", code);
    device->context.api().CmdResetQueryPool(commands, event->query, 0, 1);
    device->context.api().CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                            event->query, 0);
  }
  event->recorded = true;
  return TW_DEVICE_OK;
}

TwDeviceResult EventElapsed(TwDevice* device, TwDeviceEvent* from, TwDeviceEvent* to, int64_t* ns) {
  if (!from->recorded || !to->recorded)
    return Failed(device, TW_DEVICE_INVALID, "event", "expected recorded events, found a new one");
  const TwDeviceResult result = Wait(device);
  if (result != TW_DEVICE_OK) return result;
  if (from->query == VK_NULL_HANDLE) {
    *ns = to->host_ns - from->host_ns;
    return TW_DEVICE_OK;
  }
  uint64_t ticks[2] = {};
  int place = 0;
  for (const TwDeviceEvent* event : {from, to}) {
    const VkResult code = device->context.api().GetQueryPoolResults(
        device->context.device(), event->query, 0, 1, sizeof(uint64_t), &ticks[place++],
        sizeof(uint64_t), VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    if (code != VK_SUCCESS) return Checked(device, "vkGetQueryPoolResults", code);
  }
  // A counter of fewer bits begins again from 0. The difference is a time on either side of 0.
  const uint32_t unused = 64 - std::min(device->context.timestamp_bits(), 64u);
  const auto difference = static_cast<int64_t>((ticks[1] - ticks[0]) << unused) >> unused;
  *ns = static_cast<int64_t>(static_cast<double>(difference) *
                             static_cast<double>(device->context.limits().timestampPeriod));
  return TW_DEVICE_OK;
}

// The words of vulkan_self_test.spvasm, behind the list's header.
constexpr uint32_t kSelfTestWords[] = {
#include "deploy/runtime/vulkan_self_test.def"
};
constexpr TwDeviceSelfTest kSelfTest{TW_SPIRV_FORMAT, kSelfTestWords, sizeof(kSelfTestWords),
                                     "self_test", 64};

constexpr TwDevicePlugin kTable = TW_DEVICE_PLUGIN_TABLE("vulkan", &kSelfTest);

}  // namespace

extern "C" __attribute__((visibility("default"))) const TwDevicePlugin* tw_device_plugin(
    uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? &kTable : nullptr;
}
