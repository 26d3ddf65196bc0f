// Which waiting calls a round asks: those that are new or due, those with news, and those whose
// devices could take the work that waits; nobody else, however many wait.
#include "tracker/tracker_rounds.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/pool_fixture.h"
#include "tracker/tracker_calls.h"

namespace tilewright::tracker::testing {
namespace {

// Nothing survives, and nothing has to: the rounds are what is tested.
class NoStore final : public PoolStore {
 public:
  absl::StatusOr<Snapshot> Load() override {
    Snapshot snapshot;
    snapshot.store_id = "s";
    snapshot.epoch = ++epoch_;
    return snapshot;
  }
  absl::Status Commit(const Changes&) override { return std::exchange(next_, absl::OkStatus()); }
  absl::StatusOr<std::vector<ResultRow>> LoadResults(const std::string&) override {
    return results;
  }
  std::vector<ResultRow> results;  // of any work item
  void FailOnce() { next_ = support::Unavailable("test.disk.full", "no space"); }

 private:
  uint64_t epoch_ = 0;
  absl::Status next_;
};

class TrackerRoundsTest : public ::testing::Test {
 protected:
  struct Call {
    v1::SyncRequest request;
    v1::SyncResponse response;
    absl::Status status;
    int asked = 0;
    bool finished = false;
    bool gone = false;
  };

  void SetUp() override {
    auto made = TrackerRounds::Create({}, {}, &store_, &clock_);
    ASSERT_TRUE(made.ok()) << made.status();
    rounds_ = *std::move(made);
  }

  // A Sync of the agent's, held for ten seconds.
  Call* Sync(const std::string& agent, const v1::SyncRequest& request) {
    Call* call = calls_.emplace_back(std::make_unique<Call>()).get();
    call->request = request;
    call->request.set_agent("agents/" + agent);
    call->request.mutable_max_wait()->set_seconds(10);
    LoopCall loop = SyncCall(&call->request, &call->response, "here");
    loop.poll = [call, poll = std::move(loop.poll)](const PollContext& context) {
      ++call->asked;
      return poll(context);
    };
    loop.cancelled = [call] { return call->gone; };
    loop.finish = [call](const absl::Status& status) {
      call->status = status;
      call->finished = true;
    };
    Round(std::move(loop));
    return call;
  }
  Call* Sync(const std::string& agent) {
    return Sync(agent, SyncOf("", {"devices/" + agent}, ++sequence_));
  }

  // Anything done to the pool by another call.
  void Do(const std::function<void(DevicePool&, Now)>& what) {
    LoopCall call;
    call.apply = [what](DevicePool& pool, Now now) {
      what(pool, now);
      return absl::OkStatus();
    };
    call.finish = [](const absl::Status&) {};
    Round(std::move(call));
  }
  void Submit(const v1::WorkItem& item) {
    Do([item](DevicePool& pool, Now now) { pool.Submit("tuner", item, now); });
  }

  void Round(LoopCall call) {
    std::vector<LoopCall> calls;
    calls.push_back(std::move(call));
    ASSERT_TRUE(rounds_->Round(std::move(calls), false).ok());
  }
  void Rounds(int count, int64_t apart_ms) {
    for (int i = 0; i < count; ++i) {
      clock_.AdvanceNs(apart_ms * 1'000'000);
      ASSERT_TRUE(rounds_->Round({}, false).ok());
    }
  }

