// What an instruction touches: elements of the memories and bytes of DRAM, as ranges. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vta/isa/isa.h"

namespace tilewright::vta {

// Half-open range of elements of a memory (a Memory's value), or of DRAM in bytes.
struct Access {
  static constexpr int kDram = -1;
  int memory = kDram;
  int64_t begin = 0, end = 0;
  bool is_write = false;
};

// Exact and without empty ranges; gemm and alu by the micro-ops that `uops` (the whole micro-op
// memory) holds when they run. `out` is written with acc. Elements beyond a memory are left out:
// the simulators report them. The time is that of the micro-ops and of the memories' sizes, however
// often the loops run.
std::vector<Access> AccessesOf(const Isa& isa, const Instruction& instruction,
                               std::span<const MicroOp> uops);

}  // namespace tilewright::vta
