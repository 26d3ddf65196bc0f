// Stands in for libcuda.so.1: one device, an emulated GPU (simt.h) with the limits of sm_90. It
// runs code objects of fake_cubin.h, and PTX that begins with its CUDA C text in a comment. A
// fault of a kernel becomes the driver's error for it; its text goes to standard error. As with the
// vendor's driver, such an error stays: every later call has it, until the context ends.
//
// The environment variable FAKE_CUDA_FAIL="FUNCTION:CODE:N" makes the call N+1 of a function fail,
// and FAKE_CUDA_DEVICES=0 takes the device away.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/runtime/cuda_abi.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/simt/fake_cubin.h"
#include "tests/support/simt/simt_compile.h"

namespace tilewright::simt {
namespace {

using cuda::Handle;
using cuda::Pointer;

constexpr int kInvalidContext = 201, kCaptureUnsupported = 900, kArch = 90;
constexpr size_t kMemoryBytes = size_t{4} << 30;

struct Function {
  Kernel kernel;
  size_t arguments = 0;
  int most_dynamic = 48 << 10;  // bytes of shared memory that a launch may give
};
struct Global {
  Pointer address = 0;  // 0: nobody reads it
  size_t bytes = 0;
};
struct Module {
  std::map<std::string, Function> functions;
  std::map<std::string, Global> globals;
};
struct Event {
  int64_t ns = 0;
};
// A graph and what is made of it are the same here: launches.
struct Graph {
  std::vector<LaunchRequest> launches;
};
struct Stream {
  Graph* captures = nullptr;  // gets what is launched; null: the device runs it
};

struct Driver {
  Emulator emulator{{.group_threads = 1024, .shared_bytes = 48 << 10}};
  std::map<Pointer, size_t> allocations;
  support::SystemClock clock;
  int contexts = 0;  // on the stack of the thread
  int users = 0;     // of the primary context, which ends with the last one
  int sticky = cuda::kSuccess;
  std::string fail_function;
  int64_t fail_code = 0, fail_after = 0;
  int devices = 1;
};

Driver& TheDriver() {
  static Driver* const driver = [] {
    auto* made = new Driver;
    if (const char* fail = std::getenv("FAKE_CUDA_FAIL")) {
      const std::vector<std::string> parts = support::Split(fail, ':');
      made->fail_function = parts.at(0);
      made->fail_code = *support::ParseInt64(parts.at(1));
      made->fail_after = *support::ParseInt64(parts.at(2));
    }
    if (const char* devices = std::getenv("FAKE_CUDA_DEVICES"))
      made->devices = static_cast<int>(*support::ParseInt64(devices));
    return made;
  }();
  return *driver;
}

// What every call begins with: the error that it has before it does anything.
int Enter(const char* function, bool needs_context = true) {
  Driver& d = TheDriver();
  if (d.sticky != cuda::kSuccess) return d.sticky;
  if (needs_context && d.contexts == 0) return kInvalidContext;
  if (d.fail_function != function || d.fail_after-- > 0) return cuda::kSuccess;
  d.fail_function.clear();
  return static_cast<int>(d.fail_code);
}
#define ENTER(...) \
  if (const int code = Enter(__VA_ARGS__); code != cuda::kSuccess) return code

// The allocation that an address is in, from there at least `bytes`.
bool InMemory(Pointer address, size_t bytes) {
  const auto& all = TheDriver().allocations;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return false;
  --next;
  return address - next->first <= next->second && bytes <= next->second - (address - next->first);
}
void* Host(Pointer address) { return reinterpret_cast<void*>(address); }

int ErrorOf(const absl::Status& fault) {
  const std::string slug = support::Slug(fault);
  if (slug == "simt.out_of_bounds") return cuda::kIllegalAddress;
  if (slug == "simt.misaligned") return cuda::kMisalignedAddress;
  if (slug == "simt.launch.limits") return cuda::kLaunchOutOfResources;
  return cuda::kLaunchFailed;  // what a GPU would not notice, too
}

int RunLaunch(const LaunchRequest& request) {
  const absl::Status status = TheDriver().emulator.Launch(request);
  if (status.ok()) return cuda::kSuccess;
  std::cerr << "[fake cuda] " << support::StatusText(status) << "\n";
  const int code = ErrorOf(status);
  if (code == cuda::kLaunchOutOfResources) return code;
  TheDriver().sticky = code;  // whoever waits next gets it
  return cuda::kSuccess;
}

// Of the kernel's declaration: one more than its commas.
size_t ArgumentsOf(const std::string& text, const std::string& kernel) {
  const size_t begin = text.find(" " + kernel + "("), end = text.find(')', begin);
  size_t count = 1;
  for (size_t at = begin; at < end; ++at) count += text[at] == ',';
  return text.substr(begin, end - begin).ends_with("(") ? 0 : count;
}

// Memory of the device with the numbers of a kernel's maps. It stays.
Global MapsGlobal(const Function& function) {
  const auto& maps = function.kernel.maps;
  const size_t bytes = maps.size() * sizeof(maps[0]);
  void* memory = TheDriver().emulator.memory().Allocate(bytes, 8, "tensor maps");
  TW_CHECK(memory != nullptr);
  std::memcpy(memory, maps.data(), bytes);
  const auto address = reinterpret_cast<Pointer>(memory);
  TheDriver().allocations[address] = bytes;
  return {address, bytes};
}

int LoadText(const std::string& text, Handle* module) {
  Text source{Language::kCuda, text, KernelNames(text)};
  auto kernels = Compile({source});
  if (!kernels.ok()) {
    std::cerr << "[fake cuda] " << support::StatusText(kernels.status()) << "\n";
    return cuda::kInvalidImage;
  }
  auto made = std::make_unique<Module>();
  for (size_t i = 0; i < source.kernels.size(); ++i) {
    made->functions[source.kernels[i]] = {.kernel = (*kernels)[0][i],
                                          .arguments = ArgumentsOf(text, source.kernels[i])};
  }
  static const std::regex kGlobal(R"(__device__ tw_u8 (\w+)\[(\d+)\];)");
  for (std::sregex_iterator at(text.begin(), text.end(), kGlobal), end; at != end; ++at)
    made->globals[(*at)[1]] = {0, static_cast<size_t>(std::stoull((*at)[2]))};
  for (const auto& [name, function] : made->functions) {
    if (!function.kernel.maps.empty()) made->globals[name + "_tensor_maps"] = MapsGlobal(function);
  }
  *module = made.release();
  return cuda::kSuccess;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int

EXPORT cuInit(unsigned) { return cuda::kSuccess; }
EXPORT cuDriverGetVersion(int* version) {
  *version = 13000;
  return cuda::kSuccess;
}
EXPORT cuGetErrorName(int code, const char** name) {
  *name = code == cuda::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
  return cuda::kSuccess;
}
EXPORT cuDeviceGetCount(int* count) {
  *count = TheDriver().devices;
  return cuda::kSuccess;
}
EXPORT cuDeviceGet(int* device, int index) {
  *device = index;
  return cuda::kSuccess;
}
EXPORT cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "Emulated GPU", static_cast<size_t>(bytes));
  return cuda::kSuccess;
}
EXPORT cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kMemoryBytes;
  return cuda::kSuccess;
}
EXPORT cuDeviceGetAttribute(int* value, int attribute, int) {
  static const std::map<int, int> kValues = {
      {cuda::kMaxThreadsPerBlock, 1024}, {cuda::kMaxBlockX, 1024},
      {cuda::kMaxBlockX + 1, 1024},      {cuda::kMaxBlockX + 2, 64},
      {cuda::kMaxGridX, 0x7fffffff},     {cuda::kMaxGridX + 1, 65535},
      {cuda::kMaxGridX + 2, 65535},      {cuda::kMaxSharedPerBlock, 48 << 10},
      {cuda::kClockKhz, 1'000'000},      {cuda::kMultiprocessors, 1},
      {cuda::kMajor, kArch / 10},        {cuda::kMinor, kArch % 10}};
  const auto found = kValues.find(attribute);
  *value = found == kValues.end() ? 0 : found->second;
  return cuda::kSuccess;
}
EXPORT cuDevicePrimaryCtxRetain(Handle* context, int) {
  ENTER("cuDevicePrimaryCtxRetain", false);
  *context = &TheDriver();
  ++TheDriver().users;
  return cuda::kSuccess;
}
EXPORT cuDevicePrimaryCtxRelease_v2(int) {
  Driver& d = TheDriver();
  if (d.users == 0) return kInvalidContext;
  if (--d.users > 0) return cuda::kSuccess;
  for (const auto& [address, bytes] : d.allocations) d.emulator.memory().Free(Host(address));
  d.allocations.clear();
  d.sticky = cuda::kSuccess;
  return cuda::kSuccess;
}
EXPORT cuCtxPushCurrent_v2(Handle context) {
  if (context != &TheDriver()) return kInvalidContext;
  ++TheDriver().contexts;
  return cuda::kSuccess;
}
EXPORT cuCtxPopCurrent_v2(Handle* context) {
  if (TheDriver().contexts == 0) return kInvalidContext;
  --TheDriver().contexts;
  *context = &TheDriver();
  return cuda::kSuccess;
}
EXPORT cuStreamCreate(Handle* stream, unsigned) {
  ENTER("cuStreamCreate");
  *stream = new Stream;
  return cuda::kSuccess;
}
EXPORT cuStreamDestroy_v2(Handle stream) {
  delete static_cast<Stream*>(stream);
  return cuda::kSuccess;
}
EXPORT cuStreamSynchronize(Handle stream) {
  ENTER("cuStreamSynchronize");
  return static_cast<Stream*>(stream)->captures == nullptr ? cuda::kSuccess : kCaptureUnsupported;
}
EXPORT cuMemAlloc_v2(Pointer* address, size_t bytes) {
  ENTER("cuMemAlloc");
  // Numbers of 32 bits: what one allocation holds, kernels of the product write in such steps.
  void* memory = TheDriver().emulator.memory().Allocate(bytes, 4, "device memory");
  if (memory == nullptr) return cuda::kOutOfMemory;
  *address = reinterpret_cast<Pointer>(memory);
  TheDriver().allocations[*address] = bytes;
  return cuda::kSuccess;
}
EXPORT cuMemFree_v2(Pointer address) {
  if (TheDriver().allocations.erase(address) == 0) return cuda::kInvalidValue;
  TheDriver().emulator.memory().Free(Host(address));
  return cuda::kSuccess;
}
EXPORT cuMemcpyHtoDAsync_v2(Pointer target, const void* source, size_t bytes, Handle) {
  ENTER("cuMemcpyHtoDAsync");
  if (!InMemory(target, bytes)) return cuda::kInvalidValue;
  std::memcpy(Host(target), source, bytes);
  TheDriver().emulator.memory().MarkWritten(Host(target), bytes);
  return cuda::kSuccess;
}
EXPORT cuMemcpyDtoHAsync_v2(void* target, Pointer source, size_t bytes, Handle) {
  ENTER("cuMemcpyDtoHAsync");
  if (!InMemory(source, bytes)) return cuda::kInvalidValue;
  std::memcpy(target, Host(source), bytes);
  return cuda::kSuccess;
}
EXPORT cuMemcpyDtoDAsync_v2(Pointer target, Pointer source, size_t bytes, Handle) {
  ENTER("cuMemcpyDtoDAsync");
  if (!InMemory(target, bytes) || !InMemory(source, bytes)) return cuda::kInvalidValue;
  std::memcpy(Host(target), Host(source), bytes);
  TheDriver().emulator.memory().MarkWritten(Host(target), bytes);
  return cuda::kSuccess;
}
EXPORT cuModuleLoadData(Handle* module, const void* image) {
  ENTER("cuModuleLoadData");
  const auto* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes,
                  "\x7f"
                  "ELF",
                  4) == 0) {
    const std::optional<FakeCode> code = ReadFakeCubin(bytes);
    if (!code.has_value() || code->arch != kArch) return cuda::kNoBinary;
    return LoadText(code->text, module);
  }
  constexpr std::string_view kBegin = "/*CUDA\n";
  const std::string_view ptx = bytes;
  if (!ptx.starts_with(kBegin) || ptx.find(".visible .entry") == std::string_view::npos)
    return cuda::kInvalidPtx;
  return LoadText(std::string(ptx.substr(kBegin.size(), ptx.find("*/") - kBegin.size())), module);
}
EXPORT cuModuleUnload(Handle module) {
  delete static_cast<Module*>(module);
  return cuda::kSuccess;
}
EXPORT cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  ENTER("cuModuleGetFunction");
  auto& functions = static_cast<Module*>(module)->functions;
  const auto found = functions.find(name);
  if (found == functions.end()) return cuda::kNotFound;
  *function = &found->second;
  return cuda::kSuccess;
}
EXPORT cuFuncGetAttribute(int* value, int, Handle) {
  ENTER("cuFuncGetAttribute");
  *value = 1024;
  return cuda::kSuccess;
}
EXPORT cuModuleGetGlobal_v2(Pointer* address, size_t* bytes, Handle module, const char* name) {
  const auto& globals = static_cast<Module*>(module)->globals;
  const auto found = globals.find(name);
  if (found == globals.end()) return cuda::kNotFound;
  *address = found->second.address;
  *bytes = found->second.bytes;
  return cuda::kSuccess;
}
EXPORT cuFuncSetAttribute(Handle function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  constexpr int kMost = 227 << 10;
  if (attribute != cuda::kFunctionDynamicShared || value > kMost) return cuda::kInvalidValue;
  static_cast<Function*>(function)->most_dynamic = value;
  return cuda::kSuccess;
}
#ifndef FAKE_CUDA_NO_GRAPHS
// The emulator's map (simt_tensor_map.h) in place of the vendor's.
EXPORT cuTensorMapEncodeTiled(cuda::TensorMap* map, int type, uint32_t rank, void* base,
                              const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                              const uint32_t* steps, int interleave, int swizzle, int, int fill) {
  const auto is_multiple = [](const void* p, uintptr_t of) {
    return reinterpret_cast<uintptr_t>(p) % of == 0;
  };
  const bool known = type == cuda::kUint16 && rank == 2 && interleave == 0 && fill == 0 &&
                     swizzle == cuda::kSwizzle128 && steps[0] == 1 && steps[1] == 1;
  const bool placed = is_multiple(map, 64) && is_multiple(base, 16) && strides[0] % 16 == 0;
  const bool sized = box[0] >= 1 && box[0] * 2 <= 128 && box[1] >= 1 && box[1] <= 256 &&
                     sizes[0] >= 1 && sizes[1] >= 1 && strides[0] >= sizes[0] * 2;
  if (!known || !placed || !sized) return cuda::kInvalidValue;
  const SimtTensorMap made = {
      static_cast<const char*>(base), sizes[0], sizes[1], strides[0], box[0], box[1], 2};
  static_assert(sizeof(made) <= sizeof(*map));
  std::memcpy(map, &made, sizeof(made));
  return cuda::kSuccess;
}
#endif
EXPORT cuFuncGetParamInfo(Handle function, size_t index, size_t* offset, size_t* size) {
  if (index >= static_cast<Function*>(function)->arguments) return cuda::kInvalidValue;
  *offset = 8 * index;
  *size = 8;
  return cuda::kSuccess;
}
EXPORT cuLaunchKernel(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned group_x, unsigned group_y, unsigned group_z, unsigned shared,
                      Handle stream, void** arguments, void**) {
  ENTER("cuLaunchKernel");
  const auto& called = *static_cast<Function*>(function);
  if (static_cast<int>(shared) > called.most_dynamic) return cuda::kInvalidValue;
  LaunchRequest request{.kernel = called.kernel,
                        .groups = {grid_x, grid_y, grid_z},
                        .threads = {group_x, group_y, group_z},
                        .dynamic_shared_bytes = shared};
  for (size_t i = 0; i < called.arguments; ++i) {
    if (i + called.kernel.maps.size() < called.arguments) {
      request.arguments.push_back(*static_cast<uint64_t*>(arguments[i]));
    } else {
      std::memcpy(&request.maps.emplace_back(), arguments[i], sizeof(SimtTensorMap));
    }
  }
  Graph* const captures = static_cast<Stream*>(stream)->captures;
  if (captures == nullptr) return RunLaunch(request);
  captures->launches.push_back(request);
  return cuda::kSuccess;
}

