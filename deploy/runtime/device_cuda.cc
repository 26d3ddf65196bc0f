// Device plug-in for NVIDIA's GPUs (target kind `cuda`). A shared object of its own that finds the
// driver, libcuda, when it is loaded; without one it has no devices. Code objects are cubins, and
// PTX text; kernels get their sizes as 64-bit integers, then their buffers. One handle is one
// stream of the device's primary context. Links nothing of ours. Tests run it on a driver
// that stands in for the vendor's (tests/support/simt/fake_cuda_driver.cc).
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/runtime/cuda_abi.h"
#include "deploy/runtime/cuda_self_test.h"
#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/plugin_parts.h"

namespace cu = tilewright::cuda;
namespace plugin = tilewright::plugin;
using plugin::InRange;

struct TwDevice {
  cu::Device device = 0;
  cu::Handle context = nullptr, stream = nullptr;
  std::string error, name, fingerprint;
  TwDeviceInfo info = {};
  std::array<int64_t, 3> most_groups{}, most_threads{};
  // A fault of a kernel ends the context: all later calls fail alike.
  bool lost = false;
};
struct TwDeviceMemory {
  cu::Pointer address;
  int64_t bytes;
};
// A map that a kernel copies tiles of a buffer by, of 16-bit elements. As long as the buffer is at
// the same address the map stays.
struct KernelMap {
  size_t buffer;                  // its number among the kernel's buffers
  std::array<uint64_t, 2> sizes;  // elements of a row, rows
  std::array<uint32_t, 2> box;    // the same
  cu::Pointer address = 0;
  cu::TensorMap map = {};
};
struct TwDeviceKernel {
  cu::Handle function;
  std::string name;
  int64_t most_threads;  // of a group
  int64_t shared_bytes;  // that a launch gives each group
  std::vector<KernelMap> maps = {};
};
struct TwDeviceCode {
  cu::Handle module;
  std::vector<std::unique_ptr<TwDeviceKernel>> kernels;
};
struct TwDeviceEvent {
  cu::Handle event = nullptr;
  bool recorded = false;
};
struct TwDeviceGraph {
  cu::Handle executable = nullptr;
};

namespace {

constexpr int64_t kAlignment = 256;  // of the driver's allocations
constexpr int64_t kTimerNs = 500;    // of its events

std::string ErrorName(const cu::Library& library, int code) {
  const char* name = nullptr;
  if (library.cuGetErrorName(code, &name) != cu::kSuccess || name == nullptr) name = "no name";
  return std::to_string(code) + " (" + name + ")";
}

struct Driver {
  cu::Library library;
  std::string why_not;  // empty: it works
};

Driver LoadDriver() {
  Driver driver;
  cu::Library& library = driver.library;
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    driver.why_not = error == nullptr ? "no such library" : error;
    return driver;
  }
#define X(name, symbol, args)                                                     \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, symbol)); \
  if (library.name == nullptr) driver.why_not = "a driver without " symbol;
  TW_CUDA_FUNCTIONS(X)
#undef X
  library.get_param_info = reinterpret_cast<cu::GetParamInfo>(dlsym(handle, cu::kGetParamInfo));
  library.encode_tiled = reinterpret_cast<cu::EncodeTiled>(dlsym(handle, cu::kEncodeTiled));
  library.has_graphs = true;
#define X(name, symbol, args)                                                     \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, symbol)); \
  library.has_graphs = library.has_graphs && library.name != nullptr;
  TW_CUDA_GRAPH_FUNCTIONS(X)
#undef X
  if (!driver.why_not.empty()) return driver;
  const int code = library.cuInit(0);
  if (code != cu::kSuccess) driver.why_not = "that cuInit gives error " + ErrorName(library, code);
  return driver;
}

const Driver& TheDriver() {
  static const Driver driver = LoadDriver();  // a driver cannot be unloaded safely
  return driver;
}
const cu::Library& Api() { return TheDriver().library; }

