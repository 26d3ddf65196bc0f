// The cycle model: how long a stream takes on the pipelined hardware. Instructions do what the
// functional simulator makes of them (datapath.h); load, compute and store run at the same time,
// each its own instructions in order, and wait for tokens, DRAM and instructions. README.md says
// what takes how many cycles. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/isa/isa.h"
#include "vta/isa/timing.h"
#include "vta/sim/datapath.h"

namespace tilewright::vta {

// vta.sim.timing: a number that is not positive (latency and pipeline: negative), or a fetch queue
// without room for a burst.
absl::Status CheckTiming(const CycleTiming& timing);

// When an instruction ran: [start, end).
struct StageSpan {
  size_t instruction = 0;
  Module module = Module::kLoad;
  int64_t start = 0, end = 0;

  bool operator==(const StageSpan&) const = default;
};

struct CycleReport {
  int64_t cycles = 0;                       // until the finish is done
  std::array<int64_t, kModules> busy = {};  // of each module: in which an instruction ran
  int64_t read_beats = 0, write_beats = 0;
  SimCounters counters;
  std::vector<StageSpan> trace;  // every instruction, in the order in which they ended
};

// Runs the stream on the DRAM image, like RunFunctional; the seed draws what the memories hold at
// first. Errors: those of RunFunctional, vta.sim.timing, and vta.sim.timeout for a stream that has
// not ended after `max_cycles`. A stream whose tokens order all conflicts (CheckTokens) leaves the
// same image as there.
absl::StatusOr<CycleReport> RunCycles(const Isa& isa, std::span<const Word128> words,
                                      const CycleTiming& timing, uint64_t seed,
                                      std::vector<uint8_t>* dram,
                                      int64_t max_cycles = std::numeric_limits<int64_t>::max());

}  // namespace tilewright::vta
