// The memories on a machine's chip that programs fill themselves: how many bytes they are, and how
// target strings give them other sizes than the machine's row. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/target/machine.h"

namespace tilewright::target {

// A memory of a matrix unit, whose size a target string can say: `inputs=32KiB`.
struct UnitMemory {
  std::string_view key;
  int64_t MatrixUnit::* elements;
  int64_t (*element_bytes)(const MatrixUnit& unit);
};
// Sorted by key.
std::span<const UnitMemory> UnitMemories();
// Returns null if no memory has this key.
const UnitMemory* FindUnitMemory(std::string_view key);

// Sets the size of a memory by its text: bytes, KiB or MiB that are a power of two of elements.
// INVALID_ARGUMENT `ir.target.bad_value` for other texts.
absl::Status SetUnitMemory(const UnitMemory& memory, std::string_view text, MatrixUnit* unit);
// Checks that hardware of the kind can have the memories of `machine`; the kind knows what its
// instructions can address. INVALID_ARGUMENT with what is possible. Part of the table of kinds.
absl::Status CheckUnitMemories(std::string_view kind, const Machine& machine);
// Returns the shortest text of a memory's size that SetUnitMemory reads.
std::string UnitMemoryText(const UnitMemory& memory, const MatrixUnit& unit);

// Returns the bytes of the memories that programs fill themselves: of a matrix unit its inputs,
// weights, sums with the bytes that are made of them, and micro-ops. 0 for a machine without any.
int64_t OnChipBytes(const Machine& machine);

}  // namespace tilewright::target