TwDeviceResult ResultOf(int code) {
  switch (code) {
    case cu::kSuccess:
      return TW_DEVICE_OK;
    case cu::kOutOfMemory:
      return TW_DEVICE_OUT_OF_MEMORY;
    case cu::kNoBinary:
    case cu::kUnsupportedPtx:
    case cu::kLaunchOutOfResources:
      return TW_DEVICE_UNSUPPORTED;
    case cu::kInvalidImage:
    case cu::kInvalidPtx:
    case cu::kInvalidSource:
      return TW_DEVICE_BAD_CODE;
    case cu::kNotFound:
      return TW_DEVICE_NOT_FOUND;
    case cu::kIllegalAddress:
    case cu::kLaunchTimeout:
    case cu::kAssert:
    case cu::kHardwareStack:
    case cu::kIllegalInstruction:
    case cu::kMisalignedAddress:
    case cu::kInvalidAddressSpace:
    case cu::kInvalidPc:
    case cu::kLaunchFailed:
      return TW_DEVICE_KERNEL_FAILED;
    case cu::kDeinitialized:
    case cu::kDeviceUnavailable:
    case cu::kNoDevice:
    case cu::kUncorrectableEcc:
    case cu::kNvlinkUncorrectable:
    case cu::kContextIsDestroyed:
      return TW_DEVICE_LOST;
    default:
      return TW_DEVICE_FAILED;
  }
}

TwDeviceResult Failed(TwDevice* device, TwDeviceResult result, const std::string& reason,
                      const std::string& detail) {
  device->error = "device.cuda." + reason + ": " + detail;
  device->lost = device->lost || result == TW_DEVICE_LOST || result == TW_DEVICE_KERNEL_FAILED;
  return result;
}

// The text of a call that failed. The context is gone after a kernel's fault: the first call that
// sees it reports the fault, all later ones a lost device.
TwDeviceResult Checked(TwDevice* device, const char* call, int code) {
  if (code == cu::kSuccess) return TW_DEVICE_OK;
  TwDeviceResult result = ResultOf(code);
  if (device->lost && result == TW_DEVICE_KERNEL_FAILED) result = TW_DEVICE_LOST;
  return Failed(
      device, result, "call",
      "expected " + std::string(call) + " to succeed, found error " + ErrorName(Api(), code));
}

