// Loads and stores: which element of the memory goes with which element of DRAM, the padding among
// them. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Half-open.
struct ByteRange {
  int64_t begin = 0, end = 0;
};

// vta.sim.illegal: a load of out, a store of another memory, a store with padding.
absl::Status CheckTransfer(const Instruction& instruction);

// Elements of the memory that the instruction touches, padding included: they follow each other
// from sram_base.
inline int64_t ElementsOnChip(const Instruction& i) {
  if (i.x_size == 0) return 0;
  return (i.y_pad_0 + i.y_size + i.y_pad_1) * (i.x_pad_0 + i.x_size + i.x_pad_1);
}

// The rows in DRAM, without padding, in their order.
std::vector<ByteRange> RowsInDram(const Isa& isa, const Instruction& instruction);

// Calls visit(sram, dram) for each element of the memory in order: dram is its element in DRAM, or
// -1 for a zero of the padding. Stops at the first error of visit.
template <typename Visit>
absl::Status ForEachElement(const Instruction& i, Visit visit) {
  if (i.x_size == 0) return absl::OkStatus();
  int64_t sram = i.sram_base;
  for (int64_t y = -i.y_pad_0; y < i.y_size + i.y_pad_1; ++y) {
    for (int64_t x = -i.x_pad_0; x < i.x_size + i.x_pad_1; ++x, ++sram) {
      const bool inside = y >= 0 && y < i.y_size && x >= 0 && x < i.x_size;
      const absl::Status status = visit(sram, inside ? i.dram_base + y * i.x_stride + x : -1);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::vta
