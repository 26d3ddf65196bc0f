// The hardware configuration of the accelerator as a value: lanes of an element, sizes of the
// on-chip memories and widths of instruction fields. isa.def has a row for each member; an Isa
// (isa.h) is the instruction set of one configuration. A value type; pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tilewright::vta {

struct Config {
#define TW_VTA_CONFIG(name, value, least, most, what) int64_t name = value;
#include "vta/isa/isa.def"

  bool operator==(const Config&) const = default;

  // Every member: "block=16,uop=8192,…". Parses back.
  std::string ToString() const;
  // The same for equal configurations in every version: "b16-0123456789abcdef".
  std::string Id() const;
  // The same as a number of 31 bits for a control register; never 0, and a bus without hardware
  // reads as 0 or as 32 ones.
  uint32_t Identity() const;
};

// Bits that number `elements` things. REQUIRES: a power of two.
constexpr int64_t IndexBits(int64_t elements) {
  int64_t bits = 0;
  while ((int64_t{1} << bits) < elements) ++bits;
  return bits;
}
// A source is an element of inp or of acc.
constexpr int64_t SourceBits(const Config& c) { return IndexBits(c.inp > c.acc ? c.inp : c.acc); }

// The values that `block` can have: the powers of two of its row of isa.def, the default first.
std::vector<int64_t> BlockSizes();

// Reads members in any order; those that the text does not name have their default value.
//   vta.config.text: no such member, no number, or a member twice; vta.config.value and
//   vta.config.bits as CheckConfig.
absl::StatusOr<Config> ParseConfig(std::string_view text);

// vta.config.value: a member outside of its range, or a size that is no power of two;
// vta.config.bits: a format whose fields do not fit its bits, or fields that cannot hold every
// element of a memory.
absl::Status CheckConfig(const Config& config);

// vta.config.other: hardware of one configuration cannot run code for another.
absl::Status CheckSameConfig(const Config& hardware, const Config& code);

struct NamedConfig {
  std::string_view name;
  Config config;
};
// The rows TW_VTA_PRESET of isa.def; the first is the default.
std::span<const NamedConfig> NamedConfigs();
// vta.config.name: no such configuration.
absl::StatusOr<Config> FindConfig(std::string_view name);

}  // namespace tilewright::vta
