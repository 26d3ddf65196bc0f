#include "device_agent/self_test_module.h"

#include <utility>

#include "deploy/module/module_file.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/strings.h"
#include "device_agent/self_test.h"

// The shared object of self_test_kernel.c.
asm(".pushsection .rodata\n"
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

module::Tensor FloatTensor(int64_t id, const char* name, module::TensorKind kind) {
  module::Tensor tensor;
  tensor.id = id;
  tensor.name = name;
  tensor.shape = {module::Dim(kSelfTestElements)};
  tensor.kind = kind;
  tensor.bytes = kSelfTestElements * static_cast<int64_t>(sizeof(float));
  return tensor;
}

}  // namespace

absl::StatusOr<std::string> SelfTestModule() {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  manifest.name = "self_test";
  manifest.target = support::StrCat("cpu,arch=", runtime::DetectCpu().arch, ",threads=1");
  manifest.tensors = {FloatTensor(0, "x", module::TensorKind::kInput),
                      FloatTensor(1, "y", module::TensorKind::kOutput)};
  module::Launch launch;
  launch.symbol = "tw_kernel_self_test";
  launch.args = {0, 1};
  launch.sizes = {kSelfTestElements};
  module::Function function;
  function.name = "main";
  function.inputs = {0};
  function.outputs = {1};
  function.launches = {launch};
  manifest.functions = {function};
  manifest.code.push_back({std::string(runtime::NativeCodeFormat()), 1, 0, ""});
  parts.code = {std::string(tw_self_test_code, tw_self_test_code_end)};
  return module::SerializeModule(parts);
}

}  // namespace tilewright::device_agent
