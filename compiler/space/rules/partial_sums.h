// Partial results of a reduction that the threads of a group share: what the rules about rows have
// in common. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/schedule/schedule.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {

// In place of a number of partial results that one thread adds up: all that are left, by the
// threads of a sub-group, each of which has the sum then.
inline constexpr int64_t kSubGroup = 0;

struct PartialSums {
  std::string block;
  size_t spatial = 0;  // its spatial iterators, which come first
};

// The blocks of partial results, by their handles: `terms` adds up every T-th term for one of T
// threads and leaves through `copy`; each level of the tree adds up some of the level before.
struct PartialBlocks {
  int terms = -1, copy = -1;
  std::vector<int> levels;
};

// Makes the innermost reduction loop of a nest of the block `parts` partial results, whose axis is
// the first or the last one; returns the block that computes them, -1 after an error.
int FactorSums(const PartialSums& sums, int loop, int64_t parts, const schedule::Schedule& s,
               StepMaker* make, const char* axis = "last");
// Makes `threads` partial results of a block, and a tree over them until `fan_in` are left.
PartialBlocks FactorTree(const PartialSums& sums, int64_t threads, int64_t fan_in,
                         const schedule::Schedule& s, StepMaker* make);
// Computes the partial results in shared memory, below the loop over groups, a thread for each.
void PlaceTree(const PartialSums& sums, const PartialBlocks& blocks, int group, StepMaker* make);

}  // namespace tilewright::space
