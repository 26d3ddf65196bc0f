// What an access of threads that go in step asks of memory: transactions of global memory, turns of
// the banks of shared memory. From the addresses of the first threads, on average over where in a
// transaction they begin. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "compiler/estimate/loop_summary.h"
#include "compiler/target/target.h"

namespace tilewright::estimate {

// One access by threads that go in step, each of all lanes of its vector.
struct StepAccess {
  double accesses = 1;      // of a thread: a vector of more than its widest one is several
  double transactions = 1;  // of memory, that they take, on average over where they begin
  double coalesced = 1;     // transactions that its bytes would fill / those that it takes
  double bank_cycles = 1;   // of shared memory, that it takes
  double conflicts = 1;     // bank_cycles / those without two words in one bank
};
// `step` threads go in step: on average over the first two times as many, for the second ones may
// begin in the middle of a row. REQUIRES: step >= 1.
StepAccess AnalyzeStep(const StatementSummary& statement, const AccessSummary& access,
                       const target::LaunchLimits& limits, int64_t step);

// Returns the statement with the loops over threads inside all others, as far as memory sees it:
// threads in step touch what each of them wants before any of them continues.
StatementSummary InStep(const StatementSummary& statement);

}  // namespace tilewright::estimate
