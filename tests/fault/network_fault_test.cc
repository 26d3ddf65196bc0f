// The real tracker, real agents and a tuner's client over links that misbehave
// (support/fault_proxy): whatever the network does, no measurement is lost or counted twice, and
// when the network is well again all work ends soon. Each seed is a fleet of its own;
// TILEWRIGHT_ROUNDS is their number, tests/long/network_faults.py runs 100.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "tests/fault/busy_fleet.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

constexpr int kFaultsPerSeed = 12;
// From the moment the network is well to the end of all work. A connection that nobody told that it
// is dead is given up after 15 s (keepalive, deploy/daemon/wire.h). All ends within 25 s; the rest
// is room for machines that do other things too.
constexpr int64_t kRecoveryMs = 60'000;

LinkFault RandomFault(support::Rng* rng) {
  LinkFault fault;
  switch (rng->Uniform(5)) {
    case 0:
      fault.delay_ms = rng->UniformInt(5, 150);
      fault.jitter_ms = rng->UniformInt(0, 100);
      break;
    case 1:
      fault.bytes_per_s = rng->UniformInt(2'000, 200'000);
      break;
    case 2:
      fault.stall_up = true;
      fault.stall_down = rng->Bernoulli(0.5);
      break;
    case 3:
      fault.stall_down = true;
      break;
    default:
      fault.refuse = true;
  }
  return fault;
}

struct Totals {
  int64_t faults = 0, connections = 0, broken = 0;
  size_t items = 0, measurements = 0;
  double slowest_recovery_s = 0;
};

void RunSeed(uint64_t seed, Totals* totals) {
  support::Rng rng(seed);
  BusyFleet fleet;
  ASSERT_NO_FATAL_FAILURE(fleet.StartTracker());
  std::array<std::unique_ptr<FaultProxy>, 2> links;  // of the agents, of the consumer
  for (auto& link : links) {
    auto made = FaultProxy::Start(fleet.address(), rng.Uniform(UINT64_MAX));
    ASSERT_TRUE(made.ok()) << made.status();
    link = *std::move(made);
  }
  ASSERT_NO_FATAL_FAILURE(fleet.StartWork(links[0]->address(), links[1]->address()));
  for (int i = 0; i < kFaultsPerSeed; ++i) {
    FaultProxy* link = links[rng.Bernoulli(0.7) ? 0 : 1].get();
    // Shorter and longer than a lease.
    const int64_t ms = rng.Bernoulli(0.1) ? rng.UniformInt(1500, 2500) : rng.UniformInt(10, 400);
    if (rng.Bernoulli(0.5)) link->CutConnections(static_cast<Cut>(rng.Uniform(kCutCount)));
    if (rng.Bernoulli(0.6)) link->SetLink(RandomFault(&rng));
    fleet.RunFor(ms);
    if (rng.Bernoulli(0.7)) link->Heal();
    fleet.RunFor(rng.UniformInt(0, 200));
  }
  for (auto& link : links) link->Heal();
  support::SystemClock clock;
  const int64_t healed_ns = clock.NowNs();
  ASSERT_TRUE(fleet.Finish(kRecoveryMs)) << "seed " << seed << "\n" << fleet.Logs();
  const double recovery_s = static_cast<double>(clock.NowNs() - healed_ns) * 1e-9;
  fleet.CheckEveryMeasurement();
  totals->faults += kFaultsPerSeed;
  totals->items += fleet.items();
  totals->measurements += fleet.measurements();
  totals->slowest_recovery_s = std::max(totals->slowest_recovery_s, recovery_s);
  for (const auto& link : links) {
    totals->connections += link->connections();
    totals->broken += link->broken();
  }
}

TEST(NetworkFaultTest, NoLinkHoweverBadLosesOrRepeatsAMeasurement) {
  const uint64_t first = TestSeed(1);
  const int64_t seeds = TestRounds(5);
  Totals totals;
  for (int64_t i = 0; i < seeds; ++i) {
    SCOPED_TRACE(first + static_cast<uint64_t>(i));
    RunSeed(first + static_cast<uint64_t>(i), &totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.broken, 0);
  EXPECT_GT(totals.items, 0u);
  std::printf(
      "counts: seeds=%lld faults=%lld connections=%lld broken=%lld items=%zu measurements=%zu "
      "slowest_recovery_s=%.1f\n",
      static_cast<long long>(seeds), static_cast<long long>(totals.faults),
      static_cast<long long>(totals.connections), static_cast<long long>(totals.broken),
      totals.items, totals.measurements, totals.slowest_recovery_s);
}

}  // namespace
}  // namespace tilewright::tests
