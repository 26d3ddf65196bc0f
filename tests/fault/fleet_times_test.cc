// How long things take on real processes: a tracker's restart with much work queued (R4), agents'
// return after a broken network (R6), a dead device's work going to another (R9), a cancelled
// candidate's end (R10). Prints the figures; the bars here are those promised plus room for
// machines that do other things too. TILEWRIGHT_ROUNDS=10 makes breaks and leases as long as they
// are promised for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/fault/loopback_fleet.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

constexpr int kQueued = 10'000;
constexpr int kSubmitAtOnce = 1000;

class FleetTimesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("fleet_times");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
  }

  void StartTracker(std::vector<std::string> args = {}) {
    tracker_ = std::make_unique<LoopbackDaemon>("tilewright-tracker", dir_->File("tracker"),
                                                std::move(args));
    tracker_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    address_ = tracker_->Address();
    consumer_.Connect(address_);
  }

  LoopbackDaemon* StartAgent(const std::string& name, const std::string& dials) {
    agents_.push_back(std::make_unique<LoopbackDaemon>(
        "tilewright-agent", dir_->File(name),
        std::vector<std::string>{"--tracker", dials, "--device", "cpu", "--name", name}));
    agents_.back()->Start();
    EXPECT_TRUE(agents_.back()->Ready()) << agents_.back()->log();
    return agents_.back().get();
  }

  double SecondsSince(int64_t begin_ns) {
    return static_cast<double>(clock_.NowNs() - begin_ns) * 1e-9;
  }

  // How often the agent has said this.
  static size_t Said(const LoopbackDaemon& agent, const std::string& what) {
    const std::string log = agent.log();
    size_t count = 0;
    for (size_t at = log.find(what); at != std::string::npos; at = log.find(what, at + 1)) ++count;
    return count;
  }

  support::SystemClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  std::string address_;
  std::vector<std::unique_ptr<LoopbackDaemon>> agents_;
  LoopbackConsumer consumer_;
};

TEST_F(FleetTimesTest, ATrackerWithMuchWorkQueuedIsSoonBack) {
  ASSERT_NO_FATAL_FAILURE(StartTracker());
  const v1::WorkItem model = consumer_.Item("", "honest");
  std::vector<v1::WorkItem> items(kSubmitAtOnce, model);
  const int queued = kQueued * static_cast<int>(TestRounds(1));  // 100: the promise's million
  for (int begin = 0; begin < queued; begin += kSubmitAtOnce) {
    for (int i = 0; i < kSubmitAtOnce; ++i) {
      items[static_cast<size_t>(i)].set_name(StrCat("w", begin + i));
      items[static_cast<size_t>(i)].mutable_work()->set_work_item(StrCat("w", begin + i));
    }
    consumer_.Submit(items);
  }
  tracker_->Kill9();
  const int64_t begin_ns = clock_.NowNs();
  tracker_->Start({"--listen", address_});
  ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
  const double listening_s = SecondsSince(begin_ns);
  LoopbackConsumer again;  // a connection of its own: the other one has its pauses
  again.Connect(address_);
  again.Submit(items, /*known=*/true);
  const double answering_s = SecondsSince(begin_ns);
  std::printf("figures: R4 queued=%d listening_s=%.3f answering_s=%.3f\n", queued, listening_s,
              answering_s);
  EXPECT_LT(listening_s, 0.25 + 10);
}

