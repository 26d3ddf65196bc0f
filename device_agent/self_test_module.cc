#include "device_agent/self_test_module.h"

#include "deploy/module/kernel_module.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
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

module::KernelModule EmptySelfTest() {
  module::KernelModule kernel;
  kernel.name = "self_test";
  kernel.inputs = {{"x", {kSelfTestElements}}};
  kernel.outputs = {{"y", {kSelfTestElements}}};
  kernel.launches.emplace_back().sizes = {kSelfTestElements};
  // It is a device's baseline, too, where work brings none.
  kernel.measurement.emplace();
  kernel.measurement->inputs = {{0, kSelfTestSeed, kSelfTestLaw}};
  return kernel;
}

absl::StatusOr<std::string> WholeModule(const char* kind, const TwDeviceSelfTest& given) {
  static_assert(kSelfTestElements == TW_WHOLE_SELF_TEST_ELEMENTS);
  module::KernelModule kernel = EmptySelfTest();
  kernel.inputs[0].dtype = module::DType::kInt32;
  kernel.outputs[0].dtype = module::DType::kInt8;
  kernel.measurement->inputs = {{0, kSelfTestSeed, kWholeSelfTestLaw}};
  kernel.launches[0].sizes.clear();
  kernel.launches[0].symbol = support::StrCat(TW_KERNEL_SYMBOL_PREFIX, given.kernel);
  kernel.target = kind;
  kernel.format = given.format;
  kernel.code = std::string(static_cast<const char*>(given.code), given.code_bytes);
  return module::SerializeKernelModule(kernel);
}

}  // namespace

absl::StatusOr<std::string> SelfTestModule() {
  module::KernelModule kernel = EmptySelfTest();
  kernel.target = support::StrCat("cpu,arch=", runtime::DetectCpu().arch, ",threads=1");
  kernel.format = runtime::NativeCodeFormat();
  kernel.code = std::string(tw_self_test_code, tw_self_test_code_end);
  kernel.launches[0].symbol = "tw_kernel_self_test";
  return module::SerializeKernelModule(kernel);
}

absl::StatusOr<std::string> SelfTestModule(const TwDevicePlugin& plugin) {
  const TwDeviceSelfTest* given = runtime::SelfTestOf(plugin);
  const TwDeviceSelfTest* whole = runtime::WholeSelfTestOf(plugin);
  if (given == nullptr && whole != nullptr) return WholeModule(plugin.kind, *whole);
  if (given == nullptr || given->group < 1 || kSelfTestElements % given->group != 0) {
    return support::Unimplemented("agent.self_test.kind",
                                  support::StrCat("expected a self-test in the plug-in of ",
                                                  plugin.kind, ", with groups of a ", "divisor of ",
                                                  kSelfTestElements, " threads; found none"));
  }
  module::KernelModule kernel = EmptySelfTest();
  kernel.target = plugin.kind;
  kernel.format = given->format;
  kernel.code = std::string(static_cast<const char*>(given->code), given->code_bytes);
  module::Launch& launch = kernel.launches[0];
  launch.symbol = support::StrCat(TW_KERNEL_SYMBOL_PREFIX, given->kernel);
  launch.grid = {kSelfTestElements / given->group, 1, 1};
  launch.group = {given->group, 1, 1};
  return module::SerializeKernelModule(kernel);
}

}  // namespace tilewright::device_agent
