// Whether a stream stays inside of the on-chip memories. Simulators report an element beyond a
// memory when they come to it; hardware takes another element and says nothing. So drivers ask
// before a stream runs. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// vta.sim.bounds: the first instruction that touches an element beyond its memory. `dram` is the
// image at the start, which has the micro-ops. Takes the time of the micro-ops of each instruction,
// however often its loops run.
absl::Status CheckOnChipBounds(const Isa& isa, std::span<const Instruction> stream,
                               std::span<const uint8_t> dram);

}  // namespace tilewright::vta
