#include "compiler/targets/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::cuda {
namespace {

using support::StrCat;

// The part of NVRTC's interface that is used here, with the vendor's names and values.
using Program = void*;
#define TW_NVRTC_FUNCTIONS(X)                                                          \
  X(nvrtcVersion, int, (int*, int*))                                                   \
  X(nvrtcGetErrorString, const char*, (int))                                           \
  X(nvrtcCreateProgram, int,                                                           \
    (Program*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(nvrtcDestroyProgram, int, (Program*))                                              \
  X(nvrtcCompileProgram, int, (Program, int, const char* const*))                      \
  X(nvrtcGetProgramLogSize, int, (Program, size_t*))                                   \
  X(nvrtcGetProgramLog, int, (Program, char*))                                         \
  X(nvrtcGetCUBINSize, int, (Program, size_t*))                                        \
  X(nvrtcGetCUBIN, int, (Program, char*))

constexpr int kSuccess = 0, kInvalidOption = 5;

// Newer versions first; the last name is the one of a toolkit that no list of folders names.
constexpr const char* kLibraries[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                      "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};

struct Library {
#define X(name, result, args) result(*name) args = nullptr;
  TW_NVRTC_FUNCTIONS(X)
#undef X
  bool ok = false;
};

bool Resolve(void* handle, Library* library) {
  bool ok = true;
#define X(name, result, args)                                                      \
  library->name = reinterpret_cast<decltype(library->name)>(dlsym(handle, #name)); \
  ok = ok && library->name != nullptr;
  TW_NVRTC_FUNCTIONS(X)
#undef X
  return ok;
}

Library LoadLibrary() {
  Library library;
  for (const char* name : kLibraries) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    library.ok = Resolve(handle, &library);
    if (library.ok) break;
    dlclose(handle);
  }
  return library;
}

const Library& Api() {
  static const Library library = LoadLibrary();
  return library;
}

absl::Status Missing(const std::string& found) {
  return support::FailedPrecondition(
      "codegen.device_compiler.missing",
      StrCat("expected the library libnvrtc.so of the CUDA Toolkit, 11.2 or later, found ", found,
             "; the package cuda-nvrtc has it"));
}

std::string LogOf(Program program) {
  size_t bytes = 0;
  if (Api().nvrtcGetProgramLogSize(program, &bytes) != kSuccess || bytes == 0) return "";
  std::string log(bytes, '\0');
  if (Api().nvrtcGetProgramLog(program, log.data()) != kSuccess) return "";
  log.resize(bytes - 1);  // the end of a C string
  return log;
}

absl::Status Refused(int code, Program program, const std::string& arch) {
  // The only option that versions differ in is the instruction set.
  if (code == kInvalidOption) return Missing(StrCat(NvrtcName(), ", which does not know ", arch));
  return support::Internal(
      "codegen.cuda.compile",
      StrCat("expected text that compiles for ", arch, ", found ", Api().nvrtcGetErrorString(code),
             ":\n", LogOf(program).substr(0, 4000)));
}

// The number that ends before `what` in a line; 0 where there is none.
int64_t NumberBefore(std::string_view line, std::string_view what) {
  const size_t end = line.find(what);
  if (end == std::string_view::npos) return 0;
  const size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
  return support::ParseInt64(std::string(line.substr(begin, end - begin))).value_or(0);
}

}  // namespace

std::vector<codegen::KernelResources> ResourcesOf(std::string_view log) {
  std::vector<codegen::KernelResources> kernels;
  for (const std::string& line : support::Split(std::string(log), '\n')) {
    constexpr std::string_view kEntry = "Compiling entry function '";
    if (const size_t at = line.find(kEntry); at != std::string::npos) {
      const size_t name = at + kEntry.size();
      kernels.push_back({.name = line.substr(name, line.find('\'', name) - name)});
    }
    if (kernels.empty()) continue;
    codegen::KernelResources& kernel = kernels.back();
    if (line.find(" spill stores") != std::string::npos) {
      kernel.stack_bytes = NumberBefore(line, " bytes stack frame");
      kernel.spill_bytes =
          NumberBefore(line, " bytes spill stores") + NumberBefore(line, " bytes spill loads");
    } else if (line.find("Used ") != std::string::npos) {
      kernel.registers = NumberBefore(line, " registers");
      kernel.shared_bytes = NumberBefore(line, " bytes smem");
    }
  }
  std::sort(kernels.begin(), kernels.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return kernels;
}

std::string NvrtcName() {
  int major = 0, minor = 0;
  if (!Api().ok || Api().nvrtcVersion(&major, &minor) != kSuccess) return "nvrtc-none";
  return StrCat("nvrtc-", major, ".", minor);
}

namespace {

// `least_groups`: that a unit shall have room for; empty: as the compiler likes.
absl::StatusOr<codegen::DeviceCode> CompileFor(const std::string& text, const std::string& arch,
                                               const std::string& least_groups) {
  Program created = nullptr;
  const int code =
      Api().nvrtcCreateProgram(&created, text.c_str(), "kernels.cu", 0, nullptr, nullptr);
  if (code != kSuccess) {
    return support::Internal("codegen.cuda.compile",
                             StrCat("expected a program, found ", Api().nvrtcGetErrorString(code)));
  }
  const auto destroy = [](Program* p) { Api().nvrtcDestroyProgram(p); };
  const std::unique_ptr<Program, decltype(destroy)> program(&created, destroy);
  // Floats are contracted where the IR says so, and nowhere else. Helpers have no qualifiers.
  const std::string machine = "-arch=" + arch;
  const std::string room = "-minnctapersm=" + least_groups;
  std::vector<const char*> options = {machine.c_str(),   "-std=c++17", "-fmad=false",
                                      "-default-device", "-Xptxas",    "-v"};
  if (!least_groups.empty()) options.insert(options.end(), {"-Xptxas", room.c_str()});
  const int compiled =
      Api().nvrtcCompileProgram(created, static_cast<int>(options.size()), options.data());
  if (compiled != kSuccess) return Refused(compiled, created, arch);
  codegen::DeviceCode cubin;
  cubin.kernels = ResourcesOf(LogOf(created));
  size_t bytes = 0;
  int got = Api().nvrtcGetCUBINSize(created, &bytes);
  cubin.bytes.resize(bytes);
  if (got == kSuccess) got = Api().nvrtcGetCUBIN(created, cubin.bytes.data());
  if (got != kSuccess || bytes == 0) return Refused(got, created, arch);
  return cubin;
}

bool Spills(const codegen::DeviceCode& code) {
  return std::any_of(code.kernels.begin(), code.kernels.end(),
                     [](const auto& kernel) { return kernel.spill_bytes > 0; });
}

}  // namespace

// The compiler spills a few registers to have room for one group more; asked for less room it does
// not.
absl::StatusOr<codegen::DeviceCode> CompileText(const std::string& text, const std::string& arch) {
  if (!Api().ok) return Missing("none");
  TW_ASSIGN(codegen::DeviceCode code, CompileFor(text, arch, ""));
  for (const char* least_groups : {"16", "12", "10", "8", "6", "4", "2", "1"}) {
    if (!Spills(code)) break;
    auto other = CompileFor(text, arch, least_groups);
    if (other.ok() && !Spills(*other)) code = *std::move(other);
  }
  return code;
}

}  // namespace tilewright::cuda