// The device's context is that of the calling thread as long as this lives: programs may have
// another of their own.
class Current {
 public:
  explicit Current(TwDevice* device) { Api().cuCtxPushCurrent(device->context); }
  ~Current() {
    cu::Handle popped = nullptr;
    Api().cuCtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

int64_t NumberOf(cu::Device device, int attribute) {
  int value = 0;
  return Api().cuDeviceGetAttribute(&value, attribute, device) == cu::kSuccess ? value : 0;
}

// Machines whose cubins run: those of the same major version that are not newer. The code of one
// with an `a` runs on that very version.
std::string FeaturesOf(int64_t major, int64_t minor) {
  std::string features;
  const std::string prefix = "sm_" + std::to_string(major);
  for (int64_t m = 0; m <= minor; ++m) features += (m == 0 ? "" : ",") + prefix + std::to_string(m);
  return features + "," + prefix + std::to_string(minor) + "a";
}

TwDeviceResult Count(int32_t* devices) {
  int count = 0;
  if (!TheDriver().why_not.empty() || Api().cuDeviceGetCount(&count) != cu::kSuccess) count = 0;
  *devices = count;
  return TW_DEVICE_OK;
}

void Inspect(TwDevice* d) {
  char name[256] = {};
  int driver = 0;
  size_t memory = 0;
  Api().cuDeviceGetName(name, sizeof(name) - 1, d->device);
  Api().cuDriverGetVersion(&driver);
  Api().cuDeviceTotalMem(&memory, d->device);
  const auto number = [&](int attribute) { return NumberOf(d->device, attribute); };
  const auto text = [&](int attribute) { return std::to_string(number(attribute)); };
  d->name = name;
  const std::string features = FeaturesOf(number(cu::kMajor), number(cu::kMinor));
  // What targets may ask for: `arch`, `tf32` (compiler/target/target.h).
  const char* const tf32 = number(cu::kMajor) >= 8 ? "\ntf32_accepts=on" : "";
  d->fingerprint = "arch_accepts=" + features + "\nclock_khz=" + text(cu::kClockKhz) +
                   "\ndriver=" + std::to_string(driver) + "\nfeatures=" + features +
                   "\nkind=cuda\nl2_bytes=" + text(cu::kSecondCacheBytes) +
                   "\nmemory_bus_bits=" + text(cu::kMemoryBusBits) +
                   "\nmemory_clock_khz=" + text(cu::kMemoryClockKhz) + "\nname=" + d->name + tf32 +
                   "\nunits=" + text(cu::kMultiprocessors) + "\n";
  for (size_t a = 0; a < 3; ++a) {
    d->most_groups[a] = number(cu::kMaxGridX + static_cast<int>(a));
    d->most_threads[a] = number(cu::kMaxBlockX + static_cast<int>(a));
  }
  TwDeviceInfo& info = d->info;
  info.name = d->name.c_str();
  info.fingerprint = d->fingerprint.c_str();
  info.code_formats = "cubin,ptx";
  info.memory_bytes = static_cast<int64_t>(memory);
  info.shared_bytes = number(cu::kMaxSharedPerBlock);
  info.max_group_threads = number(cu::kMaxThreadsPerBlock);
  info.alignment = kAlignment;
  info.timer_ns = kTimerNs;
  info.device_timer = 1;
}

void Close(TwDevice* d) {
  if (d->context != nullptr) {
    if (d->stream != nullptr) {
      const Current current(d);
      Api().cuStreamDestroy(d->stream);
    }
    Api().cuDevicePrimaryCtxRelease(d->device);
  }
  delete d;
}

TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  const auto fail = [&](TwDeviceResult result, const std::string& text) {
    return plugin::NotOpened(error, error_bytes, result, text);
  };
  if (!TheDriver().why_not.empty()) {
    return fail(
        TW_DEVICE_NOT_FOUND,
        "device.cuda.driver: expected libcuda.so.1 of the NVIDIA driver, and a GPU, found " +
            TheDriver().why_not);
  }
  int32_t count = 0;
  Count(&count);
  if (index < 0 || index >= count) {
    return fail(TW_DEVICE_NOT_FOUND, "device.cuda.index: expected one of " + std::to_string(count) +
                                         " devices, found " + std::to_string(index));
  }
  auto* d = new TwDevice;
  int code = Api().cuDeviceGet(&d->device, index);
  if (code == cu::kSuccess) code = Api().cuDevicePrimaryCtxRetain(&d->context, d->device);
  if (code == cu::kSuccess) {
    const Current current(d);
    code = Api().cuStreamCreate(&d->stream, cu::kNonBlocking);
  }
  if (code != cu::kSuccess) {
    Close(d);
    return fail(ResultOf(code), "device.cuda.open: expected a context and a stream, found error " +
                                    ErrorName(Api(), code));
  }
  Inspect(d);
  *device = d;
  return TW_DEVICE_OK;
}

const char* LastError(TwDevice* device) { return device->error.c_str(); }

TwDeviceResult Describe(TwDevice* device, TwDeviceInfo* info) {
  const bool given = plugin::GiveInfo(device->info, info);
  return given ? TW_DEVICE_OK
               : Failed(device, TW_DEVICE_INVALID, "info", "expected struct_bytes to be set");
}

TwDeviceResult Alloc(TwDevice* device, int64_t bytes, TwDeviceMemory** memory) {
  if (bytes < 1) return Failed(device, TW_DEVICE_INVALID, "bytes", "expected at least 1 byte");
  const Current current(device);
  cu::Pointer address = 0;
  const int code = Api().cuMemAlloc(&address, static_cast<size_t>(bytes));
  if (code != cu::kSuccess) return Checked(device, "cuMemAlloc", code);
  *memory = new TwDeviceMemory{address, bytes};
  return TW_DEVICE_OK;
}

void Free(TwDevice* device, TwDeviceMemory* memory) {
  if (memory == nullptr) return;
  const Current current(device);
  Api().cuMemFree(memory->address);
  delete memory;
}

TwDeviceResult OutOfRange(TwDevice* device) {
  return Failed(device, TW_DEVICE_INVALID, "range",
                "expected a range within the allocation, found one beyond it");
}
cu::Pointer AddressOf(const TwDeviceSlice& s) {
  return s.memory->address + static_cast<cu::Pointer>(s.offset);
}

TwDeviceResult Synchronize(TwDevice* device) {
  const Current current(device);
  return Checked(device, "cuStreamSynchronize", Api().cuStreamSynchronize(device->stream));
}

TwDeviceResult Write(TwDevice* device, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  const Current current(device);
  const int code = Api().cuMemcpyHtoDAsync(AddressOf(target), source, static_cast<size_t>(bytes),
                                           device->stream);
  if (code != cu::kSuccess) return Checked(device, "cuMemcpyHtoDAsync", code);
  return Synchronize(device);  // the caller may use its bytes again
}

TwDeviceResult Read(TwDevice* device, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  const Current current(device);
  const int code = Api().cuMemcpyDtoHAsync(target, AddressOf(source), static_cast<size_t>(bytes),
                                           device->stream);
  if (code != cu::kSuccess) return Checked(device, "cuMemcpyDtoHAsync", code);
  return Synchronize(device);
}

TwDeviceResult Copy(TwDevice* device, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  const Current current(device);
  return Checked(device, "cuMemcpyDtoDAsync",
                 Api().cuMemcpyDtoDAsync(AddressOf(target), AddressOf(source),
                                         static_cast<size_t>(bytes), device->stream));
}

TwDeviceResult Map(TwDevice* device, TwDeviceMemory*, void**) {
  return Failed(device, TW_DEVICE_UNSUPPORTED, "map",
                "expected read and write: the memory is not the host's");
}

// Whether the bytes are a 64-bit ELF file for GPUs whose sections are all there. The driver is
// given no length: it would read beyond a file that is cut short.
bool IsCubin(std::string_view image) {
  constexpr size_t kHeader = 64;
  constexpr uint16_t kGpu = 190;
  const auto field = [&](size_t at, auto value) {
    std::memcpy(&value, image.data() + at, sizeof(value));
    return value;
  };
  if (image.size() < kHeader || !image.starts_with("\x7f"
                                                   "ELF\x02"))
    return false;
  const auto sections = field(40, uint64_t{});
  const uint64_t bytes = uint64_t{field(58, uint16_t{})} * field(60, uint16_t{});
  return field(18, uint16_t{}) == kGpu && sections <= image.size() &&
         bytes <= image.size() - sections;
}

TwDeviceResult Load(TwDevice* device, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  const std::string_view form = format;
  if (form != "cubin" && form != "ptx") {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "format",
                  "expected cubin or ptx, found " + std::string(form.substr(0, 40)));
  }
  // A copy that ends with a zero byte, as texts must, and aligned.
  const std::string copy(static_cast<const char*>(image), bytes);
  if (form == "cubin" && !IsCubin(copy))
    return Failed(device, TW_DEVICE_BAD_CODE, "image", "expected a whole cubin, found other bytes");
  const Current current(device);
  cu::Handle module = nullptr;
  const int result = Api().cuModuleLoadData(&module, copy.data());
  if (result != cu::kSuccess) return Checked(device, "cuModuleLoadData", result);
  *code = new TwDeviceCode{module, {}};
  return TW_DEVICE_OK;
}