TEST_F(FleetTimesTest, AgentsAreBackSoonAfterABrokenNetwork) {
  constexpr int kAgents = 4;
  const int64_t break_ms = 6'000 * TestRounds(1);
  ASSERT_NO_FATAL_FAILURE(StartTracker());
  auto proxy = FaultProxy::Start(address_, TestSeed(1));
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  for (int i = 0; i < kAgents; ++i) StartAgent(StrCat("a", i), (*proxy)->address());
  // What each said before the break: a busy machine may have broken a connection by itself.
  std::vector<size_t> lost, reachable(kAgents);
  for (const auto& agent : agents_) lost.push_back(Said(*agent, "\"tracker.lost\""));
  LinkFault broken;
  broken.refuse = true;
  (*proxy)->SetLink(broken);
  (*proxy)->CutConnections(Cut::kReset);
  support::SleepMs(break_ms);
  for (size_t i = 0; i < agents_.size(); ++i) {
    EXPECT_TRUE(WaitFor([&] { return Said(*agents_[i], "\"tracker.lost\"") > lost[i]; }))
        << agents_[i]->log();
    reachable[i] = Said(*agents_[i], "\"tracker.reachable\"");
  }
  (*proxy)->Heal();
  const int64_t healed_ns = clock_.NowNs();
  double slowest_s = 0;
  for (size_t i = 0; i < agents_.size(); ++i) {
    ASSERT_TRUE(WaitFor([&] { return Said(*agents_[i], "\"tracker.reachable\"") > reachable[i]; }))
        << agents_[i]->log();
    slowest_s = SecondsSince(healed_ns);
  }
  std::printf("figures: R6 break_s=%.0f agents=%d slowest_s=%.2f\n",
              static_cast<double>(break_ms) * 1e-3, kAgents, slowest_s);
  EXPECT_LT(slowest_s, 5 + 10);
}

TEST_F(FleetTimesTest, WorkOfADeadAgentGoesToAnotherAndEndsAtOnceWhenItIsCancelled) {
  const int64_t ttl_ms = 3'000 * TestRounds(1);
  ASSERT_NO_FATAL_FAILURE(StartTracker({"--lease-ttl-ms", StrCat(ttl_ms)}));
  LoopbackDaemon* first = StartAgent("first", address_);
  v1::WorkItem endless = consumer_.Item("endless", "hang");
  endless.mutable_work()->mutable_wall_limit()->set_seconds(600);
  consumer_.Submit({endless});
  ASSERT_TRUE(WaitFor([&] { return Said(*first, "\"lease.granted\"") >= 1; })) << first->log();
  LoopbackDaemon* second = StartAgent("second", address_);
  first->Kill9();
  const int64_t killed_ns = clock_.NowNs();
  ASSERT_TRUE(WaitFor([&] { return Said(*second, "\"lease.granted\"") >= 1; }, 60'000 + ttl_ms))
      << second->log();
  const double again_s = SecondsSince(killed_ns);
  const double ttl_s = static_cast<double>(ttl_ms) * 1e-3;
  std::printf("figures: R9 ttl_s=%.0f dispatched_again_s=%.2f\n", ttl_s, again_s);
  EXPECT_LT(again_s, ttl_s + 1 + 10);

  // It runs: its process takes all the time that it gets. (Where the machine stood still longer
  // than a lease, the agent has stopped it once already, and has it again.)
  support::SleepMs(500);
  const size_t done = Said(*second, "\"measurement.done\"");
  const size_t stopped = Said(*second, "\"CANCELLED\"");
  ASSERT_EQ(done, stopped) << second->log();
  const int64_t cancelled_ns = clock_.NowNs();
  consumer_.Cancel("endless");
  ASSERT_TRUE(WaitFor([&] { return Said(*second, "\"measurement.done\"") > done; }))
      << second->log();
  const double dead_s = SecondsSince(cancelled_ns);
  EXPECT_EQ(Said(*second, "\"CANCELLED\""), stopped + 1) << second->log();
  std::printf("figures: R10 candidate_dead_s=%.3f\n", dead_s);
  EXPECT_LT(dead_s, 2 + 10);
  // Nothing of it is dispatched again: each grant from here on is an attempt of the other item.
  const size_t granted = Said(*second, "\"lease.granted\"");
  consumer_.Submit({consumer_.Item("next", "honest")});
  ASSERT_TRUE(consumer_.PullUntil(2)) << second->log();
  EXPECT_EQ(consumer_.finals().at("endless").state(), v1::WORK_STATE_CANCELLED);
  const int attempts = consumer_.finals().at("next").result().attempt();
  EXPECT_EQ(Said(*second, "\"lease.granted\""), granted + static_cast<size_t>(attempts))
      << second->log();
}

}  // namespace
}  // namespace tilewright::tests
