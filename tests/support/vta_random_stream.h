// Random legal instruction streams of the accelerator, with the tokens that their conflicts need.
// Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "deploy/support/rng.h"
#include "tests/support/vta_streams.h"
#include "vta/isa/isa.h"

namespace tilewright::tests {

enum class VtaStreamKind : uint8_t {
  kProducts,     // loads of operands, products, stores of results
  kElementwise,  // loads of accumulators, ALU operations, stores of results
  kMixed,        // everything, micro-ops loaded again, and loads of what the stream stored
};
inline constexpr VtaStreamKind kVtaStreamKinds[] = {
    VtaStreamKind::kProducts, VtaStreamKind::kElementwise, VtaStreamKind::kMixed};
std::string_view VtaStreamKindText(VtaStreamKind kind);

// At first the stream writes every element that it uses later, so that its result depends on DRAM
// only. Then `length` random instructions follow, and a finish. Any two instructions of different
// modules that touch the same element, one of them writing, are ordered by tokens; some tokens
// order nothing. The configuration has memories of at least 16 elements.
VtaCase RandomStream(const vta::Isa& isa, VtaStreamKind kind, int length, support::Rng* rng);

}  // namespace tilewright::tests
