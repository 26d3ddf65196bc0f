// The whole fleet in simulation, many seeds: nothing measured is lost or counted twice, no lease is
// held for ever, every job ends with every trial's outcome typed, whatever breaks. A failing run
// prints its seed; TILEWRIGHT_SEED=N TILEWRIGHT_ROUNDS=1 replays it.
// Promises R3, R9, R12, R14, R18 and R21 of tests/README.md.
#include <gtest/gtest.h>

#include <cstdio>

#include "deploy/support/strings.h"
#include "tests/sim/sim_fleet.h"
#include "tests/support/test_seed.h"

namespace tilewright::sim {
namespace {

TEST(FleetSimTest, NothingIsLostOrStuckWhateverBreaks) {
  const uint64_t first = tests::TestSeed(1);
  const int64_t rounds = tests::TestRounds(200);
  FleetCounts all;
  for (int64_t i = 0; i < rounds; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SimFleet fleet(seed, {});
    const std::string failure = fleet.Run();
    all.Add(fleet.counts());
    if (failure.empty()) continue;
    ADD_FAILURE() << failure << "\nstory:\n"
                  << fleet.world().Story() << "replay: TILEWRIGHT_SEED=" << seed
                  << " TILEWRIGHT_ROUNDS=1 fleet_sim_test";
    break;
  }
  std::printf("%lld fleets: %s\n", static_cast<long long>(rounds), all.Text().c_str());
  // A run that exercised nothing proves nothing; a replay of one seed is no such run.
  if (rounds < 20) return;
  EXPECT_GT(all.results, rounds * 5);
  EXPECT_GT(all.kills, rounds);
  EXPECT_GT(all.spared, rounds) << "jobs with the same tasks did not share them";
}

// That jobs end soon after the repair is looked at: nobody is as quick as asked for here.
TEST(FleetSimTest, AJobThatEndsTooLateIsSeen) {
  FleetOptions impatient;
  impatient.heal_ns = kSecond / 10;
  int seen = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimFleet fleet(seed, impatient);
    const std::string failure = fleet.Run();
    seen += failure.find("after the repair") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(seen, 0);
}

TEST(FleetSimTest, ASeedReplaysEventByEvent) {
  std::string stories[2];
  FleetCounts counts[2];
  for (int i = 0; i < 2; ++i) {
    SimFleet fleet(7, {});
    EXPECT_EQ(fleet.Run(), "");
    stories[i] = fleet.world().Story();
    counts[i] = fleet.counts();
  }
  EXPECT_EQ(stories[0], stories[1]);
  EXPECT_EQ(counts[0].Text(), counts[1].Text());
}

TEST(FleetSimTest, WithoutFaultsAJobTakesItsTimeAndNoMore) {
  FleetOptions calm;
  calm.faults = false;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimFleet fleet(seed, calm);
    EXPECT_EQ(fleet.Run(), "") << seed;
    EXPECT_LT(fleet.counts().simulated_s, 120) << seed;
  }
}

}  // namespace
}  // namespace tilewright::sim