  NoStore store_;
  support::FakeClock clock_{1'000'000'000};
  std::unique_ptr<TrackerRounds> rounds_;
  std::vector<std::unique_ptr<Call>> calls_;
  uint64_t sequence_ = 0;
};

TEST_F(TrackerRoundsTest, NobodyIsAskedWithoutNews) {
  std::vector<Call*> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(Sync(support::StrCat("a", i)));
  Rounds(20, 50);
  for (const Call* call : calls) {
    EXPECT_EQ(call->asked, 1);
    EXPECT_FALSE(call->finished);
  }
  Rounds(1, 10'000);  // the time that they were willing to wait
  for (const Call* call : calls) EXPECT_TRUE(call->finished && call->status.ok());
}

TEST_F(TrackerRoundsTest, WorkGoesToAnIdleAgentAndNoMoreAreAskedThanItTakes) {
  std::vector<Call*> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(Sync(support::StrCat("a", i)));
  Submit(Item("w"));
  EXPECT_TRUE(calls[0]->finished);
  EXPECT_EQ(calls[0]->response.grants_size(), 1);
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_EQ(calls[i]->asked, 1) << i;
}

TEST_F(TrackerRoundsTest, ABusyAgentIsNotAskedForWorkButHearsWhatBecomesOfItsOwn) {
  Call* first = Sync("a");
  Submit(Item("w"));
  ASSERT_EQ(first->response.grants_size(), 1);
  v1::SyncRequest busy = SyncOf("", {"devices/a"}, ++sequence_);
  busy.mutable_devices(0)->set_activity(v1::ACTIVITY_MEASURING);
  v1::LeaseReport* lease = busy.add_leases();
  lease->set_lease(first->response.grants(0).lease());
  lease->set_fencing_token(first->response.grants(0).fencing_token());
  Call* call = Sync("a", busy);
  Submit(Item("x"));
  Rounds(20, 50);
  EXPECT_EQ(call->asked, 1);
  Do([](DevicePool& pool, Now now) {
    v1::CancelWorkRequest cancel;
    cancel.set_consumer("tuner");
    cancel.add_work_items("w");
    cancel.set_kill_running(true);
    pool.Cancel(cancel, now);
  });
  EXPECT_TRUE(call->finished);
  EXPECT_EQ(call->response.revokes_size(), 1);
}

TEST_F(TrackerRoundsTest, AnAgentWithAnUnseenGrantStillGetsWorkForItsOtherDevice) {
  Call* first = Sync("a", SyncOf("", {"devices/a0", "devices/a1"}, ++sequence_));
  Submit(Item("w"));
  ASSERT_EQ(first->response.grants_size(), 1);
  // It asks again before it has taken the grant in.
  Call* second = Sync("a", SyncOf("", {"devices/a0", "devices/a1"}, ++sequence_));
  Submit(Item("x"));
  EXPECT_TRUE(second->finished);
  EXPECT_EQ(second->response.grants_size(), 2);
}

TEST_F(TrackerRoundsTest, TheEndOfAHoldIsNews) {
  std::string hold;
  Sync("a");
  Do([&](DevicePool& pool, Now now) {
    v1::CreateHoldRequest request;
    request.mutable_hold()->set_device("devices/a");
    request.mutable_hold()->set_holder("eve");
    request.mutable_ttl()->set_seconds(3600);
    hold = pool.CreateHold(request, now)->name();
  });
  Call* call = Sync("a");
  Submit(Item("w"));
  Rounds(3, 50);
  EXPECT_EQ(call->asked, 1);
  Do([&](DevicePool& pool, Now) { EXPECT_TRUE(pool.ReleaseHold(hold).ok()); });
  EXPECT_TRUE(call->finished);
  EXPECT_EQ(call->response.grants_size(), 1);
}

TEST_F(TrackerRoundsTest, ANewerCallReplacesTheOlderOneOfItsAgentAlone) {
  const Call* other = Sync("b");
  const Call* older = Sync("a");
  const Call* newer = Sync("a");
  EXPECT_TRUE(older->finished && older->status.ok());
  EXPECT_FALSE(newer->finished);
  EXPECT_FALSE(other->finished);
  EXPECT_EQ(rounds_->waiting(), 2);
}

TEST_F(TrackerRoundsTest, ACallWhoseClientIsGoneGetsNoWorkAndIsForgottenSoon) {
  Call* gone = Sync("a");
  const Call* other = Sync("b");
  Rounds(1, 50);
  gone->gone = true;
  Submit(Item("w"));
  EXPECT_TRUE(absl::IsCancelled(gone->status)) << gone->status;
  EXPECT_EQ(other->response.grants_size(), 1);
  Call* idle = Sync("c");
  idle->gone = true;
  Rounds(11, 100);
  EXPECT_TRUE(absl::IsCancelled(idle->status)) << idle->status;
}

TEST_F(TrackerRoundsTest, ResultsThatAreAskedForAgainComeFromTheStore) {
  const Call* agent = Sync("a");
  Submit(Item("w"));
  ASSERT_EQ(agent->response.grants_size(), 1);
  const v1::MeasurementResult result = ResultOf(agent->response.grants(0), 0);
  Do([&](DevicePool& pool, Now now) { pool.Report(result, "", now); });
  store_.results = {{v1::DISPOSITION_STORED, 1, result}};
  v1::PullResultsRequest request;
  request.set_consumer("tuner");
  request.mutable_max_wait()->set_seconds(10);
  const auto pull = [&](v1::PullResultsResponse* response, bool* answered) {
    LoopCall call = PullCall(&request, response);
    call.finish = [answered](const absl::Status&) { *answered = true; };
    Round(std::move(call));
  };
  v1::PullResultsResponse first;
  bool answered = false;
  pull(&first, &answered);
  ASSERT_EQ(first.updates_size(), 1);
  Do([&](DevicePool& pool, Now) {
    v1::AckResultsRequest ack;
    ack.set_consumer("tuner");
    ack.set_cursor(first.cursor());
    EXPECT_TRUE(pool.Acknowledge(ack).ok());
  });
  v1::PullResultsResponse second;
  answered = false;
  pull(&second, &answered);
  EXPECT_FALSE(answered) << "all is acknowledged";
  std::set<std::string> told;
  rounds_->set_on_delivered_again([&](const std::set<std::string>& items) { told = items; });
  Submit(Item("w"));
  Rounds(1, 10);
  EXPECT_TRUE(answered);
  ASSERT_EQ(second.updates_size(), 1);
  EXPECT_EQ(second.updates(0).state(), v1::WORK_STATE_DONE);
  EXPECT_EQ(second.updates(0).result().measurement_id(), "w/1");
  EXPECT_EQ(told, std::set<std::string>{"w"});
}

TEST_F(TrackerRoundsTest, AfterAFailedCommitAllAreAskedByTheNewPool) {
  Call* call = Sync("a");
  store_.FailOnce();
  v1::WorkItem elsewhere = Item("w");
  elsewhere.set_pool("another");
  Submit(elsewhere);
  EXPECT_FALSE(call->finished);
  Rounds(1, 50);
  // The new pool does not know the agent: it must say again what it is.
  EXPECT_TRUE(call->finished && call->status.ok());
  EXPECT_EQ(call->response.tracker_epoch(), 2u);
}

}  // namespace
}  // namespace tilewright::tracker::testing