void Unload(TwDevice* device, TwDeviceCode* code) {
  if (code == nullptr) return;
  const Current current(device);
  Api().cuModuleUnload(code->module);
  delete code;
}

// The code has an array KERNEL_dynamic_shared_kib, as long as the KiB of shared memory that the
// launches of a kernel give each group; none where the kernel's own are enough.
TwDeviceResult GiveShared(TwDevice* device, cu::Handle module, const std::string& kernel,
                          cu::Handle function, int64_t* bytes) {
  cu::Pointer address = 0;
  size_t kib = 0;
  int result =
      Api().cuModuleGetGlobal(&address, &kib, module, (kernel + "_dynamic_shared_kib").c_str());
  if (result == cu::kNotFound) return TW_DEVICE_OK;
  if (result != cu::kSuccess) return Checked(device, "cuModuleGetGlobal", result);
  *bytes = static_cast<int64_t>(kib) << 10;
  result = Api().cuFuncSetAttribute(function, cu::kFunctionDynamicShared, static_cast<int>(*bytes));
  return result == cu::kSuccess ? TW_DEVICE_OK : Checked(device, "cuFuncSetAttribute", result);
}

// The code has an array KERNEL_tensor_maps of 64-bit integers, five for each of the kernel's last
// parameters, which are maps: as KernelMap has them.
TwDeviceResult FindMaps(TwDevice* device, cu::Handle module, TwDeviceKernel* kernel) {
  cu::Pointer address = 0;
  size_t bytes = 0;
  int result =
      Api().cuModuleGetGlobal(&address, &bytes, module, (kernel->name + "_tensor_maps").c_str());
  if (result == cu::kNotFound) return TW_DEVICE_OK;
  if (result != cu::kSuccess) return Checked(device, "cuModuleGetGlobal", result);
  if (Api().encode_tiled == nullptr) {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "tensor_map",
                  "expected a driver with tensor maps (CUDA 12.0 or later), found an older one");
  }
  std::vector<int64_t> numbers(bytes / sizeof(int64_t));
  result = Api().cuMemcpyDtoHAsync(numbers.data(), address, numbers.size() * sizeof(int64_t),
                                   device->stream);
  if (result != cu::kSuccess) return Checked(device, "cuMemcpyDtoHAsync", result);
  const TwDeviceResult read = Synchronize(device);
  for (size_t i = 0; i + 5 <= numbers.size() && read == TW_DEVICE_OK; i += 5) {
    const auto number = [&](size_t k) { return static_cast<uint64_t>(numbers[i + k]); };
    kernel->maps.push_back({number(0),
                            {number(1), number(2)},
                            {static_cast<uint32_t>(number(3)), static_cast<uint32_t>(number(4))}});
  }
  return read;
}

