#include "compiler/targets/vta/vta_order.h"

#include <algorithm>

namespace tilewright::vta {
namespace {

bool Moves(const VtaEvent& event) {
  return event.instruction.op == Opcode::kAlu || event.instruction.op == Opcode::kStore;
}

// Stores have no reason to pass each other.
bool MayPass(const VtaEvent& event, const VtaEvent& earlier) {
  const bool both_store =
      event.instruction.op == Opcode::kStore && earlier.instruction.op == Opcode::kStore;
  return !both_store && !Conflict(earlier, event);
}

}  // namespace

void MoveOperationsForward(std::vector<VtaEvent>* events) {
  for (auto at = events->begin(); at != events->end(); ++at) {
    if (!Moves(*at)) continue;
    auto to = at;
    while (to != events->begin() && MayPass(*at, *(to - 1))) --to;
    std::rotate(to, at, at + 1);
  }
}

}  // namespace tilewright::vta
