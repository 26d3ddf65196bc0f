// How full the groups of a launch make a unit of a device of groups and threads. The space is
// bounded by it, and estimates of time and features read it. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "compiler/target/machine.h"

namespace tilewright::target {

// Returns how many groups of `threads` threads a unit runs at a time: as many as its threads, its
// shared memory, its registers and its places for groups allow, at least one. `shared_bytes` of one
// group, `registers` of one thread. Returns 0 if a group does not fit the limits of a launch.
int64_t GroupsPerUnit(const LaunchLimits& limits, int64_t threads, int64_t shared_bytes,
                      int64_t registers);
// Returns the threads in flight on a unit as a share of what it can hold: in (0, 1], or 0 if a
// group does not fit the limits of a launch.
double Occupancy(const LaunchLimits& limits, int64_t threads, int64_t shared_bytes,
                 int64_t registers);
// Returns the registers that each thread of such groups may have without fewer groups on a unit; 0
// where units do not count them.
int64_t FreeRegisters(const LaunchLimits& limits, int64_t threads);
// Returns the registers of a thread that computes a tile of `sums`, each step from `operands` that
// it has loaded; addresses and counters included.
int64_t TileRegisters(int64_t sums, int64_t operands);

}  // namespace tilewright::target