TwDeviceResult EncodeMap(TwDevice* device, const TwDeviceKernel& kernel, cu::Pointer address,
                         KernelMap* map) {
  if (map->address == address) return TW_DEVICE_OK;
  const uint64_t stride = map->sizes[0] * sizeof(uint16_t);
  const uint32_t steps[] = {1, 1};
  const int code = Api().encode_tiled(&map->map, cu::kUint16, 2, reinterpret_cast<void*>(address),
                                      map->sizes.data(), &stride, map->box.data(), steps, 0,
                                      cu::kSwizzle128, cu::kPromote128, 0);
  map->address = code == cu::kSuccess ? address : 0;
  if (code == cu::kSuccess) return TW_DEVICE_OK;
  return Failed(device, ResultOf(code), "tensor_map",
                kernel.name + ": expected that the driver makes a map of buffer " +
                    std::to_string(map->buffer) + ", found error " + ErrorName(Api(), code));
}

TwDeviceResult Find(TwDevice* device, TwDeviceCode* code, const char* name,
                    TwDeviceKernel** kernel) {
  const Current current(device);
  cu::Handle function = nullptr;
  int result = Api().cuModuleGetFunction(&function, code->module, name);
  if (result == cu::kNotFound) {
    return Failed(
        device, TW_DEVICE_NOT_FOUND, "kernel",
        "expected kernel " + std::string(name).substr(0, 60) + " in the code, found none");
  }
  int threads = 0;
  if (result == cu::kSuccess)
    result = Api().cuFuncGetAttribute(&threads, cu::kFunctionMaxThreads, function);
  if (result != cu::kSuccess) return Checked(device, "cuModuleGetFunction", result);
  int64_t shared_bytes = 0;
  const TwDeviceResult given = GiveShared(device, code->module, name, function, &shared_bytes);
  if (given != TW_DEVICE_OK) return given;
  auto found =
      std::make_unique<TwDeviceKernel>(TwDeviceKernel{function, name, threads, shared_bytes});
  const TwDeviceResult maps = FindMaps(device, code->module, found.get());
  if (maps != TW_DEVICE_OK) return maps;
  code->kernels.push_back(std::move(found));
  *kernel = code->kernels.back().get();
  return TW_DEVICE_OK;
}

