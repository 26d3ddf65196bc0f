// Random program × random legal schedule: every step verifies, and the scheduled function computes
// what the unscheduled one does, by the interpreter. TILEWRIGHT_SEED repeats a run,
// TILEWRIGHT_ROUNDS makes it longer. A failing pair is printed as text with the fewest steps that
// still fail.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/schedule_pair.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

TEST(RandomScheduleTest, InterpretedResultsAreTheSame) {
  PairTally tally;
  uint64_t seed = TestSeed(2024);
  int64_t rounds = TestRounds(1500);
  for (int64_t i = 0; i < rounds; ++i) {
    std::string failure = CheckPair(seed + static_cast<uint64_t>(i), {}, &tally);
    ASSERT_EQ(failure, "");
  }
  std::cout << tally.Table();
  // The test says something only while every primitive is applied often and schedules are long.
  if (rounds < 1000) return;
  EXPECT_EQ(tally.AppliedLessThan(10), "");
  EXPECT_GE(tally.steps, 3 * rounds);
  EXPECT_LE(tally.cut_off, rounds / 20);
}

}  // namespace
}  // namespace tilewright::tests
