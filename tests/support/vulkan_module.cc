#include "tests/support/vulkan_module.h"

#include "compiler/ir/ir_text.h"
#include "compiler/targets/vulkan/vulkan_codegen.h"
#include "deploy/runtime/spirv_abi.h"
#include "deploy/support/status.h"
#include "tests/support/text_module.h"

namespace tilewright::tests {

std::string VulkanCodeModule(const std::string& kernel, const std::string& code, int64_t elements,
                             int64_t threads) {
  return TextModule({"vulkan", TW_SPIRV_FORMAT, kernel, code, elements, threads});
}

std::string VulkanModule(const std::string& kernel, const std::string& text, int64_t elements,
                         int64_t threads) {
  const auto function = ir::ParseFunction(text);
  TW_CHECK(function.ok()) << support::StatusText(function.status());
  const auto code = vulkan::EmitSpirv({*function});
  TW_CHECK(code.ok()) << support::StatusText(code.status());
  return VulkanCodeModule(kernel, code->bytes, elements, threads);
}

}  // namespace tilewright::tests
