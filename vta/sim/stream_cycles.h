// How many cycles instructions take when nothing else runs. Streams have no branches, so this is
// known before a stream runs: it bounds how long a stream without a hang can take. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "vta/isa/isa.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::vta {

// Returns the cycles of the loops of a gemm or alu, without decoding: one for each micro-op, two if
// both operands are read from acc, which has one read port; then the pipeline. 0 for no iterations.
int64_t LoopCycles(const Instruction& instruction, int64_t pipeline_depth);

// Returns at least as many cycles as the stream takes if each instruction is fetched, then run,
// before the next. Stops adding at kMostSerialCycles.
inline constexpr int64_t kMostSerialCycles = int64_t{1} << 56;
int64_t SerialCycles(const Isa& isa, std::span<const Instruction> stream,
                     const CycleTiming& timing);

}  // namespace tilewright::vta
