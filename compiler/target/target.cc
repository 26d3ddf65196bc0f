#include "compiler/target/target.h"

#include <map>
#include <optional>
#include <utility>

#include "compiler/target/on_chip.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr char kConfig[] = "config", kOn[] = "on", kOff[] = "off";

absl::Status CheckKind(const std::string& kind) {
  if (FindKind(kind) != nullptr) return absl::OkStatus();
  if (kind == "native") {
    return support::InvalidArgument(
        "ir.target.native",
        "expected a target that names its cpu, found 'native': the command line expands it on the "
        "machine that it runs on");
  }
  return support::InvalidArgument(
      "ir.target.unknown_kind", support::StrCat("expected ", KindNames(", "), " or native, found ",
                                                support::Quote(kind, 40)));
}

std::string UnitMemoryKeys() {
  std::vector<std::string_view> keys;
  for (const UnitMemory& memory : UnitMemories()) keys.push_back(memory.key);
  return support::Join(keys, ", ");
}

bool IsInexactFeature(std::string_view key) {
  for (const Kind& kind : Kinds()) {
    for (const Machine& machine : kind.families[0].machines) {
      if (!key.empty() && machine.inexact_feature == key) return true;
    }
  }
  return false;
}

absl::StatusOr<std::map<std::string, std::string>> ParseKeys(
    const std::vector<std::string>& parts) {
  std::map<std::string, std::string> keys;
  for (size_t i = 1; i < parts.size(); ++i) {
    size_t equals = parts[i].find('=');
    std::string key = parts[i].substr(0, equals);
    if (equals == std::string::npos || equals + 1 == parts[i].size()) {
      return support::InvalidArgument("ir.target.bad_value",
                                      "expected key=value, found " + support::Quote(parts[i], 60));
    }
    const bool known = key == "arch" || key == "cpu" || key == "threads" || key == kConfig;
    if (!known && FindUnitMemory(key) == nullptr && !IsInexactFeature(key)) {
      return support::InvalidArgument(
          "ir.target.bad_value",
          support::StrCat("expected arch, cpu, threads, config, or of a matrix unit ",
                          UnitMemoryKeys(), "; found ", support::Quote(key, 60)));
    }
    if (!keys.emplace(key, parts[i].substr(equals + 1)).second) {
      return support::InvalidArgument("ir.target.bad_value",
                                      "expected each key once, found " + key + " twice");
    }
  }
  return keys;
}

absl::StatusOr<int> ParseThreads(const std::string& text) {
  std::optional<int64_t> threads = support::ParseInt64(text);
  if (!threads || *threads < 1 || *threads > kMaxThreads) {
    return support::InvalidArgument(
        "ir.target.bad_value", support::StrCat("threads: expected 1 to ", kMaxThreads, ", found ",
                                               support::Quote(text, 40)));
  }
  return static_cast<int>(*threads);
}

template <typename Row>
std::string NamesOf(std::span<const Row> rows, std::string_view Row::* name,
                    std::string_view separator) {
  std::vector<std::string_view> names;
  for (const Row& row : rows) {
    if (!(row.*name).empty()) names.push_back(row.*name);
  }
  return support::Join(names, separator);
}

// The name of an architecture stands for its kind and itself: "wasm,cpu=simd128" is
// "cpu,arch=wasm,cpu=simd128".
void NameKind(std::vector<std::string>* parts) {
  if (FindKind(parts->front()) != nullptr) return;
  for (const Kind& kind : Kinds()) {
    for (const Family& family : kind.families) {
      if (family.arch.empty() || family.arch != parts->front()) continue;
      parts->front() = support::StrCat("arch=", family.arch);
      parts->insert(parts->begin(), std::string(kind.name));
      return;
    }
  }
}

// The family that `arch` names (empty: the kind's first), or null.
const Family* FamilyOf(const Kind& kind, std::string_view arch) {
  for (const Family& family : kind.families) {
    if (arch.empty() || family.arch == arch) return &family;
  }
  return nullptr;
}

// Whether the target asks for what rounds more than models say.
absl::Status SetInexact(const std::map<std::string, std::string>& keys, Machine* machine) {
  for (const auto& [key, value] : keys) {
    if (!IsInexactFeature(key)) continue;
    if (key != machine->inexact_feature || (value != kOn && value != kOff)) {
      return support::InvalidArgument(
          "ir.target.bad_value",
          support::StrCat(key, ": expected ", kOn, " or ", kOff,
                          " for a machine that has it, found ", support::Quote(value, 40), " for ",
                          machine->name.empty() ? "another" : machine->name));
    }
    machine->is_inexact = value == kOn;
  }
  return absl::OkStatus();
}

