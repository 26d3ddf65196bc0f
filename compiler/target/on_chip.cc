#include "compiler/target/on_chip.h"

#include <algorithm>
#include <optional>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

using support::StrCat;

constexpr int64_t kSumBytes = 4;
constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

constexpr UnitMemory kUnitMemories[] = {
    {"inputs", &MatrixUnit::inputs, [](const MatrixUnit& u) { return u.block; }},
    {"micro_ops", &MatrixUnit::micro_ops, [](const MatrixUnit& u) { return u.micro_op_bytes; }},
    {"sums", &MatrixUnit::sums, [](const MatrixUnit& u) { return kSumBytes * u.block; }},
    {"weights", &MatrixUnit::weights, [](const MatrixUnit& u) { return u.block * u.block; }},
};

// "32KiB", "4MiB", "96".
std::optional<int64_t> ParseBytes(std::string_view text) {
  int64_t unit = 1;
  if (text.ends_with("KiB")) unit = kKiB;
  if (text.ends_with("MiB")) unit = kMiB;
  if (unit > 1) text.remove_suffix(3);
  constexpr int64_t kMost = int64_t{1} << 40;
  const std::optional<int64_t> count = support::ParseInt64(text);
  if (!count || *count < 1 || *count > kMost / unit) return std::nullopt;
  return *count * unit;
}

std::string BytesText(int64_t bytes) {
  if (bytes % kMiB == 0) return StrCat(bytes / kMiB, "MiB");
  return bytes % kKiB == 0 ? StrCat(bytes / kKiB, "KiB") : StrCat(bytes);
}

}  // namespace

std::span<const UnitMemory> UnitMemories() { return kUnitMemories; }

const UnitMemory* FindUnitMemory(std::string_view key) {
  const auto* found = std::find_if(std::begin(kUnitMemories), std::end(kUnitMemories),
                                   [&](const UnitMemory& m) { return m.key == key; });
  return found == std::end(kUnitMemories) ? nullptr : found;
}

absl::Status SetUnitMemory(const UnitMemory& memory, std::string_view text, MatrixUnit* unit) {
  const int64_t element = memory.element_bytes(*unit);
  const std::optional<int64_t> bytes = ParseBytes(text);
  const int64_t elements = bytes.value_or(0) / element;
  const bool whole = elements > 0 && elements * element == *bytes;
  if (!whole || (elements & (elements - 1)) != 0) {
    return support::InvalidArgument(
        "ir.target.bad_value",
        StrCat(memory.key, ": expected ", element, " bytes times a power of two, such as ",
               UnitMemoryText(memory, *unit), ", found ", support::Quote(text, 40)));
  }
  unit->*memory.elements = elements;
  return absl::OkStatus();
}

std::string UnitMemoryText(const UnitMemory& memory, const MatrixUnit& unit) {
  return BytesText(unit.*memory.elements * memory.element_bytes(unit));
}

int64_t OnChipBytes(const Machine& machine) {
  const MatrixUnit& unit = machine.matrix;
  int64_t bytes = unit.block * unit.sums;  // the bytes that are made of the sums
  for (const UnitMemory& memory : kUnitMemories)
    bytes += unit.*memory.elements * memory.element_bytes(unit);
  return bytes;
}

}  // namespace tilewright::target
