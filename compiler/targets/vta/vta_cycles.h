// How long instructions take on the hardware that the compiler has in mind (vta/isa/timing.h), for
// decisions about a stream. Pure functions.
#pragma once

#include <cstdint>

#include "vta/isa/isa.h"
#include "vta/isa/timing.h"

namespace tilewright::vta {

inline constexpr CycleTiming kTiming;
// What a product or operation takes in addition to its loops, and a load or store to its beats.
inline constexpr int64_t kLoopsBegin = CycleTiming::kDecodeCycles + kTiming.pipeline_depth;
inline constexpr int64_t kTransferBegins = CycleTiming::kDecodeCycles + kTiming.dram_latency;

// Of one element of a product or operation.
inline int64_t CyclesOfElement(const Instruction& i) {
  return i.op == Opcode::kAlu && i.use_imm == 0 ? CycleTiming::kTwoOperandCycles : 1;
}

// Of compute, for a product or operation; 0 for others.
inline int64_t ComputeCycles(const Instruction& i) {
  if (i.op != Opcode::kGemm && i.op != Opcode::kAlu) return 0;
  return kLoopsBegin + i.iter_out * i.iter_in * (i.uop_end - i.uop_begin) * CyclesOfElement(i);
}

// Of elements that DRAM brings or takes.
inline int64_t BeatsOf(const Isa& isa, Memory memory, int64_t elements) {
  const int64_t bytes = elements * isa.InfoOf(memory).element_bytes;
  return (bytes + kTiming.bytes_per_beat - 1) / kTiming.bytes_per_beat;
}

}  // namespace tilewright::vta
