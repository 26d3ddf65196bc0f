// The knobs of one nest that is not tiled, and their meaning: lanes along the innermost spatial
// loop where the block has no reduction inside it, a few of them unrolled, the outermost spatial
// loops fused and run in parallel. Used for every block by parallel_vectorize_unroll, and for the
// stages around a tiled reduction by multi_level_tiling. Plain values; thread-safe for reading.
#pragma once

#include "compiler/space/block_info.h"
#include "compiler/space/space.h"

namespace tilewright::space {

class PlainNest {
 public:
  // Adds its knobs to the sketch that owns it.
  PlainNest(BlockInfo block, const target::Target& target, const KnobAdder& add);

  const BlockInfo& block() const { return block_; }
  bool Feasible(const Sketch& sketch, const Point& point) const;
  // All knobs at their first value: the nest is left as it is.
  bool Untouched(const Point& point) const;
  absl::Status Apply(const Sketch& sketch, const Point& point, schedule::Schedule* s) const;

 private:
  BlockInfo block_;
  size_t lanes_, unroll_, parallel_;
};

}  // namespace tilewright::space