// Grid and group within the limits of the device and of the kernel's registers.
TwDeviceResult CheckSizes(TwDevice* device, const TwDeviceLaunch& launch) {
  int64_t threads = 1;
  for (size_t a = 0; a < 3; ++a) {
    if (launch.grid[a] < 1 || launch.group[a] < 1)
      return Failed(device, TW_DEVICE_INVALID, "grid", "expected at least one group and thread");
    if (launch.grid[a] > device->most_groups[a] || launch.group[a] > device->most_threads[a]) {
      return Failed(device, TW_DEVICE_UNSUPPORTED, "grid",
                    "expected at most " + std::to_string(device->most_groups[a]) + " groups of " +
                        std::to_string(device->most_threads[a]) + " threads along axis " +
                        std::to_string(a) + ", found " + std::to_string(launch.grid[a]) + " of " +
                        std::to_string(launch.group[a]));
    }
    threads *= launch.group[a];
  }
  const int64_t most = std::min(device->info.max_group_threads, launch.kernel->most_threads);
  if (threads <= most) return TW_DEVICE_OK;
  return Failed(device, TW_DEVICE_UNSUPPORTED, "group",
                launch.kernel->name + ": expected at most " + std::to_string(most) +
                    " threads, found " + std::to_string(threads));
}

// Whether the kernel takes as many arguments, as far as the driver says.
TwDeviceResult CheckArguments(TwDevice* device, const TwDeviceKernel& kernel, size_t given) {
  if (Api().get_param_info == nullptr) return TW_DEVICE_OK;
  size_t wanted = 0, offset = 0, size = 0;
  while (Api().get_param_info(kernel.function, wanted, &offset, &size) == cu::kSuccess) ++wanted;
  if (wanted == given) return TW_DEVICE_OK;
  return Failed(device, TW_DEVICE_INVALID, "arguments",
                kernel.name + ": expected " + std::to_string(wanted) + " arguments, found " +
                    std::to_string(given));
}

TwDeviceResult Launch(TwDevice* device, const TwDeviceLaunch* launch) {
  TwDeviceResult result = CheckSizes(device, *launch);
  if (result != TW_DEVICE_OK) return result;
  std::vector<uint64_t> values(launch->sizes, launch->sizes + launch->num_sizes);
  std::vector<TwDeviceSlice> buffers(launch->buffers, launch->buffers + launch->num_buffers);
  if (launch->workspace != nullptr) buffers.push_back(*launch->workspace);
  for (const TwDeviceSlice& slice : buffers) {
    if (!InRange(slice, 1)) return OutOfRange(device);
    values.push_back(AddressOf(slice));
  }
  const Current current(device);
  std::vector<KernelMap>& maps = launch->kernel->maps;
  result = CheckArguments(device, *launch->kernel, values.size() + maps.size());
  if (result != TW_DEVICE_OK) return result;
  std::vector<void*> arguments;
  for (uint64_t& value : values) arguments.push_back(&value);
  for (KernelMap& map : maps) {
    if (map.buffer >= buffers.size()) return OutOfRange(device);
    result = EncodeMap(device, *launch->kernel, AddressOf(buffers[map.buffer]), &map);
    if (result != TW_DEVICE_OK) return result;
    arguments.push_back(&map.map);
  }
  const auto size = [](int64_t n) { return static_cast<unsigned>(n); };
  return Checked(
      device, "cuLaunchKernel",
      Api().cuLaunchKernel(launch->kernel->function, size(launch->grid[0]), size(launch->grid[1]),
                           size(launch->grid[2]), size(launch->group[0]), size(launch->group[1]),
                           size(launch->group[2]), size(launch->kernel->shared_bytes),
                           device->stream, arguments.data(), nullptr));
}

