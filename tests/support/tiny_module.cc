#include "tests/support/tiny_module.h"

#include "deploy/module/kernel_module.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
std::string TinyModule(std::string_view text) {
  module::KernelModule tiny;
  tiny.name = "tiny";
  tiny.target = "cpu,arch=x86_64,cpu=x86-64,threads=1";
  tiny.format = "elf-x86_64";
  tiny.code = "code " + std::string(text);
  tiny.inputs = {{"x", {4}}};
  tiny.outputs = {{"y", {4}}};
  module::Launch& launch = tiny.launches.emplace_back();
  launch.symbol = "tw_kernel_tiny";
  launch.task = "task-of-" + std::string(text);
  absl::StatusOr<std::string> bytes = module::SerializeKernelModule(tiny);
  TW_CHECK(bytes.ok()) << support::StatusText(bytes.status());
  return *std::move(bytes);
}

}  // namespace tilewright::tests
