#include "vta/sim/stream_cycles.h"

#include <algorithm>

#include "vta/sim/dma.h"
#include "vta/sim/fetch_unit.h"
#include "vta/sim/read_port.h"

namespace tilewright::vta {
namespace {

// A row may begin and end inside of a beat, and be several requests.
int64_t TransferCycles(const Isa& isa, const Instruction& i, const CycleTiming& timing) {
  if (i.x_size == 0) return 0;
  const int64_t bytes = i.x_size * isa.InfoOf(static_cast<Memory>(i.memory)).element_bytes;
  const int64_t beats = bytes / timing.bytes_per_beat + 2;
  const int64_t requests = beats / timing.burst_beats + 1;
  return ElementsOnChip(i) + i.y_size * (beats + requests * (timing.dram_latency + 1));
}

}  // namespace

int64_t LoopCycles(const Instruction& i, int64_t pipeline_depth) {
  const int64_t uops = std::max<int64_t>(0, i.uop_end - i.uop_begin);
  const int64_t passes = i.iter_out * i.iter_in * uops;
  if (passes == 0) return 0;
  const bool slow = i.op == Opcode::kAlu && i.use_imm == 0;
  const int64_t each = slow ? CycleTiming::kTwoOperandCycles : 1;
  return passes * each + pipeline_depth;
}

int64_t SerialCycles(const Isa& isa, std::span<const Instruction> stream,
                     const CycleTiming& timing) {
  // The fetch asks DRAM once for each instruction; dispatch, decoding and the token take a cycle
  // each.
  const int64_t fetch =
      timing.dram_latency + BeatsOf({0, kInstructionBytes}, timing.bytes_per_beat) + 4;
  int64_t cycles = 0;
  for (const Instruction& i : stream) {
    const bool loops = i.op == Opcode::kGemm || i.op == Opcode::kAlu;
    const bool moves = i.op == Opcode::kLoad || i.op == Opcode::kStore;
    cycles += fetch;
    if (loops) cycles += LoopCycles(i, timing.pipeline_depth);
    if (moves) cycles += TransferCycles(isa, i, timing);
    if (cycles >= kMostSerialCycles) return kMostSerialCycles;
  }
  return cycles;
}

}  // namespace tilewright::vta
