// The real tracker, the real agent and the real worker on loopback, with a consumer in this
// process: candidates go in, each comes back exactly once with the outcome that it is, whatever is
// killed in between.
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/blob_store.h"
#include "deploy/daemon/fleet_contract.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/process.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "device_agent/test_faults.h"
#include "tests/fault/loopback_fleet.h"
#include "tests/support/patience.h"
#include "tests/support/test_seed.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

using tests::kDeadlineMs;
using tests::LoopbackConsumer;
using tests::LoopbackDaemon;
using tests::WaitFor;

class AgentTrackerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("agent_tracker");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    tracker_ = std::make_unique<LoopbackDaemon>(
        "tilewright-tracker", dir_->File("tracker"),
        std::vector<std::string>{"--lease-ttl-ms", "3000", "--recovery-ms", "1000"});
    tracker_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    address_ = tracker_->Address();
    consumer_.Connect(address_);
  }

  std::unique_ptr<LoopbackDaemon> MakeAgent(const std::string& name,
                                            std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"--tracker", address_, "--device",       "cpu",
                                     "--name",    name,     "--sync-hold-ms", "1000"};
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<LoopbackDaemon>("tilewright-agent", dir_->File(name), args);
  }

  void RestartTracker() {
    tracker_->Start({"--listen", address_});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  std::string address_;
  LoopbackConsumer consumer_;
};

TEST_F(AgentTrackerTest, EveryCandidateComesBackAsWhatItIs) {
  auto agent = MakeAgent("solo", {"--label", "rack=7"});
  agent->Start();
  ASSERT_TRUE(agent->Ready()) << agent->log();
  const std::map<std::string, v1::Outcome> kinds = {
      {"honest", v1::OK},         {"parallel", v1::OK},          {"wrong", v1::WRONG_RESULT},
      {"crash", v1::RUN_CRASH},   {"hang", v1::RUN_TIMEOUT},     {"exit_zero", v1::RUN_CRASH},
      {"lazy", v1::WRONG_RESULT}, {"no_kernel", v1::BUILD_ERROR}};
  std::vector<v1::WorkItem> items;
  for (const auto& [kernel, outcome] : kinds) {
    items.push_back(consumer_.Item("w-" + kernel, kernel, kernel == "parallel" ? 2 : 1));
    items.back().set_selector("rack=7");
    items.back().mutable_work()->mutable_wall_limit()->set_seconds(kernel == "hang" ? 1 : 30);
  }
  consumer_.Submit(items);
  ASSERT_TRUE(consumer_.PullUntil(items.size())) << agent->log();
  for (const auto& [kernel, outcome] : kinds) {
    const v1::WorkUpdate& update = consumer_.finals().at("w-" + kernel);
    const v1::MeasurementResult& result = update.result();
    EXPECT_EQ(update.state(), v1::WORK_STATE_DONE) << update.DebugString();
    EXPECT_EQ(result.outcome(), outcome) << kernel << ": " << result.DebugString();
    EXPECT_EQ(result.measurement_id(), StrCat("w-", kernel, "/", result.attempt()));
    // More than one only where the machine stood still longer than a lease.
    EXPECT_TRUE(result.attempt() == 1 || !consumer_.again().empty()) << result.DebugString();
    EXPECT_EQ(result.agent(), "agents/solo");
    EXPECT_EQ(result.device(), "devices/solo-cpu");
    EXPECT_EQ(result.device_fingerprint().size(), 64u);
    EXPECT_EQ(result.device_class().rfind("cpu-", 0), 0u);
    EXPECT_EQ(result.agent_address(), "127.0.0.1");
    EXPECT_FALSE(result.boot_id().empty());
    EXPECT_GT(result.started_at().seconds(), 0);
    if (outcome != v1::OK) {
      EXPECT_FALSE(result.error_class().empty());
      EXPECT_FALSE(result.phase().empty());
      continue;
    }
    EXPECT_GT(result.median(), 0);
    EXPECT_GE(result.samples_size(), 1);
    EXPECT_GT(result.baseline_before(), 0);
    EXPECT_EQ(result.value_kind(), v1::VALUE_KIND_WALL_NS);
    EXPECT_TRUE(result.error_detail().empty());
  }
  EXPECT_EQ(agent->End().exit_code, 0) << agent->log();
}

