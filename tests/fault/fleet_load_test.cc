// A small version of the load harness (tests/long/load.py): mutual TLS, tokens, durable commits,
// steady work, a tracker that is killed under it. The bars are wide, for machines that do other
// things too; the figures are the long lane's.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "deploy/support/clock.h"
#include "tests/support/patience.h"
#include "tests/support/swarm_fleet.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kPatienceMs = 60'000;
constexpr int kAgents = 50;
constexpr size_t kFewest = 20;  // dispatches before the kill
constexpr double kDispatchBarMs = 3000;

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
  // Threads, of which there are more on larger machines, have memory of their own.
  if (kSlowdown == 1) {
    EXPECT_LT(fleet.RssKb() - empty_kb, 400 * kAgents + 256 * std::thread::hardware_concurrency());
  }

  fleet.StartWork();
  support::SleepMs(2000);
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + Patiently(kPatienceMs) * 1'000'000;
  std::vector<double> dispatch_ms;
  while (dispatch_ms.size() <= kFewest && clock.NowNs() < end_ns) {
    const std::vector<double> more = fleet.work()->TakeDispatchMs();
    dispatch_ms.insert(dispatch_ms.end(), more.begin(), more.end());
    support::SleepMs(10);
  }
  ASSERT_GT(dispatch_ms.size(), kFewest);
  EXPECT_LT(Quantile(dispatch_ms, 0.5), kDispatchBarMs);

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
