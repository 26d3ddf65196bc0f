// Whether the dependence flags of a stream order every conflict: a happens-before check over the
// whole stream, independent of any one execution. Two instructions of different modules that touch
// the same element of a memory or the same byte of DRAM, one of them writing, must be ordered by
// their vector clocks (token_order.h). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// What the simulators make of the stream depends on nothing but its tokens if this is OK and no
// simulator reports an instruction.
//   vta.sim.illegal | vta.sim.finish | vta.isa.*: as ReadStream;
//   vta.tokens.deadlock | balance | finish: as OrderOf and CheckFinishIsLast;
//   vta.tokens.race: the two instructions and what they share;
//   vta.tokens.uops: micro-ops that the stream itself stored. `dram` is the image at the start: the
//   micro-ops are read from it as the stream loads them.
// Takes O(n log n) of the ranges that the instructions touch.
absl::Status CheckTokens(const Isa& isa, std::span<const Word128> words,
                         const std::vector<uint8_t>& dram);

}  // namespace tilewright::vta