// A driver of before graphs (FAKE_CUDA_NO_GRAPHS) has none of these, and no tensor maps.
#ifndef FAKE_CUDA_NO_GRAPHS
EXPORT cuStreamBeginCapture_v2(Handle stream, int) {
  ENTER("cuStreamBeginCapture");
  auto& captures = static_cast<Stream*>(stream)->captures;
  if (captures != nullptr) return cuda::kInvalidValue;
  captures = new Graph;
  return cuda::kSuccess;
}
EXPORT cuStreamEndCapture(Handle stream, Handle* graph) {
  std::unique_ptr<Graph> captured(static_cast<Stream*>(stream)->captures);
  static_cast<Stream*>(stream)->captures = nullptr;  // also where it fails
  if (captured == nullptr) return cuda::kInvalidValue;
  ENTER("cuStreamEndCapture");
  *graph = captured.release();
  return cuda::kSuccess;
}
EXPORT cuGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  ENTER("cuGraphInstantiate");
  *executable = new Graph(*static_cast<Graph*>(graph));
  return cuda::kSuccess;
}
EXPORT cuGraphLaunch(Handle executable, Handle) {
  ENTER("cuGraphLaunch");
  for (const LaunchRequest& request : static_cast<Graph*>(executable)->launches) {
    if (const int code = RunLaunch(request); code != cuda::kSuccess) return code;
  }
  return cuda::kSuccess;
}
EXPORT cuGraphDestroy(Handle graph) {
  delete static_cast<Graph*>(graph);
  return cuda::kSuccess;
}
EXPORT cuGraphExecDestroy(Handle executable) {
  delete static_cast<Graph*>(executable);
  return cuda::kSuccess;
}
#endif
EXPORT cuEventCreate(Handle* event, unsigned) {
  ENTER("cuEventCreate");
  *event = new Event;
  return cuda::kSuccess;
}
EXPORT cuEventDestroy_v2(Handle event) {
  delete static_cast<Event*>(event);
  return cuda::kSuccess;
}
EXPORT cuEventRecord(Handle event, Handle) {
  ENTER("cuEventRecord");
  static_cast<Event*>(event)->ns = TheDriver().clock.NowNs();
  return cuda::kSuccess;
}
EXPORT cuEventSynchronize(Handle) {
  ENTER("cuEventSynchronize");
  return cuda::kSuccess;
}
EXPORT cuEventElapsedTime(float* ms, Handle from, Handle to) {
  ENTER("cuEventElapsedTime");
  *ms = static_cast<float>(static_cast<Event*>(to)->ns - static_cast<Event*>(from)->ns) * 1e-6f;
  return cuda::kSuccess;
}

}  // namespace tilewright::simt
