// A loop program summed up for features and the analytical model: every store with the loops around
// it, what it computes per visit, and how its accesses move. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/tensor_intrinsics.h"

namespace tilewright::estimate {

struct LoopSummary {
  ir::Var var;
  int64_t min = 0;
  int64_t extent = 1;
  ir::ForKind kind = ir::ForKind::kSerial;
  bool moves_store = false;  // the store's address depends on it (a spatial loop)
  // A loop of the sum itself: it runs between the accumulator's start and its last value.
  bool reduces = false;
  // Of a loop whose tail is peeled: which part of a full iteration's work its last one has, as the
  // condition inside says; 1 where it is a full one.
  double last_share = 1;
  bool shared_out = false;  // by the threads of a sub-group, where there are any
  // Of a block axis: groups that share out its iterations; 0: each iteration is a group.
  int64_t groups = 0;
};

struct AccessSummary {
  ir::Buffer buffer;
  std::vector<ir::Expr> indices;
  int64_t element_bytes = 4;
  bool is_write = false;
  // Elements between neighbouring iterations of loops[i] (other loops at their first iteration).
  std::vector<int64_t> strides;
  // Distinct elements while loops[i..] run and the loops outside are fixed; unique.size() is one
  // more than the number of loops (the last entry is 1).
  std::vector<double> unique;
  // Of a statement in the threads of a group: elements from the first thread's place to that of
  // each of the first kSeenThreads, in their order. Empty outside of threads.
  std::vector<int64_t> thread_offsets;
  int64_t first = 0;  // the first thread's place, in elements from the buffer's start
};
// As many threads go in step on the machines that we know, or fewer.
inline constexpr int64_t kStepThreads = 32, kSeenThreads = 2 * kStepThreads;

struct OpCounts {  // per visit of the statement, scalar
  double add = 0, mul = 0, divide = 0, special = 0, compare = 0, select = 0, integer = 0;
  double dots = 0;  // dot products of a word of terms each
  double dot_terms = ir::kDotTerms;
  // Of a result of integers: vector operations on data, of which no multiplier adds, too. A product
  // is two (x86 vpmulld). `integer` counts index arithmetic of conditions as well.
  double whole = 0;
  double flops() const;
};

// A nest that an instruction for dot products computes is one statement: its lanes are a vector
// loop, and the bytes of a term's group one element of 32 bits.
struct StatementSummary {
  std::vector<LoopSummary> loops;       // outermost first
  std::vector<AccessSummary> accesses;  // the store first, then distinct loads
  OpCounts ops;
  bool guarded = false;      // under a condition or a mask
  bool peeled = false;       // the condition will be cut off as a tail (annotation tail=peel)
  bool accumulates = false;  // reads what it writes
  double iterations = 1;     // product of the extents
  size_t launch = 0;         // which of the program's
  int64_t ahead = 0;         // copies that run so many iterations before their use, unawaited
  bool fragments = false;    // of a warp: what it computes, loads or stores, all its threads do
  bool bulk = false;         // a copy that a unit next to the threads does

  double flops() const { return iterations * ops.flops(); }
  // Product of the extents of the loops of a kind.
  double Product(ir::ForKind kind) const;
  // Tiles of the launch (groups, unless these share the tiles out), threads of a group, iterations
  // of one thread for a tile; 1 where nothing is bound.
  double Groups() const;
  double LaunchedGroups() const;  // that share out the tiles
  double Threads() const;
  double ThreadIterations() const { return iterations / (Groups() * Threads()); }
};

// A nest of the program that no other nest is around: what a device of groups and threads runs at
// a time.
struct LaunchSummary {
  int64_t shared_bytes = 0;  // of one group, all versions of what is fetched ahead
  bool with_next = false;    // it and the next one are one launch (merge_launches)
};

struct ProgramSummary {
  std::vector<StatementSummary> statements;  // program order
  size_t critical = 0;                       // index of the one with most arithmetic
  std::vector<LaunchSummary> launches;       // program order
  double local_bytes = 0;                    // of all local allocations
  double global_alloc_bytes = 0;             // of all but local and shared ones
  double parameter_bytes = 0;
};

ProgramSummary Summarize(const ir::Function& loops);

}  // namespace tilewright::estimate
