#include "compiler/targets/vta/vta_memories.h"

#include <string>
#include <vector>

#include "compiler/target/on_chip.h"
#include "compiler/targets/kind_table.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// Members of a configuration by the keys of target strings.
constexpr struct {
  std::string_view key;
  int64_t Config::* member;
} kMemories[] = {{"inputs", &Config::inp},
                 {"micro_ops", &Config::uop},
                 {"sums", &Config::acc},
                 {"weights", &Config::wgt}};

// "inputs up to 64KiB, ...": the largest size of each, where the others are as `config` says.
std::string LargestMemories(const Config& config, const target::MatrixUnit& unit) {
  std::vector<std::string> texts;
  for (const auto& [key, member] : kMemories) {
    Config larger = config;
    while (CheckConfig(larger).ok()) larger.*member *= 2;
    const target::UnitMemory& memory = *target::FindUnitMemory(key);
    target::MatrixUnit most = unit;
    most.*memory.elements = larger.*member / 2;
    texts.push_back(StrCat(key, " up to ", UnitMemoryText(memory, most)));
  }
  return support::Join(texts, ", ");
}

}  // namespace

absl::StatusOr<Config> ConfigOf(std::string_view name, const target::MatrixUnit& unit) {
  if (name.empty()) name = NamedConfigs()[0].name;
  TW_ASSIGN(const Config named, FindConfig(name));
  if (unit.block == 0) return named;
  Config config = named;
  for (const auto& [key, member] : kMemories)
    config.*member = unit.*target::FindUnitMemory(key)->elements;
  const absl::Status checked = CheckConfig(config);
  if (checked.ok()) return config;
  return support::InvalidArgument(
      "vta.config.memories",
      StrCat("expected memories that instructions of 128 bits can address (of ", name,
             ", each alone: ", LargestMemories(named, unit),
             "), found others: ", support::Detail(checked)));
}

absl::Status CheckMemories(const target::Machine& machine) {
  return ConfigOf(machine.name, machine.matrix).status();
}

}  // namespace tilewright::vta
