// The analytical model of devices of groups and threads. It describes a launch: what is in flight
// on a unit (occupancy), how accesses coalesce and meet banks. It estimates its time from bytes
// against bandwidth and arithmetic against throughput. All numbers are the machine's. Pure
// functions; thread-safe.
//
// The form follows the roofline model per level, with the latency that few threads in flight leave
// visible and the tail of the last wave (Hong and Kim, ISCA 2009). A machine whose threads run one
// after the other (warp 1, unit_threads 1: a driver for processors) is the plain case: nothing
// coalesces between threads, and a barrier makes each thread put its sums away.
#pragma once

#include "compiler/estimate/analytical_model.h"
#include "compiler/estimate/loop_summary.h"
#include "compiler/estimate/step_access.h"
#include "compiler/target/target.h"

namespace tilewright::estimate {

// A launch on a unit.
struct LaunchShape {
  double groups = 1, threads = 1;  // threads of a group
  double tiles = 1;                // of all groups; a group has one, or its share of them
  double registers = 0;            // of a thread
  double shared_bytes = 0;         // of a group
  double barriers = 0;             // that a group comes to
  double groups_per_unit = 1;      // at a time
  double occupancy = 0;            // 0: the limits of a launch refuse it
  double starts = 1;               // rounds of groups that start on all units
  double waves = 1;                // rounds of tiles on all units
  double tail = 1;                 // what the waves could run / the tiles
};
LaunchShape AnalyzeLaunch(const ProgramSummary& program, size_t launch,
                          const target::Target& target);

struct GroupEstimate {
  LaunchShape shape;      // of the launch of the critical statement
  double barrier_ns = 0;  // of that launch
  double launch_ns = 0;   // to start launches and groups, of all
  // The parts are those of the critical launch; other_ns: all other launches.
  TimeEstimate time;
};
// REQUIRES: target.machine.has_groups().
GroupEstimate EstimateGroups(const ProgramSummary& program, const target::Target& target);

// Returns the target as one thread sees it: vectors of what one operation of a thread computes, and
// the thread's registers. AnalyzeTile of it is the register tile of a thread.
target::Target ThreadTarget(const target::Target& target);

}  // namespace tilewright::estimate
