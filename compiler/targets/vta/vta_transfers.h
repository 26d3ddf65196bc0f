// Loads and stores, cut. Pure functions.
#pragma once

#include <cstdint>

#include "compiler/targets/vta/vta_tokens.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Elements [from, from + size) of a load or a store, counted from its first. REQUIRES: no padding;
// whole rows, or a part of one.
VtaEvent PartOfTransfer(const Isa& isa, const VtaEvent& whole, int64_t from, int64_t size);

}  // namespace tilewright::vta
