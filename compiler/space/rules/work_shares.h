// How the groups of a launch share out the tiles of a result: one each, several one after the
// other, or each its share, with as many groups as the machine runs at a time (a persistent
// kernel). And what becomes of tiles behind the last whole wave: sums in parts, so that all of the
// machine works on them (stream-K). What tensor_tiles and thread_tiles have in common. Pure
// functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/schedule/schedule.h"
#include "compiler/space/step_maker.h"
#include "compiler/target/machine.h"

namespace tilewright::space {

// A value of the knob `tiles_of_group`: the launch has as many groups as the machine runs at a
// time. Each does its share of the tiles, the last groups one fewer where they do not divide them.
// Other values are the number of tiles of each group.
inline constexpr int64_t kItsShare = 0;

// Returns the menu of the knob: 1, 2, 4 up to `most`, then kItsShare where groups are worth keeping
// (machines whose threads go in step). New values come last, so that points in logs stay what they
// were.
std::vector<int64_t> TilesOfGroupMenu(const target::LaunchLimits& limits, int64_t most);

// Returns how many groups of `threads` threads the machine runs at a time, of `shared_bytes` each
// and `registers` of a thread.
int64_t GroupsAtOnce(const target::LaunchLimits& limits, int64_t threads, int64_t shared_bytes,
                     int64_t registers);

// Returns whether a launch of `tiles` tiles may give each group `tiles_of_group`: a number that
// divides them, or kItsShare where some group has more than one. `groups`: GroupsAtOnce.
bool CanShareOut(int64_t tiles, int64_t tiles_of_group, int64_t groups);

// Binds a loop over tiles to groups and returns the loop whose iteration is a tile. REQUIRES:
// CanShareOut.
int BindGroups(int loop, int64_t tiles_of_group, int64_t groups, StepMaker* make);

// Values of the knob `parts`: n > 0 cuts each sum into n parts, which a second launch adds up; -n
// cuts only those of the last wave's tiles, into 8 at most. Returns 1, 2, 4, 8, where threads go in
// step -2, -4, -8, and powers of two from 16 up to `most`. New values come last, as above.
std::vector<int64_t> PartsMenu(const target::LaunchLimits& limits, int64_t most);
inline int64_t PartsOf(int64_t value) { return value < 0 ? -value : value; }

// Returns how many of `rows` rows of tiles, of `columns` tiles each, are whole sums where those of
// the last wave are in parts: as many as whole waves of `groups` hold. 0: there is no such
// division, as all tiles are one wave or waves have no rest.
int64_t WholeWaveRows(int64_t rows, int64_t columns, int64_t groups);

// A block P and the block O that takes its sums, divided along their outermost loops: those of the
// last wave's tiles are nests of their own.
struct LastWave {
  int p = -1, o = -1, p_rest = -1, o_rest = -1;
};
// Divides both blocks (O: -1 for a copy of the result) at iteration `first` of their outermost
// loops. Returns handles of -1 after an error. REQUIRES: P has `iters` iterators, a loop for each.
LastWave CutLastWave(int64_t first, int p, int o, size_t iters, const schedule::Schedule& s,
                     StepMaker* make);

// Some of an axis of a result: `extent` values of index / div; 0: all that are left. Those of an
// axis make up its index.
struct AxisDigit {
  size_t axis = 0;
  int64_t div = 1, extent = 0;
};

// Cuts the sums of block P into parts, which are results of a block of their own, and adds these up
// in a launch of P's, with O behind it (-1: a copy of the result). `terms`: which of P's loops is
// cut. `threads`: of a group of that launch; they divide its results. `order`: that in which
// neighbouring threads take the results; empty: as they lie. Returns the block of the parts, whose
// loop over them is in front of that over its terms; -1 after an error. REQUIRES: `parts` divides
// the loop, and a part has more than one of its terms; with an order, O's loops are its axes.
int AddUpParts(int64_t parts, int p, int o, size_t terms, int64_t threads,
               const std::vector<AxisDigit>& order, const schedule::Schedule& s, StepMaker* make);

// Returns the index map of parts that lie in that order: one after the other, of each its results.
std::string PartsLayout(const std::vector<AxisDigit>& order);

}  // namespace tilewright::space