TEST_F(AgentTrackerTest, KillsLoseNothingAndRepeatNothing) {
  const uint64_t seed = tests::TestSeed(11);
  support::Rng rng(seed);
  constexpr int kItems = 60;
  constexpr int kFewestKills = 5;
  auto agent = MakeAgent("victim");
  agent->Start();
  size_t submitted = 0;
  const auto submit = [&](int64_t count) {
    std::vector<v1::WorkItem> items;
    for (; count > 0; --count, ++submitted) {
      items.push_back(
          consumer_.Item(StrCat("w", submitted), submitted % 4 == 3 ? "wrong" : "honest"));
      items.back().set_max_batch(4);
    }
    consumer_.Submit(items);
  };
  submit(kItems * tests::TestRounds(1));
  support::SystemClock clock;
  // On a slow machine each death may take seconds: from here on, only as many as must be.
  const int64_t calm_ns = clock.NowNs() + tests::Patiently(kDeadlineMs) / 2 * 1'000'000;
  const int64_t end_ns = clock.NowNs() + tests::Patiently(kDeadlineMs) * 3 * 1'000'000;
  int kills = 0;
  int64_t next_kill_ns = clock.NowNs();
  size_t progress = 0;
  while (consumer_.finals().size() < submitted && clock.NowNs() < end_ns) {
    consumer_.Pull();
    // A fast machine is done before it was hurt much.
    if (consumer_.finals().size() == submitted && kills < kFewestKills) submit(kItems);
    // A kill after some progress, so that the test ends; at any moment, so that it means something.
    if (consumer_.finals().size() <= progress || clock.NowNs() < next_kill_ns) continue;
    if (kills >= kFewestKills && clock.NowNs() > calm_ns) continue;
    progress = consumer_.finals().size();
    next_kill_ns = clock.NowNs() + rng.UniformInt(20, 150) * 1'000'000;
    ++kills;
    if (rng.Bernoulli(0.6)) {
      agent->Kill9();
      agent->Start();
    } else {
      tracker_->Kill9();
      RestartTracker();
    }
  }
  ASSERT_EQ(consumer_.finals().size(), submitted) << "seed " << seed << "\n" << agent->log();
  EXPECT_GE(kills, kFewestKills);
  std::set<std::string> accepted;
  for (size_t i = 0; i < submitted; ++i) {
    const v1::WorkUpdate& update = consumer_.finals().at(StrCat("w", i));
    if (update.state() == v1::WORK_STATE_QUARANTINED) {  // it ran when the agent died, twice
      EXPECT_EQ(update.result().phase(), daemon::kAgentEndedPhase) << update.DebugString();
      continue;
    }
    EXPECT_EQ(update.state(), v1::WORK_STATE_DONE) << update.DebugString();
    EXPECT_EQ(update.result().outcome(), i % 4 == 3 ? v1::WRONG_RESULT : v1::OK)
        << update.DebugString();
    EXPECT_TRUE(accepted.insert(update.result().measurement_id()).second);
  }
  for (const auto& [id, count] : consumer_.results_by_id()) EXPECT_EQ(count, 1) << id;
  EXPECT_EQ(agent->End().exit_code, 0);
}

TEST_F(AgentTrackerTest, InjectedFaultsAreCountedRight) {
  const std::string spec = "seed=5,wrong=.25,crash=.25,hang=.1";
  const auto faults = ParseTestFaults(spec);
  ASSERT_TRUE(faults.ok());
  auto agent = MakeAgent("faulty", {"--test-faults", spec});
  agent->Start();
  std::vector<v1::WorkItem> items;
  for (int i = 0; i < 24; ++i) {
    items.push_back(consumer_.Item(StrCat("w", i), "honest"));
    items.back().mutable_work()->mutable_wall_limit()->set_seconds(3);
  }
  consumer_.Submit(items);
  ASSERT_TRUE(consumer_.PullUntil(items.size())) << agent->log();
  std::map<v1::InjectedFault, int> seen;
  for (const auto& [name, update] : consumer_.finals()) {
    const v1::MeasurementResult& result = update.result();
    const v1::InjectedFault fault = faults->Choose(result.measurement_id());
    ++seen[fault];
    const v1::Outcome expected = fault == v1::INJECTED_FAULT_WRONG   ? v1::WRONG_RESULT
                                 : fault == v1::INJECTED_FAULT_CRASH ? v1::RUN_CRASH
                                 : fault == v1::INJECTED_FAULT_HANG  ? v1::RUN_TIMEOUT
                                                                     : v1::OK;
    EXPECT_EQ(result.outcome(), expected) << result.DebugString();
    EXPECT_EQ(result.error_class(), expected == v1::OK ? "" : "TEST_FAULT");
  }
  EXPECT_EQ(seen.size(), 4u) << "the seed should show every kind";
  EXPECT_NE(agent->log().find("agent.test_faults"), std::string::npos);
  EXPECT_EQ(agent->End().exit_code, 0);
}

