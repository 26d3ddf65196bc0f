#include "vta/isa/config.h"

#include <algorithm>
#include <set>

#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

struct Member {
  std::string_view name;
  int64_t Config::* member;
  int64_t least, most;
};
constexpr Member kMembers[] = {
#define TW_VTA_CONFIG(name, value, least, most, what) {#name, &Config::name, least, most},
#include "vta/isa/isa.def"
};

constexpr NamedConfig kPresets[] = {
#define TW_VTA_PRESET(name, ...) {#name, Config{__VA_ARGS__}},
#include "vta/isa/isa.def"
};

bool IsSize(std::string_view name) { return !name.ends_with("_bits"); }

absl::Status CheckMembers(const Config& config) {
  for (const Member& m : kMembers) {
    const int64_t value = config.*m.member;
    const bool fits = value >= m.least && value <= m.most;
    if (fits && (!IsSize(m.name) || (value & (value - 1)) == 0)) continue;
    return support::InvalidArgument(
        "vta.config.value",
        StrCat(m.name, ": expected ", IsSize(m.name) ? "a power of two from " : "", m.least, " to ",
               m.most, ", found ", value));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Config::ToString() const {
  std::string text;
  for (const Member& m : kMembers)
    text += StrCat(text.empty() ? "" : ",", m.name, "=", this->*m.member);
  return text;
}

std::string Config::Id() const {
  return StrCat("b", block, "-", support::Hex64(support::StableHash64(ToString())));
}

uint32_t Config::Identity() const {
  return static_cast<uint32_t>(support::StableHash64(ToString()) & 0x7fff'ffff) | 1;
}

std::vector<int64_t> BlockSizes() {
  const auto row = std::find_if(std::begin(kMembers), std::end(kMembers),
                                [](const Member& m) { return m.member == &Config::block; });
  std::vector<int64_t> sizes = {Config{}.block};
  for (int64_t block = row->least; block <= row->most; block *= 2) {
    if (block != sizes[0]) sizes.push_back(block);
  }
  return sizes;
}

absl::StatusOr<Config> ParseConfig(std::string_view text) {
  Config config;
  std::set<std::string> seen;
  const auto bad = [&](const std::string& what) {
    return support::InvalidArgument("vta.config.text",
                                    StrCat("expected NAME=NUMBER,…, found ", what));
  };
  for (const std::string& part : support::Split(text, ',')) {
    const size_t eq = part.find('=');
    if (eq == std::string::npos) return bad(support::Quote(part));
    const std::string name = part.substr(0, eq);
    const auto member = std::find_if(std::begin(kMembers), std::end(kMembers),
                                     [&](const Member& m) { return m.name == name; });
    const auto value = support::ParseInt64(part.substr(eq + 1));
    if (member == std::end(kMembers) || !value.has_value()) return bad(support::Quote(part));
    if (!seen.insert(name).second) return bad(StrCat(name, " twice"));
    config.*member->member = *value;
  }
  TW_TRY(CheckConfig(config));
  return config;
}

absl::Status CheckConfig(const Config& config) {
  TW_TRY(CheckMembers(config));
  return Isa::CheckBits(config);
}

absl::Status CheckSameConfig(const Config& hardware, const Config& code) {
  if (hardware == code) return absl::OkStatus();
  return support::FailedPrecondition(
      "vta.config.other", StrCat("expected code for the hardware configuration ",
                                 hardware.ToString(), ", found code for ", code.ToString()));
}

std::span<const NamedConfig> NamedConfigs() { return kPresets; }

absl::StatusOr<Config> FindConfig(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedConfig& named : NamedConfigs()) {
    if (named.name == name) return named.config;
    names.push_back(named.name);
  }
  return support::NotFound("vta.config.name", StrCat("expected one of ", support::Join(names, ", "),
                                                     ", found ", support::Quote(name)));
}

}  // namespace tilewright::vta
