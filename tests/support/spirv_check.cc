#include "tests/support/spirv_check.h"

#include <cstring>
#include <spirv-tools/libspirv.hpp>
#include <vector>

#include "deploy/runtime/spirv_abi.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using Words = std::vector<uint32_t>;

absl::StatusOr<std::vector<Words>> ModulesOf(const std::string& list) {
  Words words(list.size() / sizeof(uint32_t));
  std::memcpy(words.data(), list.data(), words.size() * sizeof(uint32_t));
  if (list.size() % sizeof(uint32_t) != 0 || words.empty() || words[0] != TW_SPIRV_MAGIC)
    return support::InvalidArgument("test.spirv.list", "expected a list of modules");
  std::vector<Words> modules;
  for (size_t at = 1; at < words.size();) {
    const size_t count = words[at];
    at += 2;  // and what its loops cost
    if (at > words.size() || count > words.size() - at)
      return support::InvalidArgument("test.spirv.list", "expected whole modules");
    modules.emplace_back(words.begin() + static_cast<int64_t>(at),
                         words.begin() + static_cast<int64_t>(at + count));
    at += count;
  }
  return modules;
}

}  // namespace

std::string DisassembledSpirv(const std::string& list) {
  const auto modules = ModulesOf(list);
  if (!modules.ok()) return support::StatusText(modules.status());
  const spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_1);
  std::string all;
  for (const Words& module : *modules) {
    std::string text;
    tools.Disassemble(module, &text,
                      SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES | SPV_BINARY_TO_TEXT_OPTION_INDENT);
    all += text;
  }
  return all;
}

absl::Status ValidateSpirv(const std::string& list) {
  TW_ASSIGN(const std::vector<Words> modules, ModulesOf(list));
  spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_1);
  std::string message;
  tools.SetMessageConsumer(
      [&](spv_message_level_t, const char*, const spv_position_t& at, const char* text) {
        message += support::StrCat("word ", at.index, ": ", text, "\n");
      });
  for (const Words& module : modules) {
    if (!tools.Validate(module)) {
      return support::Internal("test.spirv.invalid",
                               support::StrCat(message, DisassembledSpirv(list)));
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::tests
