#include "tests/support/text_module.h"

#include <utility>

#include "deploy/module/kernel_module.h"
#include "deploy/support/status.h"

namespace tilewright::tests {

std::string TextModule(const TextModuleSpec& spec) {
  module::KernelModule made;
  made.name = spec.kernel;
  made.target = spec.target;
  made.format = spec.format;
  made.code = spec.code;
  made.inputs = {{"x", {spec.elements}}};
  made.outputs = {{"y", {spec.elements}}};
  module::Launch& launch = made.launches.emplace_back();
  launch.symbol = "tw_kernel_" + spec.kernel;
  launch.sizes = {spec.elements};
  launch.grid = {(spec.elements + spec.threads - 1) / spec.threads, 1, 1};
  launch.group = {spec.threads, 1, 1};
  auto bytes = module::SerializeKernelModule(made);
  TW_CHECK(bytes.ok()) << support::StatusText(bytes.status());
  return *std::move(bytes);
}

}  // namespace tilewright::tests
