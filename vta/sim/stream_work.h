// What a run asked of the hardware, for a roofline: products and bytes against the most of both in
// a cycle. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "vta/isa/isa.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::vta {

struct StreamWork {
  int64_t products = 0;  // of a vector and a matrix of a block
  // Of the channel of DRAM that moves more: reads and writes have a channel each.
  int64_t bytes = 0;
  double peak_products = 0, peak_bytes = 0;  // the most in a cycle
};

// REQUIRES: the report is that of a run of `stream` on hardware of this timing.
StreamWork WorkOf(std::span<const Instruction> stream, const CycleReport& report,
                  const CycleTiming& timing);

}  // namespace tilewright::vta
