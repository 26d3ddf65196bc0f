// Pairs of a random program and a random legal schedule: what the differential tests of the
// schedule check, and how a failing pair is made small. The same seed gives the same pair.
// A tally belongs to one thread; everything else is stateless.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/equivalence.h"
#include "tests/support/random_ir.h"
#include "tests/support/random_schedule.h"

namespace tilewright::tests {

struct PairOptions {
  // Runs the scheduled function; the interpreter when empty.
  FunctionRunner runner = {};
  // Sizes of intermediates that are known at run time only; code generation wants constants.
  bool symbolic = true;
  bool check_races = true;
  std::vector<std::string> without = {};  // primitives that the runner has no code for
  // Wasteful schedules (tiles recomputed in tiles) are cut off here; they are counted.
  int64_t max_steps = 150'000;
};

// Counts over many pairs.
struct PairTally {
  std::map<std::string, int> accepted, refused;  // per primitive
  int64_t pairs = 0, cut_off = 0, steps = 0;

  void Add(const RandomScheduleResult& result);
  void Add(const PairTally& other);
  // A line per primitive: applied, refused.
  std::string Table() const;
  // Primitives that were applied less often than `least`, those left out aside.
  std::string AppliedLessThan(int least, const std::vector<std::string>& without = {}) const;
};

// Small kernels as operators make them, and random ones.
RandomProgram PairProgram(uint64_t seed, bool symbolic);

// One pair. Empty when all is well; otherwise the failure, shrunk: the seed, what differs, the
// program and the fewest steps that still fail, as text.
std::string CheckPair(uint64_t seed, const PairOptions& options, PairTally* tally);

}  // namespace tilewright::tests
