// How long the hardware takes: what the cycle model counts, what vta_rtl.sv builds, and what the
// compiler's estimates start from. vta/sim/README.md says what takes how many cycles. A value type.
#pragma once

#include <cstdint>

namespace tilewright::vta {

struct CycleTiming {
  // Of an instruction, before its work begins.
  static constexpr int64_t kDecodeCycles = 1;
  // Of an operation that reads both operands from acc, which has one read port.
  static constexpr int64_t kTwoOperandCycles = 2;

  int64_t dram_latency = 64;   // cycles from a read request to its first beat, or from the last
                               // beat of a write to its response
  int64_t bytes_per_beat = 8;  // a beat takes a cycle; reads and writes have a channel each
  int64_t outstanding = 16;    // read requests on their way
  int64_t burst_beats = 256;   // of one read request at most
  int64_t fetch_burst = 16;    // instructions that one read fetches
  int64_t fetch_queue = 64;    // instructions fetched or on their way, not yet with their module
  int64_t module_queue = 512;  // instructions waiting in front of each module
  int64_t token_depth = 255;   // tokens in one queue; a full one makes the giver wait
  int64_t pipeline_depth = 4;  // cycles from the last micro-op of gemm or alu to its end
};

}  // namespace tilewright::vta
