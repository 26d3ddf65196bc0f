// The analytical model: an estimate of a program's time from first principles, before anything was
// measured: arithmetic against the FMA units (latency, registers, load ports), bytes against each
// level of the memory hierarchy, and how evenly the parallel tasks fill the cores. It is the prior
// of the search, and its parts are features of the learned model. Pure functions; thread-safe.
//
// The form follows the roofline model per level (Williams et al., CACM 2009) with the register-tile
// rules of BLIS (Low et al., TOMS 2016): FMA latency x throughput independent accumulators, and no
// more vectors alive than registers.
#pragma once

#include "compiler/estimate/loop_summary.h"
#include "compiler/target/target.h"

namespace tilewright::estimate {

// The inner kernel of a statement: what stays in registers and what moves per vector operation.
struct RegisterTile {
  double lanes = 1;              // elements computed by one vector operation
  double accumulators = 1;       // vectors that are summed up side by side
  double registers = 1;          // vectors alive
  double spill = 0;              // registers beyond what there are
  double loads_per_op = 0;       // vector loads and broadcasts per vector operation
  double slow_lanes_per_op = 0;  // elements gathered or scattered one by one per vector operation
  double body_ops = 1;           // vector operations of the unrolled body
  // Loads with what the body needs twice loaded once, as far as registers go; live: vectors of
  // sums and of all that it loads.
  double distinct_loads_per_op = 0;
  double live = 1;
  double bodies = 1;   // runs of the body
  double vectors = 1;  // of a visit of the innermost unrolled loop
};
// Loads of one access in a run of the body: vectors, or broadcasts of an element.
struct BodyLoads {
  double all = 1;
  double distinct = 1;  // with what the body needs twice loaded once
  bool vector_moves = false;
  int64_t vector_stride = 0;  // elements between lanes
};
BodyLoads LoadsOf(const StatementSummary& statement, const AccessSummary& access,
                  const RegisterTile& tile);
RegisterTile AnalyzeTile(const StatementSummary& statement, const target::Target& target);
// Whether the generated code runs it as a loop; the others are vectors or copies of the body.
bool IsRolled(const LoopSummary& loop);
// Returns the index of the first loop inside the innermost rolled one: the straight-line body.
size_t BodyStart(const StatementSummary& statement);
// Returns the bytes that cross into a level of `size` bytes, of which a working set may use
// `share`. `fill`: of the nest that first exceeds the level, relative to its size.
double Traffic(const StatementSummary& statement, double size, double share, double* fill);
// Returns which part of the traffic into the last level, of `size` bytes, comes from memory.
double MissShare(double footprint, double size);

// Seconds x 1e9 of one run on the target's threads.
struct TimeEstimate {
  double compute_ns = 0;        // critical statement, FMA units and ports
  double other_ns = 0;          // the other statements: arithmetic,
  double other_traffic_ns = 0;  // and what their traffic adds to it
  double second_ns = 0;         // the longest of those
  double l2_ns = 0;             // traffic into L1
  double l3_ns = 0;             // traffic into L2
  double memory_ns = 0;         // traffic into L3
  double overhead_ns = 0;       // loop control and parallel regions
  double tail = 1;              // cycles with peeled tails / cycles if every tile were full
  double balance = 1;           // makespan / perfectly even share of the parallel tasks
  double total_ns = 0;
  // Bytes of the loop nest that first exceeds each level, relative to the level's size.
  double l1_fill = 0, l2_fill = 0, l3_fill = 0;
  double l2_bytes = 0, l3_bytes = 0, memory_bytes = 0;  // traffic
};
// Of a machine of groups and threads: by group_model.h.
TimeEstimate EstimateTime(const ProgramSummary& program, const target::Target& target);
// Returns the cycles of the statement's arithmetic for one vector of results, which belongs to one
// of `sums` independent sums.
double ArithmeticCycles(const StatementSummary& statement, double sums,
                        const target::Machine& machine);
// Returns the parts put together: they overlap with arithmetic, but not perfectly. The largest
// counts in full, of the rest this share.
double Overlapped(const TimeEstimate& t, double share);

}  // namespace tilewright::estimate
