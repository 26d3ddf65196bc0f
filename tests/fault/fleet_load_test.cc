// A small version of the load harness (tests/long/load.py): mutual TLS, tokens, durable commits,
// steady work, a tracker that is killed under it. The bars are wide, for machines that do other
// things too; the figures are the long lane's.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/patience.h"
#include "tests/support/swarm_fleet.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kPatienceMs = 60'000;
constexpr int kAgents = 50;

TEST(FleetLoadTest, SteadyWorkGoesThroughAKilledTracker) {
  SwarmFleetOptions options;
  options.agents = kAgents;
  options.items_per_s = 100;
  options.measure_ms = 200;
  auto created = SwarmFleet::Create(options);
  ASSERT_TRUE(created.ok()) << created.status();
  SwarmFleet& fleet = **created;
  const double empty_kb = fleet.RssKb();
  const absl::Status connected = fleet.ConnectAgents(Patiently(kPatienceMs));
  ASSERT_TRUE(connected.ok()) << connected;
  // Of so few agents each also bears a share of what the first calls take.
  if (kSlowdown == 1) {
    EXPECT_LT((fleet.RssKb() - empty_kb) / kAgents, 400);
  }

  fleet.StartWork();
  support::SleepMs(2000);
  const std::vector<double> dispatch_ms = fleet.work()->TakeDispatchMs();
  EXPECT_GT(dispatch_ms.size(), 20u);
  EXPECT_LT(Quantile(dispatch_ms, 0.5), 1000);

  const uint64_t epoch = fleet.swarm()->Epoch();
  ASSERT_TRUE(fleet.KillTracker().ok());
  const absl::Status restarted = fleet.RestartTracker();
  ASSERT_TRUE(restarted.ok()) << restarted;
  const absl::Status synced = fleet.WaitUntilSynced(epoch, Patiently(kPatienceMs));
  ASSERT_TRUE(synced.ok()) << synced;

  support::SleepMs(500);
  ASSERT_TRUE(fleet.work()->Finish(Patiently(kPatienceMs)));
  const WorkCounts work = fleet.work()->counts();
  EXPECT_GT(work.submitted, static_cast<int64_t>(dispatch_ms.size())) << "work after the kill too";
  EXPECT_EQ(work.ended, work.submitted);
  EXPECT_EQ(work.refused, 0);
  EXPECT_EQ(work.ended_not_done, 0);
  EXPECT_EQ(work.ended_twice, 0);
  EXPECT_EQ(work.results_twice, 0);
  EXPECT_GE(fleet.swarm()->counts().acknowledged, work.ended);
}

}  // namespace
}  // namespace tilewright::tests
