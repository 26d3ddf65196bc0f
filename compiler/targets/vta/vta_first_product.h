// The beginning of a stream, cut so that compute does not wait for all operands. Pure functions.
#pragma once

#include <vector>

#include "compiler/targets/vta/vta_tokens.h"
#include "compiler/targets/vta/vta_uops.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Cuts the first product of a stream into parts along its outer loop, and the loads that it waits
// for into what each part needs more than those before it:
//   load A, load B, product  →  load A, load B 0, load B 1, …, product 0, product 1, …
// Nothing else hides these loads: each later product has others before it. What compute loads for
// later operations may also come behind a part. Chooses the beginning with the fewest cycles until
// the next product begins. `uops` gets the micro-ops of the parts, but not more than the chip holds
// at the same time.
void SliceFirstProduct(const Isa& isa, MicroOpTable* uops, std::vector<VtaEvent>* events);

}  // namespace tilewright::vta
