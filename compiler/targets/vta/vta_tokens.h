// Dependence flags of an instruction stream, derived from the regions that its instructions touch.
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Elements [begin, end) of a scope (any numbering of memories), one of an instruction's operands.
struct VtaRegion {
  int space = 0;
  int64_t begin = 0, end = 0;
  bool is_write = false;
};
struct VtaEvent {
  vta::Instruction instruction;
  std::vector<VtaRegion> regions;
};

// Whether both touch one element and one of them writes it: then their order matters.
bool Conflict(const VtaEvent& a, const VtaEvent& b);

// Sets pop and push flags so that of two instructions of different modules that touch one element,
// one of them writing, the earlier is done before the later starts; a `finish` waits for all. Each
// later instruction waits for the last of the earlier ones only: what came before that is done too.
// codegen.vta.dram_hazard where load and store modules, which are no neighbours, would have to wait
// for each other.
absl::Status DeriveVtaTokens(std::vector<VtaEvent>* events);

}  // namespace tilewright::vta
