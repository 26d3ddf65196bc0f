// Which intermediate buffers can live in registers: those whose every access has constant indices
// once loops are unrolled and vectorised. Such a buffer is cut into slots, one value of the
// generated code each; an access that does not match a slot is assembled from lanes. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// The elements that one value holds, lane by lane. They need not lie together in the buffer:
// registers have no addresses.
using LocalSlot = std::vector<int64_t>;
struct SlotPlan {
  bool promotable = false;
  std::vector<LocalSlot> slots;
  struct Place {
    int slot;
    int lane;
  };
  std::map<int64_t, Place> elements;  // where each element is
  // Slots whose every access is whole and under one and the same mask: no other lane is ever
  // observed, so accesses need not mask anything.
  std::vector<bool> ignore_masks;
};

// `outlined_loops`: parallel loops in `body` become functions of their own, whose accesses need
// memory.
SlotPlan PlanSlots(const ir::Buffer& buffer, const ir::Stmt& body, bool outlined_loops);

}  // namespace tilewright::codegen
