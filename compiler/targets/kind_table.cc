#include "compiler/targets/kind_table.h"

#include <algorithm>

#include "compiler/target/on_chip.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

std::vector<Kind> MakeKinds() {
  static const Family kCpus[] = {
#define TW_CPU(name) name::kFamily,
#include "compiler/targets/targets.def"
  };
  std::vector<Kind> kinds = {
      {.name = kProcessors, .families = kCpus},
#define TW_DEVICE(folder) {.name = #folder, .families = std::span(&folder::kFamily, 1)},
#include "compiler/targets/targets.def"
  };
  std::sort(kinds.begin(), kinds.end(),
            [](const Kind& a, const Kind& b) { return a.name < b.name; });
  return kinds;
}

}  // namespace

std::span<const Kind> Kinds() {
  static const std::vector<Kind>* const kKinds = new std::vector<Kind>(MakeKinds());
  return *kKinds;
}

absl::Status CheckUnitMemories(std::string_view kind, const Machine& machine) {
#define TW_MEMORIES(folder) \
  if (kind == #folder) return folder::CheckMemories(machine);
#include "compiler/targets/targets.def"
  return support::InvalidArgument(
      "ir.target.bad_value", support::StrCat(kind, ": expected no sizes of memories, found some"));
}

}  // namespace tilewright::target
