#include "tests/support/tiny_module.h"

#include "deploy/module/module_file.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

module::Tensor FloatTensor(int64_t id, const char* name, module::TensorKind kind) {
  module::Tensor tensor;
  tensor.id = id;
  tensor.name = name;
  tensor.kind = kind;
  tensor.shape = {module::Dim(4)};
  tensor.bytes = 16;
  return tensor;
}

}  // namespace

std::string TinyModule(std::string_view text) {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  manifest.name = "tiny";
  manifest.target = "cpu,arch=x86_64,cpu=x86-64,threads=1";
  manifest.tensors = {FloatTensor(0, "x", module::TensorKind::kInput),
                      FloatTensor(1, "y", module::TensorKind::kOutput)};
  module::Launch launch;
  launch.symbol = "tw_kernel_tiny";
  launch.args = {0, 1};
  launch.task = "task-of-" + std::string(text);
  module::Function function;
  function.name = "main";
  function.inputs = {0};
  function.outputs = {1};
  function.launches = {launch};
  manifest.functions = {function};
  module::CodeObject code;
  code.format = "elf-x86_64";
  manifest.code = {code};
  parts.code = {"code " + std::string(text)};
  absl::StatusOr<std::string> bytes = module::SerializeModule(parts);
  TW_CHECK(bytes.ok()) << support::StatusText(bytes.status());
  return *std::move(bytes);
}

}  // namespace tilewright::tests
