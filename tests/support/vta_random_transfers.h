// Random loads of every memory of the accelerator: sizes, strides, places and zeros on all four
// sides, with every element that they write made visible in DRAM. Pure functions.
#pragma once

#include "deploy/support/rng.h"
#include "tests/support/vta_streams.h"
#include "vta/isa/isa.h"

namespace tilewright::tests {

// `steps` loads one after the other: of acc, stored as it is; of uop, run as micro-ops; of inp and
// wgt, multiplied. The memories of the configuration have at least 128 elements.
VtaCase RandomTransfers(const vta::Isa& isa, int steps, support::Rng* rng);

}  // namespace tilewright::tests
