#include "device_agent/self_test_module.h"

#include <string_view>

#include "deploy/module/kernel_module.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/strings.h"
#include "device_agent/self_test.h"

// The shared object of self_test_kernel.c. Both labels are global: to the linker for Arm, two local
// ones are the same address.
asm(".pushsection .rodata\n"
    ".globl tw_self_test_code, tw_self_test_code_end\n"
    ".hidden tw_self_test_code, tw_self_test_code_end\n"
    "tw_self_test_code:\n"
    ".incbin \"" TILEWRIGHT_SELF_TEST_CODE
    "\"\n"
    "tw_self_test_code_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" {
extern const char tw_self_test_code[];
extern const char tw_self_test_code_end[];
}

namespace tilewright::device_agent {
namespace {

constexpr int64_t kGroupThreads = 64;

// self_test_kernel.c, one thread per element.
constexpr std::string_view kOpenClText = R"(
__kernel void self_test(long n, __global const float* x, __global float* y) {
  const long i = get_global_id(0);
  float sum = 0;
  for (long j = 0; j < 16; ++j) sum += (float)(j + 1) / 8.0f * x[(i + j) % n];
  y[i] = sum;
}
)";

}  // namespace

absl::StatusOr<std::string> SelfTestModule(std::string_view device_kind) {
  module::KernelModule kernel;
  kernel.name = "self_test";
  kernel.inputs = {{"x", {kSelfTestElements}}};
  kernel.outputs = {{"y", {kSelfTestElements}}};
  module::Launch& launch = kernel.launches.emplace_back();
  launch.symbol = "tw_kernel_self_test";
  launch.sizes = {kSelfTestElements};
  // It is a device's baseline, too, where work brings none.
  kernel.measurement.emplace();
  kernel.measurement->inputs = {{0, kSelfTestSeed, kSelfTestLaw}};
  if (device_kind == "cpu") {
    kernel.target = support::StrCat("cpu,arch=", runtime::DetectCpu().arch, ",threads=1");
    kernel.format = runtime::NativeCodeFormat();
    kernel.code = std::string(tw_self_test_code, tw_self_test_code_end);
  } else if (device_kind == "opencl") {
    kernel.target = "opencl";
    kernel.format = "opencl-c";
    kernel.code = kOpenClText;
    launch.grid = {kSelfTestElements / kGroupThreads, 1, 1};
    launch.group = {kGroupThreads, 1, 1};
  } else {
    return support::Unimplemented("agent.self_test.kind", "no known kernel for devices of kind " +
                                                              support::Quote(device_kind));
  }
  return module::SerializeKernelModule(kernel);
}

}  // namespace tilewright::device_agent
