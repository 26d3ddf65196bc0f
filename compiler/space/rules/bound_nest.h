// One nest without reduction on devices of groups and threads: a thread for each element, or for a
// vector of neighbours. Used for the stages around a tiled reduction. Plain values; thread-safe for
// reading.
#pragma once

#include "compiler/space/block_info.h"
#include "compiler/space/space.h"
#include "compiler/space/step_maker.h"
#include "compiler/target/occupancy.h"

namespace tilewright::space {

// Returns the largest number of threads for elements of these extents, at least 1 and up to `most`.
// A group of that many has whole rows, whole planes and so on, or a part of one that divides it.
// With any other number the schedule cannot prove that each element has one thread.
int64_t WholeThreads(const std::vector<int64_t>& extents, int64_t most);

// Returns whether groups of `threads` threads keep a unit of the machine busy (target::Occupancy):
// at least a tenth of what it holds, or as much as the fullest group of up to `most_threads`
// threads could.
bool IsFullEnough(const target::LaunchLimits& limits, int64_t most_threads, int64_t threads,
                  int64_t shared_bytes, int64_t registers);

class BoundNest {
 public:
  // Returns whether the block is such a nest.
  static bool Fits(const BlockInfo& block);
  // Adds its knobs to the sketch that owns it. REQUIRES: Fits(block).
  BoundNest(BlockInfo block, const target::Target& target, const KnobAdder& add);

  const BlockInfo& block() const { return block_; }
  // All knobs are at their first value.
  bool Untouched(const Point& point) const;
  // Makes the nest a launch of its own.
  void Apply(const Sketch& sketch, const Point& point, const schedule::Schedule& s,
             StepMaker* make) const;

 private:
  BlockInfo block_;
  size_t threads_, lanes_;
};

}  // namespace tilewright::space