// A family without an architecture: its machines are configurations. A row without a name serves
// all devices of the kind, whose targets need not name one. Memories of a matrix unit may have
// other sizes than the configuration says.
absl::StatusOr<Target> FindConfig(const Kind& kind,
                                  const std::map<std::string, std::string>& keys) {
  const std::span<const Machine> machines = kind.families[0].machines;
  const std::string_view machine_key = kind.families[0].machine_key;
  const bool named = !machines.back().name.empty();
  const bool sized = machines[0].has_matrix();
  for (const auto& [key, value] : keys) {
    if (named && key == machine_key) continue;
    if (sized && FindUnitMemory(key) != nullptr) continue;
    if (IsInexactFeature(key)) continue;  // of some machines: SetInexact
    return support::InvalidArgument(
        "ir.target.bad_value",
        support::StrCat(kind.name, ": expected ", named ? machine_key : "no keys",
                        sized ? support::StrCat(" or ", UnitMemoryKeys()) : "", ", found ", key));
  }
  const auto chosen = keys.find(std::string(machine_key));
  const std::string name = chosen == keys.end() ? std::string(machines[0].name) : chosen->second;
  const Machine* machine = FindMachine(kind.families[0], name);
  if (machine == nullptr) {
    return support::InvalidArgument(
        "ir.target.bad_value",
        support::StrCat(machine_key, ": expected one of ", NamesOf(machines, &Machine::name, ", "),
                        ", found ", support::Quote(name, 40)));
  }
  Target target{.kind = std::string(kind.name), .cpu = name, .machine = *machine};
  for (const auto& [key, value] : keys) {
    const UnitMemory* memory = FindUnitMemory(key);
    if (memory != nullptr) TW_TRY(SetUnitMemory(*memory, value, &target.machine.matrix));
  }
  TW_TRY(SetInexact(keys, &target.machine));
  if (sized && keys.size() > keys.count(std::string(machine_key)))
    TW_TRY(CheckUnitMemories(kind.name, target.machine));
  return target;
}

absl::Status FindRow(const Kind& kind, const std::map<std::string, std::string>& keys,
                     Target* target) {
  const auto value = [&](const char* key) {
    const auto it = keys.find(key);
    return it == keys.end() ? std::string() : it->second;
  };
  const Family* family = FamilyOf(kind, value("arch"));
  if (family == nullptr) {
    return support::InvalidArgument(
        "ir.target.bad_value",
        support::StrCat("arch: expected ", NamesOf(kind.families, &Family::arch, " or "),
                        ", found ", support::Quote(value("arch"), 40)));
  }
  target->arch = family->arch;
  target->cpu = keys.count("cpu") != 0 ? value("cpu") : std::string(family->levels.back());
  const Machine* machine = FindMachine(*family, target->cpu);
  if (machine == nullptr) {
    return support::InvalidArgument(
        "ir.target.unknown_cpu",
        support::StrCat("expected one of ", NamesOf(family->machines, &Machine::name, ", "),
                        " for ", target->arch, ", found ", support::Quote(target->cpu, 40)));
  }
  target->machine = *machine;
  return absl::OkStatus();
}

}  // namespace

const Family& Target::family() const {
  const Kind* known = FindKind(kind);
  const Family* row = known == nullptr ? nullptr : FamilyOf(*known, arch);
  TW_CHECK(row != nullptr) << ToString();
  return *row;
}
std::string Target::WithoutThreads() const {
  if (!arch.empty()) return kind + ",arch=" + arch + ",cpu=" + cpu;
  if (cpu.empty()) return kind;
  std::map<std::string, std::string> settings = {{std::string(family().machine_key), cpu}};
  const Machine* row = FindMachine(family(), cpu);
  for (const UnitMemory& memory : UnitMemories()) {
    if (row == nullptr || machine.matrix.*memory.elements == row->matrix.*memory.elements) continue;
    settings[std::string(memory.key)] = UnitMemoryText(memory, machine.matrix);
  }
  if (machine.is_inexact) settings[std::string(machine.inexact_feature)] = kOn;
  std::string text = kind;
  for (const auto& [key, value] : settings) text += support::StrCat(",", key, "=", value);
  return text;
}
std::string Target::ToString() const {
  return arch.empty() ? WithoutThreads() : WithoutThreads() + ",threads=" + std::to_string(threads);
}

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  std::vector<std::string> parts = support::Split(text, ',');
  NameKind(&parts);
  TW_TRY(CheckKind(parts[0]));
  TW_ASSIGN(auto keys, ParseKeys(parts));
  const Kind& kind = *FindKind(parts[0]);
  Target target;
  target.kind = parts[0];
  if (kind.families[0].arch.empty()) return FindConfig(kind, keys);
  for (const auto& [key, value] : keys) {
    if (key != kConfig && FindUnitMemory(key) == nullptr && !IsInexactFeature(key)) continue;
    return support::InvalidArgument(
        "ir.target.bad_value", support::StrCat(parts[0], ": expected no ", key, ", found one"));
  }
  TW_TRY(FindRow(kind, keys, &target));
  if (auto it = keys.find("threads"); it != keys.end()) {
    TW_ASSIGN(target.threads, ParseThreads(it->second));
  }
  return target;
}

absl::StatusOr<std::string> ExpandNative(std::string_view text, std::string_view arch,
                                         std::string_view cpu, int threads) {
  std::vector<std::string> parts = support::Split(text, ',');
  if (parts[0] != "native") {
    TW_ASSIGN(Target target, ParseTarget(text));
    return target.ToString();
  }
  TW_ASSIGN(auto keys, ParseKeys(parts));
  for (const auto& [key, value] : keys) {
    if (key == "threads") continue;
    return support::InvalidArgument("ir.target.bad_value",
                                    "native: expected threads only, found " + key);
  }
  std::string threads_text = keys.count("threads") != 0 ? keys["threads"] : std::to_string(threads);
  TW_ASSIGN(Target target, ParseTarget(support::StrCat("cpu,arch=", arch, ",cpu=", cpu,
                                                       ",threads=", threads_text)));
  return target.ToString();
}

}  // namespace tilewright::target
