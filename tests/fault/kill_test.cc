// Random deaths and pauses of real tracker and agent processes at any moment, hundreds of them in
// one run: no measurement is lost and none counts twice, per measurement id, in both directions.
// TILEWRIGHT_ROUNDS is the number of deaths and pauses; tests/long/kills.py makes 10,000 of them.
// Promise R1 of tests/README.md.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "tests/fault/busy_fleet.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kPatienceMs = 60'000;
constexpr double kMeanPauseMs = 100;
constexpr int64_t kMostProgressWaits = 100;
constexpr int64_t kProgressWaitMs = 10;
// Fewer items than this per death, and the deaths met an idle fleet: they prove nothing.
constexpr double kItemsPerDeath = 0.25;

// Chooses victims and moments.
class Reaper {
 public:
  Reaper(BusyFleet* fleet, const BusyFleetOptions& options, uint64_t seed)
      : fleet_(fleet), options_(options), rng_(seed) {}

  // One death or one pause, after a random time.
  void Strike() {
    fleet_->RunFor(static_cast<int64_t>(-kMeanPauseMs * std::log1p(-rng_.UniformDouble())));
    if (rng_.Bernoulli(0.5)) WaitForProgress(kMostProgressWaits);
    if (Behind()) WaitForProgress(kPatienceMs / kProgressWaitMs);
    ++strikes_;
    Resume(false);
    LoopbackDaemon* victim = ChooseVictim();
    if (rng_.Bernoulli(0.1)) {
      Pause(victim);
      return;
    }
    paused_.erase(victim);
    fleet_->KillAndRestart(victim);
    ++(victim == fleet_->tracker() ? tracker_kills_ : agent_kills_);
  }

  void ResumeAll() { Resume(true); }
  int64_t tracker_kills() const { return tracker_kills_; }
  int64_t agent_kills() const { return agent_kills_; }
  int64_t pauses() const { return pauses_; }

 private:
  // Strikes came faster than this machine works: they would hit daemons that only start.
  bool Behind() const {
    return static_cast<double>(fleet_->finals()) < kItemsPerDeath * static_cast<double>(strikes_);
  }

  // On a busy machine daemons may do little but start: half of the strikes come when something has
  // been done since the last, and a moment later.
  void WaitForProgress(int64_t most_waits) {
    for (int64_t i = 0; i < most_waits && fleet_->finals() <= progress_; ++i) {
      Resume(false);
      fleet_->RunFor(kProgressWaitMs);
    }
    progress_ = fleet_->finals();
    fleet_->RunFor(rng_.UniformInt(0, 40));
  }

  // An agent takes half a second to start: mostly one that has work to lose.
  LoopbackDaemon* ChooseVictim() {
    if (rng_.Bernoulli(0.3)) return fleet_->tracker();
    LoopbackDaemon* agent = fleet_->agent(rng_.Uniform(fleet_->agents()));
    const bool starting = !support::FileExists(agent->port_file());
    return starting && rng_.Bernoulli(0.8) ? fleet_->tracker() : agent;
  }

  // One in five pauses is longer than a lease: the process wakes up as somebody that others have
  // given up.
  void Pause(LoopbackDaemon* victim) {
    const int64_t ms =
        rng_.Bernoulli(0.2) ? options_.lease_ttl_ms * 3 / 2 : rng_.UniformInt(20, 400);
    if (!victim->Signal(SIGSTOP)) return;
    paused_[victim] = clock_.NowNs() + ms * 1'000'000;
    ++pauses_;
  }

  void Resume(bool all) {
    std::erase_if(paused_, [&](const auto& entry) {
      if (!all && clock_.NowNs() < entry.second) return false;
      entry.first->Signal(SIGCONT);
      return true;
    });
  }

  BusyFleet* const fleet_;
  const BusyFleetOptions options_;
  support::SystemClock clock_;
  support::Rng rng_;
  std::map<LoopbackDaemon*, int64_t> paused_;  // until when
  size_t progress_ = 0;                        // items done at the last such strike
  int64_t strikes_ = 0;
  int64_t tracker_kills_ = 0;
  int64_t agent_kills_ = 0;
  int64_t pauses_ = 0;
};

TEST(KillTest, RandomDeathsLoseNothingAndCountNothingTwice) {
  const uint64_t seed = TestSeed(1);
  const int64_t wanted = TestRounds(500);
  const BusyFleetOptions options{.agents = 3};
  BusyFleet fleet(options);
  ASSERT_NO_FATAL_FAILURE(fleet.StartTracker());
  ASSERT_NO_FATAL_FAILURE(fleet.StartWork(fleet.address(), fleet.address()));
  Reaper reaper(&fleet, options, seed);
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  for (int64_t i = 0; i < wanted && !::testing::Test::HasFatalFailure(); ++i) reaper.Strike();
  reaper.ResumeAll();
  const double seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  const size_t under_fire = fleet.finals();
  ASSERT_TRUE(fleet.Finish(kPatienceMs)) << fleet.finals() << " ended\n" << fleet.Logs();
  fleet.CheckEveryMeasurement();
  EXPECT_GE(static_cast<double>(under_fire), kItemsPerDeath * static_cast<double>(wanted))
      << "too little work for the kills to mean anything";
  std::printf(
      "counts: kills_and_pauses=%lld tracker_kills=%lld agent_kills=%lld pauses=%lld seconds=%.1f "
      "items=%zu measurements=%zu\n",
      static_cast<long long>(wanted), static_cast<long long>(reaper.tracker_kills()),
      static_cast<long long>(reaper.agent_kills()), static_cast<long long>(reaper.pauses()),
      seconds, fleet.items(), fleet.measurements());
}

}  // namespace
}  // namespace tilewright::tests
