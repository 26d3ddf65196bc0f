#include "compiler/targets/kind_table.h"

#include <algorithm>

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

}  // namespace tilewright::target
