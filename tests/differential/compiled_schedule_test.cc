// Random program × random legal schedule, compiled for every x86-64 level that this machine runs,
// on one and two threads, against the unscheduled program interpreted. TILEWRIGHT_SEED repeats a
// run, TILEWRIGHT_ROUNDS makes it longer.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/run_compiled.h"
#include "tests/support/schedule_pair.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

TEST(CompiledScheduleTest, CompiledResultsAreTheSame) {
  // Thread axes are no loops of a CPU; random_gpu_test runs them.
  const std::vector<std::string> without = {"bind", "virtual_thread"};
  PairTally tally;
  uint64_t seed = TestSeed(77);
  int64_t rounds = TestRounds(2000);
  std::vector<target::Target> targets = RunnableTargets();
  for (int64_t i = 0; i < rounds; ++i) {
    const target::Target& target = targets[static_cast<size_t>(i) % targets.size()];
    int threads = 1 + static_cast<int>(i % 2);
    PairOptions options;
    options.symbolic = false;
    options.without = without;
    options.runner = [&](const ir::Function& f, const std::vector<int64_t>& sizes,
                         std::vector<ir::TensorData*> args) {
      return RunCompiled(f, target, threads, sizes, std::move(args));
    };
    std::string failure = CheckPair(seed + static_cast<uint64_t>(i), options, &tally);
    ASSERT_EQ(failure, "") << target.ToString() << ", " << threads << " threads";
  }
  std::cout << tally.Table();
  if (rounds >= 500) {
    EXPECT_EQ(tally.AppliedLessThan(3, without), "");
  }
}

}  // namespace
}  // namespace tilewright::tests
