// A tile of a result that a group of threads computes, and its loops: what thread_tiles makes nests
// of. A thread has a register tile of rows, vectors and lanes. Plain values and pure functions;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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
  int64_t parts = 1;       // of the sum
  bool last_wave = false;  // only that of the last wave's tiles

  // Threads of a group.
  int64_t group() const;
  // Results along an axis.
  int64_t extent(size_t axis) const {
    return threads[axis] * (axis == lane_axis ? vectors * lanes : rows[axis]);
  }
  int64_t shared_bytes() const { return staged_bytes * (double_buffer ? 2 : 1); }
};

// The loops that an axis of a nest is split into; -1: there is none.
struct AxisLoops {
  int group = -1, thread = -1, row = -1, vector = -1, lane = -1;
};
// Splits the loops of a nest, one for each axis of the tile. `groups`: the nest has all tiles, else
// one. Returns nothing after an error.
std::vector<AxisLoops> SplitAxes(const ThreadTile& t, const std::vector<int>& loops, bool groups,
                                 StepMaker* make);

// Returns the loops over a group's threads, outermost first.
std::vector<int> ThreadLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes);
// Returns the loop over virtual threads, around the threads; none where a thread's vectors are
// neighbours.
std::vector<int> VirtualLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes);
// Returns the loops of a register tile, outermost first: rows, vectors, lanes.
std::vector<int> RegisterLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes);
// Maps virtual threads and the loops of a register tile, all but the lanes.
void MapRegisters(const std::vector<int>& virtual_loops, const std::vector<int>& loops,
                  StepMaker* make);

}  // namespace tilewright::space
