// Device plug-in for OpenCL devices (target kind `opencl`). A shared object of its own that finds
// libOpenCL when it is loaded; without one it has no devices. Code objects are OpenCL C text
// (format "opencl-c"); kernels get their sizes as 64-bit integers, then their buffers. Links
// nothing of ours.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/opencl_abi.h"
#include "deploy/runtime/phone_gpu.h"
#include "deploy/runtime/plugin_parts.h"

namespace cl = tilewright::opencl;
namespace plugin = tilewright::plugin;
using plugin::InRange;

struct TwDevice {
  cl::Handle device = nullptr, context = nullptr, queue = nullptr;
  std::string error, name, fingerprint;
  TwDeviceInfo info = {};
  bool lost = false;
};
struct TwDeviceMemory {
  cl::Handle handle;
  int64_t bytes;
};
struct TwDeviceKernel {
  cl::Handle handle;
  std::string name;
};
struct TwDeviceCode {
  cl::Handle program;
  std::vector<std::unique_ptr<TwDeviceKernel>> kernels;
  std::string binary;  // once somebody asked
};
struct TwDeviceEvent {
  cl::Handle marker = nullptr;
};

namespace {

constexpr int64_t kAlignment = 128;  // of allocations: every device aligns them at least so
constexpr cl::Uint kMaxPlatforms = 16, kMaxDevices = 64;

cl::Library LoadLibrary() {
  cl::Library library;
  void* handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return library;
  library.ok = true;
#define X(name, result, args)                                                    \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, #name)); \
  library.ok = library.ok && library.name != nullptr;
  TW_OPENCL_FUNCTIONS(X)
#undef X
  return library;
}

const cl::Library& Api() {
  static const cl::Library library = LoadLibrary();  // a driver cannot be unloaded safely
  return library;
}

TwDeviceResult ResultOf(cl::Int code) {
  switch (code) {
    case cl::kSuccess:
      return TW_DEVICE_OK;
    case cl::kMemObjectAllocationFailure:
    case cl::kOutOfResources:
    case cl::kOutOfHostMemory:
      return TW_DEVICE_OUT_OF_MEMORY;
    case cl::kInvalidWorkGroupSize:
      return TW_DEVICE_UNSUPPORTED;
    case cl::kDeviceNotAvailable:
      return TW_DEVICE_LOST;
    default:
      return TW_DEVICE_FAILED;
  }
}

TwDeviceResult Failed(TwDevice* device, TwDeviceResult result, const std::string& reason,
                      const std::string& detail) {
  device->error = "device.opencl." + reason + ": " + detail;
  device->lost = device->lost || result == TW_DEVICE_LOST;
  return result;
}

// The text of a call that failed with an OpenCL error code.
TwDeviceResult Checked(TwDevice* device, const char* call, cl::Int code) {
  if (code == cl::kSuccess) return TW_DEVICE_OK;
  return Failed(
      device, ResultOf(code), "call",
      "expected " + std::string(call) + " to succeed, found error " + std::to_string(code));
}

std::vector<cl::Handle> AllDevices() {
  std::vector<cl::Handle> all;
  if (!Api().ok) return all;
  cl::Handle platforms[kMaxPlatforms];
  cl::Uint num_platforms = 0;
  if (Api().clGetPlatformIDs(kMaxPlatforms, platforms, &num_platforms) != cl::kSuccess) return all;
  // A platform without devices is no error.
  for (cl::Uint p = 0; p < std::min(num_platforms, kMaxPlatforms); ++p) {
    cl::Handle devices[kMaxDevices];
    cl::Uint num_devices = 0;
    cl::Int code =
        Api().clGetDeviceIDs(platforms[p], cl::kAllDevices, kMaxDevices, devices, &num_devices);
    if (code != cl::kSuccess) continue;
    all.insert(all.end(), devices, devices + std::min(num_devices, kMaxDevices));
  }
  return all;
}

std::string TextOf(cl::Handle device, cl::Uint what) {
  char text[1024] = {};
  size_t bytes = 0;
  if (Api().clGetDeviceInfo(device, what, sizeof(text) - 1, text, &bytes) != cl::kSuccess)
    return "";
  return text;
}

// The driver compiles the code: its maker's name and its version, as "pocl-3.1".
std::string CompilerOf(cl::Handle device) {
  char maker[256] = {};
  cl::Handle platform = nullptr;
  Api().clGetDeviceInfo(device, cl::kDevicePlatform, sizeof(platform), &platform, nullptr);
  Api().clGetPlatformInfo(platform, cl::kPlatformName, sizeof(maker) - 1, maker, nullptr);
  std::string name = std::string(maker) + "-" + TextOf(device, cl::kDriverVersion);
  for (char& c : name) {
    if (c == ' ' || c == '\n') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

constexpr char kSubGroups[] = "cl_khr_subgroups";

// Extensions that code may need, with commas.
std::string FeaturesOf(cl::Handle device) {
  size_t bytes = 0;
  Api().clGetDeviceInfo(device, cl::kDeviceExtensions, 0, nullptr, &bytes);
  std::string all(bytes, '\0'), features;
  Api().clGetDeviceInfo(device, cl::kDeviceExtensions, all.size(), all.data(), nullptr);
  for (char& c : all) c = c == '\0' ? ' ' : c;
  for (const char* name : {"cl_khr_fp16", "cl_khr_fp64", kSubGroups}) {
    if ((" " + all + " ").find(" " + std::string(name) + " ") == std::string::npos) continue;
    features += (features.empty() ? "" : ",") + std::string(name);
  }
  return features;
}

template <typename T>
int64_t NumberOf(cl::Handle device, cl::Uint what) {
  T value = {};
  if (Api().clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) != cl::kSuccess) return 0;
  return static_cast<int64_t>(value);
}

TwDeviceResult Count(int32_t* devices) {
  *devices = static_cast<int32_t>(AllDevices().size());
  return TW_DEVICE_OK;
}

void Inspect(TwDevice* d) {
  d->name = TextOf(d->device, cl::kDeviceName);
  const std::string version = TextOf(d->device, cl::kDeviceVersion);
  const std::string machine(plugin::PhoneGpuOf(d->name + " " + version));
  d->fingerprint =
      "compute_units=" + std::to_string(NumberOf<cl::Uint>(d->device, cl::kDeviceMaxComputeUnits)) +
      (machine.empty() ? "" : "\nconfig_accepts=" + machine) +
      "\ndriver=" + TextOf(d->device, cl::kDriverVersion) +
      "\ndriver_compiler=" + CompilerOf(d->device) + "\nfeatures=" + FeaturesOf(d->device) +
      "\nkind=opencl\nname=" + d->name + "\nversion=" + version + "\n";
  TwDeviceInfo& info = d->info;
  info.name = d->name.c_str();
  info.fingerprint = d->fingerprint.c_str();
  info.code_formats = "opencl-c";
  info.memory_bytes = NumberOf<uint64_t>(d->device, cl::kDeviceGlobalMemSize);
  info.shared_bytes = NumberOf<uint64_t>(d->device, cl::kDeviceLocalMemSize);
  info.max_group_threads = NumberOf<size_t>(d->device, cl::kDeviceMaxWorkGroupSize);
  info.alignment = std::max(kAlignment, NumberOf<cl::Uint>(d->device, cl::kDeviceAddressAlign) / 8);
  info.timer_ns = NumberOf<size_t>(d->device, cl::kDeviceTimerResolution);
  info.device_timer = 1;
}

void Close(TwDevice* d) {
  if (d->queue != nullptr) Api().clReleaseCommandQueue(d->queue);
  if (d->context != nullptr) Api().clReleaseContext(d->context);
  delete d;
}

TwDeviceResult Open(int32_t index, TwDevice** device, char* error, size_t error_bytes) {
  std::vector<cl::Handle> all = AllDevices();
  const auto fail = [&](TwDeviceResult result, const std::string& text) {
    return plugin::NotOpened(error, error_bytes, result, text);
  };
  if (index < 0 || static_cast<size_t>(index) >= all.size()) {
    return fail(TW_DEVICE_NOT_FOUND, "device.opencl.index: expected one of " +
                                         std::to_string(all.size()) + " devices, found " +
                                         std::to_string(index));
  }
  auto* d = new TwDevice;
  d->device = all[static_cast<size_t>(index)];
  cl::Int code = 0;
  d->context = Api().clCreateContext(nullptr, 1, &d->device, nullptr, nullptr, &code);
  if (code == cl::kSuccess)
    d->queue = Api().clCreateCommandQueue(d->context, d->device, cl::kProfiling, &code);
  if (code != cl::kSuccess) {
    Close(d);
    return fail(ResultOf(code), "device.opencl.open: expected a context and a queue, found error " +
                                    std::to_string(code));
  }
  Inspect(d);
  *device = d;
  return TW_DEVICE_OK;
}

const char* LastError(TwDevice* device) { return device->error.c_str(); }

TwDeviceResult Describe(TwDevice* device, TwDeviceInfo* info) {
  if (plugin::GiveInfo(device->info, info)) return TW_DEVICE_OK;
  return Failed(device, TW_DEVICE_INVALID, "info", "expected struct_bytes to be set");
}

TwDeviceResult Alloc(TwDevice* device, int64_t bytes, TwDeviceMemory** memory) {
  if (bytes < 1) return Failed(device, TW_DEVICE_INVALID, "bytes", "expected at least 1 byte");
  // Some drivers accept any size and fail at the first use.
  int64_t most = NumberOf<uint64_t>(device->device, cl::kDeviceMaxAllocSize);
  if (most > 0 && bytes > most) {
    return Failed(
        device, TW_DEVICE_OUT_OF_MEMORY, "memory",
        "expected at most " + std::to_string(most) + " bytes, found " + std::to_string(bytes));
  }
  cl::Int code = 0;
  cl::Handle handle = Api().clCreateBuffer(device->context, cl::kReadWrite,
                                           static_cast<size_t>(bytes), nullptr, &code);
  if (code != cl::kSuccess) return Checked(device, "clCreateBuffer", code);
  *memory = new TwDeviceMemory{handle, bytes};
  return TW_DEVICE_OK;
}

void Free(TwDevice*, TwDeviceMemory* memory) {
  if (memory == nullptr) return;
  Api().clReleaseMemObject(memory->handle);
  delete memory;
}

TwDeviceResult OutOfRange(TwDevice* device) {
  return Failed(device, TW_DEVICE_INVALID, "range",
                "expected a range within the allocation, found one beyond it");
}

TwDeviceResult Write(TwDevice* device, TwDeviceSlice target, const void* source, int64_t bytes) {
  if (!InRange(target, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  return Checked(device, "clEnqueueWriteBuffer",
                 Api().clEnqueueWriteBuffer(
                     device->queue, target.memory->handle, 1, static_cast<size_t>(target.offset),
                     static_cast<size_t>(bytes), source, 0, nullptr, nullptr));
}

TwDeviceResult Read(TwDevice* device, TwDeviceSlice source, void* target, int64_t bytes) {
  if (!InRange(source, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  return Checked(device, "clEnqueueReadBuffer",
                 Api().clEnqueueReadBuffer(
                     device->queue, source.memory->handle, 1, static_cast<size_t>(source.offset),
                     static_cast<size_t>(bytes), target, 0, nullptr, nullptr));
}

TwDeviceResult Copy(TwDevice* device, TwDeviceSlice target, TwDeviceSlice source, int64_t bytes) {
  if (!InRange(target, bytes) || !InRange(source, bytes)) return OutOfRange(device);
  if (bytes == 0) return TW_DEVICE_OK;
  return Checked(device, "clEnqueueCopyBuffer",
                 Api().clEnqueueCopyBuffer(
                     device->queue, source.memory->handle, target.memory->handle,
                     static_cast<size_t>(source.offset), static_cast<size_t>(target.offset),
                     static_cast<size_t>(bytes), 0, nullptr, nullptr));
}

TwDeviceResult Map(TwDevice* device, TwDeviceMemory*, void**) {
  return Failed(device, TW_DEVICE_UNSUPPORTED, "map", "expected read and write, found map");
}

// The driver's options, which its binaries depend on.
#define TW_BUILD_OPTIONS "-cl-std=CL1.2"
constexpr char kBinaryFormat[] = "binary " TW_BUILD_OPTIONS;

// Sub-groups are of later languages than the rest. A device that has them has its own version's.
const char* BuildOptions(TwDevice* device, std::string_view text) {
  if (text.find(kSubGroups) == std::string_view::npos) return TW_BUILD_OPTIONS;
  return TextOf(device->device, cl::kDeviceVersion).starts_with("OpenCL 2.") ? "-cl-std=CL2.0"
                                                                             : "-cl-std=CL3.0";
}

cl::Handle ProgramOf(TwDevice* device, bool binary, const void* image, size_t bytes,
                     cl::Int* result) {
  if (!binary) {
    const char* text = static_cast<const char*>(image);
    return Api().clCreateProgramWithSource(device->context, 1, &text, &bytes, result);
  }
  const auto* code = static_cast<const unsigned char*>(image);
  cl::Int of_device = cl::kSuccess;
  cl::Handle program = Api().clCreateProgramWithBinary(device->context, 1, &device->device, &bytes,
                                                       &code, &of_device, result);
  if (*result == cl::kSuccess && of_device != cl::kSuccess) {
    Api().clReleaseProgram(program);
    *result = of_device;
  }
  return program;
}

TwDeviceResult Load(TwDevice* device, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  const std::string form = format;
  if (form != "opencl-c" && form != kBinaryFormat) {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "format",
                  "expected opencl-c, found " + form.substr(0, 40));
  }
  cl::Int result = 0;
  const bool binary = form == kBinaryFormat;
  cl::Handle program = ProgramOf(device, binary, image, bytes, &result);
  if (result != cl::kSuccess) return Checked(device, "clCreateProgram", result);
  const char* options =
      binary ? TW_BUILD_OPTIONS : BuildOptions(device, {static_cast<const char*>(image), bytes});
  result = Api().clBuildProgram(program, 1, &device->device, options, nullptr, nullptr);
  if (result != cl::kSuccess) {
    std::vector<char> log(16384, '\0');
    Api().clGetProgramBuildInfo(program, device->device, cl::kBuildLog, log.size() - 1, log.data(),
                                nullptr);
    Api().clReleaseProgram(program);
    return Failed(
        device, TW_DEVICE_BAD_CODE, "build",
        "expected text that builds, found error " + std::to_string(result) + ":\n" + log.data());
  }
  *code = new TwDeviceCode{program, {}, {}};
  return TW_DEVICE_OK;
}

TwDeviceResult Binary(TwDevice* device, TwDeviceCode* code, const void** bytes, size_t* count) {
  if (code->binary.empty()) {
    size_t size = 0;
    cl::Int result = Api().clGetProgramInfo(code->program, cl::kProgramBinarySizes, sizeof(size),
                                            &size, nullptr);
    std::string binary(size, '\0');
    auto* target = reinterpret_cast<unsigned char*>(binary.data());
    if (result == cl::kSuccess && size > 0) {
      result = Api().clGetProgramInfo(code->program, cl::kProgramBinaries, sizeof(target), &target,
                                      nullptr);
    }
    if (result != cl::kSuccess) return Checked(device, "clGetProgramInfo", result);
    if (size == 0)
      return Failed(device, TW_DEVICE_UNSUPPORTED, "binary", "expected one, found none");
    code->binary = std::move(binary);
  }
  *bytes = code->binary.data();
  *count = code->binary.size();
  return TW_DEVICE_OK;
}

void Unload(TwDevice*, TwDeviceCode* code) {
  if (code == nullptr) return;
  for (const auto& k : code->kernels) Api().clReleaseKernel(k->handle);
  Api().clReleaseProgram(code->program);
  delete code;
}

TwDeviceResult Find(TwDevice* device, TwDeviceCode* code, const char* name,
                    TwDeviceKernel** kernel) {
  cl::Int result = 0;
  cl::Handle handle = Api().clCreateKernel(code->program, name, &result);
  if (result == cl::kInvalidKernelName) {
    return Failed(
        device, TW_DEVICE_NOT_FOUND, "kernel",
        "expected kernel " + std::string(name).substr(0, 60) + " in the code, found none");
  }
  if (result != cl::kSuccess) return Checked(device, "clCreateKernel", result);
  code->kernels.push_back(std::make_unique<TwDeviceKernel>(TwDeviceKernel{handle, name}));
  *kernel = code->kernels.back().get();
  return TW_DEVICE_OK;
}

// Buffers of a launch; a part of an allocation becomes a sub-buffer, released after the launch.
class Arguments {
 public:
  explicit Arguments(TwDevice* device) : device_(device) {}
  ~Arguments() {
    for (cl::Handle h : parts_) Api().clReleaseMemObject(h);
  }

  TwDeviceResult Set(const TwDeviceLaunch& launch) {
    cl::Handle kernel = launch.kernel->handle;
    cl::Uint wanted = 0, index = 0;
    Api().clGetKernelInfo(kernel, cl::kKernelNumArgs, sizeof(wanted), &wanted, nullptr);
    int64_t given = launch.num_sizes + launch.num_buffers + (launch.workspace != nullptr ? 1 : 0);
    if (given != static_cast<int64_t>(wanted)) {
      return Failed(device_, TW_DEVICE_INVALID, "arguments",
                    launch.kernel->name + ": expected " + std::to_string(wanted) +
                        " arguments, found " + std::to_string(given));
    }
    for (int64_t i = 0; i < launch.num_sizes; ++i) {
      cl::Int code = Api().clSetKernelArg(kernel, index++, sizeof(int64_t), &launch.sizes[i]);
      if (code != cl::kSuccess) return Checked(device_, "clSetKernelArg", code);
    }
    for (int64_t i = 0; i < launch.num_buffers; ++i) {
      TwDeviceResult result = SetBuffer(kernel, index++, launch.buffers[i]);
      if (result != TW_DEVICE_OK) return result;
    }
    return launch.workspace == nullptr ? TW_DEVICE_OK : SetBuffer(kernel, index, *launch.workspace);
  }

 private:
  TwDeviceResult SetBuffer(cl::Handle kernel, cl::Uint index, const TwDeviceSlice& slice) {
    if (!InRange(slice, 1)) return OutOfRange(device_);
    cl::Handle handle = slice.memory->handle;
    if (slice.offset != 0) {
      const size_t region[2] = {static_cast<size_t>(slice.offset),
                                static_cast<size_t>(slice.memory->bytes - slice.offset)};
      constexpr cl::Uint kRegion = 0x1220;
      cl::Int code = 0;
      handle = Api().clCreateSubBuffer(handle, cl::kReadWrite, kRegion, region, &code);
      if (code != cl::kSuccess) return Checked(device_, "clCreateSubBuffer", code);
      parts_.push_back(handle);
    }
    return Checked(device_, "clSetKernelArg",
                   Api().clSetKernelArg(kernel, index, sizeof(handle), &handle));
  }

  TwDevice* device_;
  std::vector<cl::Handle> parts_;
};

TwDeviceResult Launch(TwDevice* device, const TwDeviceLaunch* launch) {
  size_t global[3], local[3];
  int64_t threads = 1;
  for (int a = 0; a < 3; ++a) {
    if (launch->grid[a] < 1 || launch->group[a] < 1)
      return Failed(device, TW_DEVICE_INVALID, "grid", "expected at least one group and thread");
    threads *= launch->group[a];
    local[a] = static_cast<size_t>(launch->group[a]);
    global[a] = static_cast<size_t>(launch->grid[a]) * local[a];
  }
  if (threads > device->info.max_group_threads) {
    return Failed(device, TW_DEVICE_UNSUPPORTED, "group",
                  "expected at most " + std::to_string(device->info.max_group_threads) +
                      " threads, found " + std::to_string(threads));
  }
  Arguments arguments(device);
  TwDeviceResult result = arguments.Set(*launch);
  if (result != TW_DEVICE_OK) return result;
  return Checked(device, "clEnqueueNDRangeKernel",
                 Api().clEnqueueNDRangeKernel(device->queue, launch->kernel->handle, 3, nullptr,
                                              global, local, 0, nullptr, nullptr));
}

TwDeviceResult Synchronize(TwDevice* device) {
  return Checked(device, "clFinish", Api().clFinish(device->queue));
}

TwDeviceResult EventCreate(TwDevice*, TwDeviceEvent** event) {
  *event = new TwDeviceEvent;
  return TW_DEVICE_OK;
}
void EventDestroy(TwDevice*, TwDeviceEvent* event) {
  if (event == nullptr) return;
  if (event->marker != nullptr) Api().clReleaseEvent(event->marker);
  delete event;
}
TwDeviceResult EventRecord(TwDevice* device, TwDeviceEvent* event) {
  if (event->marker != nullptr) Api().clReleaseEvent(event->marker);
  event->marker = nullptr;
  return Checked(device, "clEnqueueMarkerWithWaitList",
                 Api().clEnqueueMarkerWithWaitList(device->queue, 0, nullptr, &event->marker));
}
TwDeviceResult EventElapsed(TwDevice* device, TwDeviceEvent* from, TwDeviceEvent* to, int64_t* ns) {
  if (from->marker == nullptr || to->marker == nullptr)
    return Failed(device, TW_DEVICE_INVALID, "event", "expected recorded events, found a new one");
  const cl::Handle both[2] = {from->marker, to->marker};
  uint64_t start = 0, end = 0;
  cl::Int code = Api().clWaitForEvents(2, both);
  if (code == cl::kSuccess)
    code =
        Api().clGetEventProfilingInfo(both[0], cl::kProfilingEnd, sizeof(start), &start, nullptr);
  if (code == cl::kSuccess)
    code = Api().clGetEventProfilingInfo(both[1], cl::kProfilingEnd, sizeof(end), &end, nullptr);
  if (code != cl::kSuccess) return Checked(device, "clGetEventProfilingInfo", code);
  *ns = static_cast<int64_t>(end) - static_cast<int64_t>(start);
  return TW_DEVICE_OK;
}

// Dependent integer steps of one group make up most of its time. So it follows the device's clock
// and nothing else. Shared by all groups, they took twice the time whenever a driver woke its
// second thread too late; divisions, 1.4 times whenever another thread came to the same core. A
// xorshift of a number that is not 0 never gives 0, which the compiler does not know.
constexpr char kSelfTestText[] = R"(
__kernel void self_test(long n, __global const float* x, __global float* y) {
  const long i = get_global_id(0);
  float sum = 0;
  for (long j = 0; j < 16; ++j) {
    const long k = i + j < n ? i + j : i + j - n;
    sum += (float)(j + 1) / 8.0f * x[k];
  }
  uint chain = (uint)i + 1;
  const int steps = get_group_id(0) == 0 ? 2048 : 1;
  for (int step = 0; step < steps; ++step) {
    chain ^= chain << 13;
    chain ^= chain >> 17;
    chain ^= chain << 5;
  }
  y[i] = chain == 0 ? 0.0f : sum;
}
)";
constexpr TwDeviceSelfTest kSelfTest{"opencl-c", kSelfTestText, sizeof(kSelfTestText) - 1,
                                     "self_test", 64};

constexpr TwDevicePlugin kTable =
    TW_DEVICE_PLUGIN_TABLE_WITH_BINARIES("opencl", &kSelfTest, kBinaryFormat, Binary);

}  // namespace

extern "C" __attribute__((visibility("default"))) const TwDevicePlugin* tw_device_plugin(
    uint32_t runtime_abi_version) {
  return runtime_abi_version == TW_DEVICE_ABI_VERSION ? &kTable : nullptr;
}