// What the launches would put into the stream becomes a graph. Ends the capture whatever happens:
// a stream that captures does nothing else.
TwDeviceResult Capture(TwDevice* device, const TwDeviceLaunch* const* launches, int64_t count,
                       cu::Handle* graph) {
  int code = Api().cuStreamBeginCapture(device->stream, cu::kCaptureThreadLocal);
  if (code != cu::kSuccess) return Checked(device, "cuStreamBeginCapture", code);
  TwDeviceResult result = TW_DEVICE_OK;
  for (int64_t i = 0; i < count && result == TW_DEVICE_OK; ++i)
    result = Launch(device, launches[i]);
  code = Api().cuStreamEndCapture(device->stream, graph);
  if (result != TW_DEVICE_OK) return result;
  return Checked(device, "cuStreamEndCapture", code);
}

TwDeviceResult GraphCreate(TwDevice* device, const TwDeviceLaunch* const* launches, int64_t count,
                           TwDeviceGraph** graph) {
  if (!Api().has_graphs) {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "graph",
                  "expected a driver with graphs (CUDA 11.4 or later), found an older one");
  }
  if (count < 1) return Failed(device, TW_DEVICE_INVALID, "graph", "expected at least one launch");
  const Current current(device);
  cu::Handle captured = nullptr, executable = nullptr;
  TwDeviceResult result = Capture(device, launches, count, &captured);
  if (result == TW_DEVICE_OK)
    result =
        Checked(device, "cuGraphInstantiate", Api().cuGraphInstantiate(&executable, captured, 0));
  if (captured != nullptr) Api().cuGraphDestroy(captured);
  // The launches still work one by one, whatever the driver has against their capture.
  if (result == TW_DEVICE_FAILED) result = TW_DEVICE_UNSUPPORTED;
  if (result == TW_DEVICE_OK) *graph = new TwDeviceGraph{executable};
  return result;
}

void GraphDestroy(TwDevice* device, TwDeviceGraph* graph) {
  if (graph == nullptr) return;
  const Current current(device);
  Api().cuGraphExecDestroy(graph->executable);
  delete graph;
}

TwDeviceResult GraphLaunch(TwDevice* device, TwDeviceGraph* graph) {
  const Current current(device);
  return Checked(device, "cuGraphLaunch", Api().cuGraphLaunch(graph->executable, device->stream));
}

TwDeviceResult EventCreate(TwDevice* device, TwDeviceEvent** event) {
  const Current current(device);
  cu::Handle made = nullptr;
  const int code = Api().cuEventCreate(&made, 0);
  if (code != cu::kSuccess) return Checked(device, "cuEventCreate", code);
  *event = new TwDeviceEvent{made};
  return TW_DEVICE_OK;
}
void EventDestroy(TwDevice* device, TwDeviceEvent* event) {
  if (event == nullptr) return;
  const Current current(device);
  Api().cuEventDestroy(event->event);
  delete event;
}
TwDeviceResult EventRecord(TwDevice* device, TwDeviceEvent* event) {
  const Current current(device);
  event->recorded = true;
  return Checked(device, "cuEventRecord", Api().cuEventRecord(event->event, device->stream));
}
TwDeviceResult EventElapsed(TwDevice* device, TwDeviceEvent* from, TwDeviceEvent* to, int64_t* ns) {
  if (!from->recorded || !to->recorded)
    return Failed(device, TW_DEVICE_INVALID, "event", "expected recorded events, found a new one");
  const Current current(device);
  float ms = 0;
  int code = Api().cuEventSynchronize(from->event);
  if (code == cu::kSuccess) code = Api().cuEventSynchronize(to->event);
  if (code == cu::kSuccess) code = Api().cuEventElapsedTime(&ms, from->event, to->event);
  if (code != cu::kSuccess) return Checked(device, "cuEventElapsedTime", code);
  *ns = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
  return TW_DEVICE_OK;
}

constexpr TwDeviceSelfTest kSelfTest{"ptx", cu::kSelfTestText, sizeof(cu::kSelfTestText) - 1,
                                     "self_test", 64};

constexpr TwDevicePlugin kTable = TW_DEVICE_PLUGIN_TABLE_WITH_GRAPHS("cuda", &kSelfTest);

}  // namespace

extern "C" __attribute__((visibility("default"))) const TwDevicePlugin* tw_device_plugin(
    uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? &kTable : nullptr;
}
