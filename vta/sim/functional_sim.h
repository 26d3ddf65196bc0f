// The functional simulator: runs a stream in any order that the tokens allow. Three modules run
// their own instructions in order and wait for each other only through tokens; which module goes
// next is drawn from a seed, so a stream that lacks a dependence shows different results, and one
// that waits for ever is an error. One instruction is one step (datapath.h): overlap inside
// instructions is what token_check rules out. Objects belong to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "vta/isa/code_object.h"
#include "vta/isa/isa.h"
#include "vta/sim/datapath.h"

namespace tilewright::vta {

// Runs the stream, which is encoded for `isa`, on the DRAM image until every instruction is done.
// Addresses are those of the instructions: `dram_base` times the element size of the memory.
// On-chip memories start with arbitrary contents drawn from the seed.
//   vta.sim.bounds: an access outside a memory or the image; vta.sim.illegal: an instruction that
//   means nothing; vta.sim.deadlock: no module can go on; vta.sim.tokens: tokens left over at the
//   end; vta.sim.finish: no finish, or work after it.
absl::Status RunFunctional(const Isa& isa, std::span<const Word128> stream, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters = nullptr);

// The same for a program of a code object. vta.config.other: the object is for another
// configuration. REQUIRES: program < code.programs.size().
absl::Status RunFunctional(const Isa& isa, const CodeObject& code, size_t program, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters = nullptr);

}  // namespace tilewright::vta
