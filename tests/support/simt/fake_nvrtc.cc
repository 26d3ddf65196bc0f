// Stands in for libnvrtc.so.13: its cubins are code objects of fake_cubin.h, which only the driver
// of fake_cuda_driver.cc runs. It accepts any text; that driver compiles it. The environment
// variable FAKE_NVRTC_NEWEST=80 makes it too old for what comes after sm_80.
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "deploy/support/strings.h"
#include "tests/support/simt/fake_cubin.h"
#include "tests/support/simt/simt_compile.h"

namespace tilewright::simt {
namespace {

constexpr int kInvalidOption = 5;

struct Program {
  std::string text, log, cubin;
};

int Copy(const std::string& from, char* to) {
  std::memcpy(to, from.data(), from.size());
  return 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int

EXPORT nvrtcVersion(int* major, int* minor) {
  *major = 0;
  *minor = 1;
  return 0;
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int) {
  return "NVRTC_ERROR";
}
EXPORT nvrtcCreateProgram(Program** program, const char* text, const char*, int, const char* const*,
                          const char* const*) {
  *program = new Program{text, "", ""};
  return 0;
}
EXPORT nvrtcDestroyProgram(Program** program) {
  delete *program;
  return 0;
}
EXPORT nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  uint32_t arch = 0;
  for (int i = 0; i < count; ++i) {
    constexpr std::string_view kArch = "-arch=sm_";
    const std::string option = options[i];
    if (option.starts_with(kArch))
      arch = static_cast<uint32_t>(*support::ParseInt64(option.substr(kArch.size(), 2)));
  }
  const char* newest = std::getenv("FAKE_NVRTC_NEWEST");
  if (newest != nullptr && arch > *support::ParseInt64(newest)) return kInvalidOption;
  const char* spills = std::getenv("FAKE_NVRTC_SPILLS");
  for (const std::string& kernel : KernelNames(program->text)) {
    program->log += support::StrCat(
        "ptxas info    : Compiling entry function '", kernel, "' for 'sm_", arch,
        "'\n    0 bytes stack frame, ", spills == nullptr ? "0" : spills,
        " bytes spill stores, 0 bytes spill loads\nptxas info    : Used 1 registers\n");
  }
  program->cubin = FakeCubin(program->text, arch);
  return 0;
}
EXPORT nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
EXPORT nvrtcGetProgramLog(Program* program, char* log) {
  log[program->log.size()] = '\0';
  return Copy(program->log, log);
}
EXPORT nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  *bytes = program->cubin.size();
  return 0;
}
EXPORT nvrtcGetCUBIN(Program* program, char* cubin) { return Copy(program->cubin, cubin); }

}  // namespace tilewright::simt
