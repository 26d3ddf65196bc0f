// Which iterations of a loop depend on one another. Decided from the iteration types of blocks
// while there are any (kScheduled), from the store indices after that. Conservative: "no" when in
// doubt. Pure functions; thread-safe.
#pragma once

#include <string>

#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// True when the iterations of `loop` (a For) may run in any order and at the same time: its
// variable reaches only spatial iteration variables of the blocks below and every block's written
// point is different in different iterations; without blocks, when each written buffer's store
// indices provably differ between iterations and nothing is read from elsewhere in it. `why`
// (optional) gets the reason for a no.
bool IsParallelisable(const ir::Stmt& loop, std::string* why = nullptr);

// The loop's variable reaches a reduction variable of a block below.
bool IsReductionLoop(const ir::Stmt& loop);

// The iteration type the loop's variable has for the blocks below: kSpatial, kReduce, or the
// strongest of several (opaque > sequential > reduce > spatial). A loop that reaches no block
// variable repeats its body: kSequential.
ir::IterType LoopIterType(const ir::Stmt& loop);

}  // namespace tilewright::analysis
