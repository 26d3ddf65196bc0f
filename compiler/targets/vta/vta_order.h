// The order of a stream's instructions: operations on sums follow the product that they wait for.
// Pure functions.
#pragma once

#include <vector>

#include "compiler/targets/vta/vta_tokens.h"

namespace tilewright::vta {

// Moves ALU operations, and the stores of what they made, in front of the instructions before them
// that touch nothing of theirs: the products of other threads. So
//   product 0, product 1, operations 0, operations 1, store 0, store 1
// becomes
//   product 0, operations 0, store 0, product 1, operations 1, store 1:
// while one thread's results are stored, compute works for the other threads, which have more time
// to load their operands. Conflicting instructions keep their order, so results are the same.
void MoveOperationsForward(std::vector<VtaEvent>* events);

}  // namespace tilewright::vta