TEST_F(AgentTrackerTest, ADeviceThatFailsItsSelfTestSaysWhyAndGetsNoWork) {
  {
    auto agent = MakeAgent("ill", {"--test-faults", "self_tests=1000"});
    agent->Start();
    ASSERT_TRUE(agent->Ready()) << agent->log();
    const v1::Device ill = consumer_.Device("devices/ill-cpu");
    EXPECT_EQ(ill.health(), v1::HEALTH_DEGRADED) << ill.DebugString();
    EXPECT_NE(ill.DebugString().find("agent.self_test.failed"), std::string::npos);
    EXPECT_NE(ill.DebugString().find("WRONG_RESULT"), std::string::npos) << ill.DebugString();
    consumer_.Submit({consumer_.Item("w", "honest")});
    EXPECT_FALSE(consumer_.PullUntil(1, 2'000)) << "a device that computes wrongly has measured";
    EXPECT_EQ(agent->End().exit_code, 0) << agent->log();
  }
  // Tried again until it passes.
  auto agent = MakeAgent("ill", {"--test-faults", "self_tests=2"});
  agent->Start();
  ASSERT_TRUE(consumer_.PullUntil(1)) << agent->log();
  EXPECT_EQ(consumer_.finals().at("w").result().outcome(), v1::OK);
  EXPECT_EQ(consumer_.Device("devices/ill-cpu").health(), v1::HEALTH_GOOD);
  EXPECT_EQ(agent->End().exit_code, 0) << agent->log();
}

TEST_F(AgentTrackerTest, ADrainFinishesWhatRunsAndReturnsTheRest) {
  auto first = MakeAgent("first");
  first->Start();
  ASSERT_TRUE(first->Ready()) << first->log();
  std::vector<v1::WorkItem> items;
  for (int i = 0; i < 8; ++i) {
    items.push_back(consumer_.Item(StrCat("w", i), "slow"));
    items.back().mutable_work()->mutable_plan()->mutable_warmup()->set_nanos(400'000'000);
    items.back().set_max_batch(8);
  }
  consumer_.Submit(items);
  ASSERT_TRUE(consumer_.PullUntil(1)) << first->log();
  const support::ExitStatus status = first->End(SIGTERM);
  EXPECT_TRUE(status.ok()) << status.ToString() << first->log();
  EXPECT_LT(consumer_.finals().size(), items.size()) << "the drain came too late to mean anything";
  auto second = MakeAgent("second");
  second->Start();
  ASSERT_TRUE(consumer_.PullUntil(items.size())) << second->log();
  for (const auto& [name, update] : consumer_.finals()) {
    EXPECT_EQ(update.state(), v1::WORK_STATE_DONE) << update.DebugString();
  }
  EXPECT_EQ(second->End().exit_code, 0);
}

TEST_F(AgentTrackerTest, ACancelledItemThatRunsIsKilled) {
  auto agent = MakeAgent("busy");
  agent->Start();
  v1::WorkItem endless = consumer_.Item("endless", "hang");
  endless.mutable_work()->mutable_wall_limit()->set_seconds(600);
  consumer_.Submit({endless});
  ASSERT_TRUE(WaitFor([&] { return agent->log().find("lease.granted") != std::string::npos; }));
  consumer_.Cancel("endless");
  consumer_.Submit({consumer_.Item("next", "honest")});
  ASSERT_TRUE(consumer_.PullUntil(2, 30'000)) << agent->log();
  EXPECT_EQ(consumer_.finals().at("endless").state(), v1::WORK_STATE_CANCELLED);
  EXPECT_EQ(consumer_.finals().at("next").result().outcome(), v1::OK);
  EXPECT_EQ(agent->End().exit_code, 0);
}

// R21: what vanished from the tracker's disk is asked for again, and the item is measured.
TEST_F(AgentTrackerTest, AVanishedArtifactIsAskedForAgain) {
  const std::vector<v1::WorkItem> items = {consumer_.Item("w", "honest")};
  consumer_.Submit(items);
  const std::string hex = support::HexEncode(items[0].work().artifact().hash());
  tracker_->Kill9();
  auto blobs = daemon::BlobStore::Open(support::PathJoin(dir_->File("tracker"), "artifacts"));
  ASSERT_TRUE(blobs.ok()) << blobs.status();
  ASSERT_TRUE((*blobs)->Remove(hex).ok());
  RestartTracker();
  auto agent = MakeAgent("seeker");
  agent->Start();
  ASSERT_TRUE(WaitFor([&] {
    consumer_.Pull();
    return !consumer_.again().empty();
  })) << agent->log();
  EXPECT_EQ(consumer_.again().front(), "work.artifact.missing");
  consumer_.Submit({consumer_.Item("w", "honest")}, /*known=*/true);
  ASSERT_TRUE(consumer_.PullUntil(1)) << agent->log();
  EXPECT_EQ(consumer_.finals().at("w").result().outcome(), v1::OK);
  EXPECT_EQ(consumer_.finals().at("w").result().attempt(),
            1 + static_cast<int>(consumer_.again().size()));
  EXPECT_EQ(agent->End().exit_code, 0);
}

TEST_F(AgentTrackerTest, AResetRunsTheOperatorsCommandOnceAndIsRateLimited) {
  const std::string path = dir_->File("resets");
  auto agent =
      MakeAgent("board", {"--reset-command", "echo \"$DEVICE: $REASON\" | tee -a " + path});
  agent->Start();
  ASSERT_TRUE(agent->Ready()) << agent->log();
  const auto state = [&] { return consumer_.Device("devices/board-cpu").last_reset().state(); };
  ASSERT_TRUE(consumer_.Reset("devices/board-cpu").ok());
  ASSERT_TRUE(WaitFor([&] { return state() == v1::RESET_STATE_DONE; })) << agent->log();
  EXPECT_EQ(support::ReadFile(path, 1000).value_or(""), "devices/board-cpu: a test\n");
  ASSERT_TRUE(consumer_.Reset("devices/board-cpu").ok());
  ASSERT_TRUE(WaitFor([&] { return state() == v1::RESET_STATE_REFUSED; })) << agent->log();
  EXPECT_EQ(support::ReadFile(path, 1000).value_or(""), "devices/board-cpu: a test\n");
  EXPECT_NE(agent->log().find("device.reset.ended"), std::string::npos);
  EXPECT_EQ(agent->End().exit_code, 0);
  auto other = MakeAgent("plain");
  other->Start();
  ASSERT_TRUE(other->Ready()) << other->log();
  EXPECT_EQ(support::Slug(consumer_.Reset("devices/plain-cpu")), "device.reset.impossible");
  EXPECT_EQ(other->End().exit_code, 0);
}

TEST_F(AgentTrackerTest, AResetThatHangsIsKilled) {
  auto agent = MakeAgent("stuck", {"--reset-command", "sleep 600", "--reset-timeout-ms", "500"});
  agent->Start();
  ASSERT_TRUE(agent->Ready()) << agent->log();
  ASSERT_TRUE(consumer_.Reset("devices/stuck-cpu").ok());
  ASSERT_TRUE(WaitFor([&] {
    return consumer_.Device("devices/stuck-cpu").last_reset().state() == v1::RESET_STATE_FAILED;
  })) << agent->log();
  EXPECT_NE(consumer_.Device("devices/stuck-cpu").last_reset().detail().find("agent.reset.timeout"),
            std::string::npos);
  consumer_.Submit({consumer_.Item("w", "honest")});
  ASSERT_TRUE(consumer_.PullUntil(1)) << agent->log();
  EXPECT_EQ(agent->End().exit_code, 0);
}

TEST_F(AgentTrackerTest, TheNewerSessionOfAnAgentWins) {
  auto old_one = MakeAgent("twin");
  old_one->Start();
  ASSERT_TRUE(old_one->Ready()) << old_one->log();
  LoopbackDaemon new_one(
      "tilewright-agent", dir_->File("other"),
      {"--tracker", address_, "--device", "cpu", "--name", "twin", "--sync-hold-ms", "1000"});
  new_one.Start();
  ASSERT_TRUE(new_one.Ready()) << new_one.log();
  EXPECT_EQ(old_one->End(0).exit_code, 75) << old_one->log();
  EXPECT_EQ(new_one.End().exit_code, 0);
}

TEST_F(AgentTrackerTest, AnAgentWaitsForItsTracker) {
  tracker_->Kill9();
  auto agent = MakeAgent("patient");
  agent->Start();
  ASSERT_TRUE(WaitFor([&] { return agent->log().find("tracker.lost") != std::string::npos; }));
  RestartTracker();
  ASSERT_TRUE(agent->Ready()) << agent->log();
  consumer_.Submit({consumer_.Item("w", "honest")});
  ASSERT_TRUE(consumer_.PullUntil(1)) << agent->log();
  EXPECT_EQ(agent->End().exit_code, 0);
}

}  // namespace
}  // namespace tilewright::device_agent
