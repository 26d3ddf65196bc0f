// Which iterations of a loop depend on one another. Decided from the iteration types of blocks
// while there are any (kScheduled), from the store indices after that. Conservative: "no" when in
// doubt. Pure functions; thread-safe.
#pragma once

#include <string>

#include "compiler/ir/ir.h"

namespace tilewright::analysis {

// True when the iterations of `loop` (a For) may run in any order and at the same time. With blocks
// below: when its variable reaches a variable of every block, and spatial ones only. Without: when
// for each buffer stored to (and not allocated) below, every access provably stays in a part of it
// that belongs to one iteration. `why` (optional) gets the reason for a no. Blocks that compute
// overlapping parts of a buffer in different iterations are the schedule's business (it knows which
// buffers become private).
bool IsParallelisable(const ir::Stmt& loop, std::string* why = nullptr);

// The loop's variable reaches a reduction variable of a block below.
bool IsReductionLoop(const ir::Stmt& loop);

// The iteration type the loop's variable has for the blocks below: kSpatial, kReduce, or the
// strongest of several (opaque > sequential > reduce > spatial). A loop that reaches no block
// variable repeats its body: kSequential.
ir::IterType LoopIterType(const ir::Stmt& loop);

}  // namespace tilewright::analysis
