#include "compiler/target/machine.h"

#include <algorithm>
#include <functional>

#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

bool CanRun(const Machine& machine, const std::vector<std::string>& features) {
  const std::vector<std::string> needed = machine.FeatureList();
  return std::all_of(needed.begin(), needed.end(), [&](const std::string& feature) {
    return std::find(features.begin(), features.end(), feature) != features.end();
  });
}

bool CanRun(const Family& family, std::string_view name, const std::vector<std::string>& features) {
  const Machine* machine = FindMachine(family, name);
  return machine != nullptr && CanRun(*machine, features);
}

template <typename Wanted>
std::string NamesIf(Wanted wanted, std::string_view separator) {
  std::vector<std::string_view> names;
  for (const Kind& kind : Kinds()) {
    if (std::invoke(wanted, kind)) names.push_back(kind.name);
  }
  return support::Join(names, separator);
}

}  // namespace

double CacheLevel::ReachableBytes(int threads) const {
  return static_cast<double>(bytes) *
         std::max(1.0, static_cast<double>(sharers) / std::max(1, threads));
}

bool Machine::Has(std::string_view feature) const {
  if (is_inexact && feature == inexact_feature) return true;
  for (std::string_view rest = features; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (rest.substr(0, comma) == feature) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

std::vector<std::string> Machine::FeatureList() const {
  return features.empty() ? std::vector<std::string>() : support::Split(features, ',');
}

const Kind* FindKind(std::string_view name) {
  for (const Kind& kind : Kinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

const Family* FindFamily(std::string_view arch) {
  for (const Kind& kind : Kinds()) {
    for (const Family& family : kind.families) {
      if (!arch.empty() && family.arch == arch) return &family;
    }
  }
  return nullptr;
}

const Machine* FindMachine(const Family& family, std::string_view name) {
  for (const Machine& machine : family.machines) {
    if (machine.name == name) return &machine;
  }
  return nullptr;
}

std::string KindNames(std::string_view separator) {
  return NamesIf([](const Kind&) { return true; }, separator);
}
std::string DeviceKindNames(std::string_view separator) {
  return NamesIf(&Kind::has_devices, separator);
}

std::vector<std::string> RunnableMachines(std::string_view arch,
                                          const std::vector<std::string>& features) {
  std::vector<std::string> names;
  const Family* family = FindFamily(arch);
  if (family == nullptr) return names;
  for (const Machine& machine : family->machines) {
    if (CanRun(machine, features)) names.emplace_back(machine.name);
  }
  return names;
}

std::string BestMachineName(std::string_view arch, std::string_view vendor, int family, int model,
                            const std::vector<std::string>& features) {
  const Family* known = FindFamily(arch);
  if (known == nullptr) return "";
  for (const ModelRow& row : known->models) {
    if (row.vendor != vendor || row.family != family) continue;
    if (model < row.model_low || model > row.model_high) continue;
    if (CanRun(*known, row.machine, features)) return std::string(row.machine);
  }
  for (const std::string_view level : known->levels) {
    if (CanRun(*known, level, features)) return std::string(level);
  }
  return std::string(known->levels.back());
}

}  // namespace tilewright::target
