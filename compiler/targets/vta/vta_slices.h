// Stores, cut so that nothing waits for a whole tile. Pure functions.
#pragma once

#include <vector>

#include "compiler/targets/vta/vta_tokens.h"
#include "compiler/targets/vta/vta_uops.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Cuts results (the ALU operations on a tile of sums, and the stores of these) into slices, of one
// size or each half of what is left, where that takes fewer cycles:
//   operations, store  →  operations 0, store 0, operations 1, store 1, …
// Slices are stored while compute is at the next ones. That pays where something waits for the
// store: the next sums at this place, and the end of the stream. There the last slice is all that
// is left to store when compute is done. Results whose operations do not go over the stored
// elements one after the other stay whole. `uops` gets the micro-ops of the slices, but not more
// than the chip holds at the same time.
void SliceStores(const Isa& isa, MicroOpTable* uops, std::vector<VtaEvent>* events);

}  // namespace tilewright::vta
