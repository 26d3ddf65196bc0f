// A tile of a result that a group of threads computes, and its loops: what thread_tiles makes nests
// of. A thread has a register tile of rows, vectors and lanes. Plain values and pure functions;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/space/rules/work_shares.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {

// What a point says of the tile.
struct ThreadTile {
  size_t lane_axis = 0;
  int64_t lanes = 1, vectors = 1;
  std::vector<int64_t> threads, rows;  // by axis
  std::vector<int64_t> steps;          // terms of a step, by reduction iterator
  bool unroll = false, virtual_threads = false, staged = false, dots = false;
  bool swap_groups = false, last_axis_inside = false;
  bool double_buffer = false;
  int64_t padding = 0;      // of the rows of what is staged, in elements; or how they lie
  bool rows_apart = false;  // the padding or swizzle applies to something
  int64_t staged_bytes = 0;
  int64_t held = 0;  // terms of a row that are read into registers
  int64_t tiles_of_group = 1;
  int64_t parts = 1;              // of the sum
  bool last_wave = false;         // only that of the last wave's tiles
  bool parts_by_threads = false;  // parts lie as threads have them (ThreadOrder)

  // Threads of a group.
  int64_t group() const;
  // Results along an axis.
  int64_t extent(size_t axis) const {
    return threads[axis] * (axis == lane_axis ? vectors * lanes : rows[axis]);
  }
  int64_t shared_bytes() const { return staged_bytes * (double_buffer ? 2 : 1); }
};

// Returns the order of results in which all that neighbouring threads write at a time are
// neighbours: by tiles, within these by rows and vectors, then by threads, then by lanes.
std::vector<AxisDigit> ThreadOrder(const ThreadTile& t);

// Makes tiles of the nest that reads the sums; of sums in parts the first of its loops is over the
// parts. Returns the loop over tiles, or over those of a group; -1 after an error. `groups`: how
// many run at a time.
int TileConsumer(const ThreadTile& t, std::vector<int> loops, int64_t groups, StepMaker* make);

// Of a nest of sums: the innermost loop over steps, and the second innermost one over the terms of
// a step; -1: there is none.
struct SumLoops {
  int step = -1, outer_term = -1;
};
// Makes the nest of the sums of one tile. `axes`: its loops over the tile, `terms`: those over what
// is added up. `intrinsic`: of dot products.
SumLoops TileSums(const ThreadTile& t, const std::vector<int>& axes, std::vector<int> terms,
                  const std::string& intrinsic, StepMaker* make);

}  // namespace tilewright::space
