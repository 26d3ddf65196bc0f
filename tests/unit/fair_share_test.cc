// Who gets the devices: shares between users and jobs by seconds of devices, priority classes with
// ageing, quotas. First the parts, then the tracker's state machine with devices that take their
// time. Promise R11 of tests/README.md.
#include "tracker/fair_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "tests/unit/pool_fixture.h"
#include "tracker/device_pool.h"
#include "tracker/share_policy.h"
#include "tracker/work_queue.h"

namespace tilewright::tracker::testing {
namespace {

using ::testing::ElementsAre;

// --- policies

TEST(SharePolicyTest, RowsSetWhatTheyNameAndNothingElse) {
  SharePolicy policy;
  ASSERT_TRUE(AddUserPolicy("ann:weight=2.5,devices=3", &policy).ok());
  ASSERT_TRUE(AddUserPolicy("fe80::1:items=7,seconds_per_day=3600", &policy).ok());
  ASSERT_TRUE(AddUserPolicy("*:weight=0.5", &policy).ok());
  EXPECT_EQ(policy.Of("ann").weight, 2.5);
  EXPECT_EQ(policy.Of("ann").max_devices, 3);
  EXPECT_EQ(policy.Of("ann").max_open_items, 0);
  EXPECT_EQ(policy.Of("fe80::1").max_open_items, 7);
  EXPECT_EQ(policy.Of("fe80::1").device_seconds_per_day, 3600);
  EXPECT_EQ(policy.Of("somebody").weight, 0.5);
}

TEST(SharePolicyTest, AnythingElseIsRefused) {
  for (const char* text :
       {"", "ann", ":weight=1", "ann:", "ann:weight", "ann:weight=0", "ann:weight=-1",
        "ann:weight=inf", "ann:weight=nan", "ann:devices=0", "ann:devices=1.5", "ann:disks=1"}) {
    SharePolicy policy;
    EXPECT_EQ(support::Slug(AddUserPolicy(text, &policy)), "tracker.share.invalid") << text;
  }
  SharePolicy policy;
  ASSERT_TRUE(AddUserPolicy("ann:weight=1", &policy).ok());
  EXPECT_FALSE(AddUserPolicy("ann:weight=2", &policy).ok()) << "which of the two?";
}

// --- the clock

TEST(VirtualClockTest, WhoComesBackStartsAtTheLeastServedOfThoseThatStayed) {
  VirtualClock clock;
  clock.Compete({"a", "b", "c"});
  clock.Charge("a", 10);
  clock.Charge("b", 20);
  clock.Compete({"a", "b"});  // c has nothing to do
  clock.Compete({"a", "b", "c"});
  EXPECT_EQ(clock.start("c"), 10) << "no claim was saved up";
  clock.Compete({"a", "b", "c", "new"});
  EXPECT_EQ(clock.start("new"), 10);
  EXPECT_EQ(clock.start("b"), 20);
}

TEST(VirtualClockTest, WhoIsBeingServedKeepsItsPlaceWhileItsQueueIsEmpty) {
  VirtualClock clock;
  clock.Compete({"a", "b"});
  clock.Charge("a", 5);
  clock.BeginService("a");
  clock.Charge("b", 50);
  clock.Compete({"b"});
  clock.Compete({"b"});
  clock.Compete({"a", "b"});
  EXPECT_EQ(clock.start("a"), 5);
  clock.EndService("a");
  clock.Compete({"b"});
  clock.Compete({"a", "b"});
  EXPECT_EQ(clock.start("a"), 50);
}

// --- the queue

QueueTerms Terms(const std::string& job, int priority = 3, int max_batch = 0) {
  return {{"user", job}, 1, priority, max_batch, "r"};
}

class WorkQueueTest : public ::testing::Test {
 protected:
  std::vector<std::string> Take(int batch, double at_s = 0) {
    TakeRequest request;
    request.device_class = "board";
    request.matches = [](const std::string&) { return true; };
    request.default_batch = batch;
    request.quantum_s = 1e9;
    request.now_ns = At(at_s).mono_ns;
    const Batch taken = queue_.Take(request, &share_);
    share_.Charge("board", taken.flow, static_cast<double>(taken.names.size()));
    return taken.names;
  }

  WorkQueue queue_;
  FairShare share_{SharePolicy()};
};

TEST_F(WorkQueueTest, PriorityFirstThenFairTurnsThenAge) {
  for (int i = 0; i < 4; ++i) queue_.Add(support::StrCat("a", i), i, Terms("a"), 0);
  for (int i = 0; i < 4; ++i) queue_.Add(support::StrCat("b", i), 10 + i, Terms("b"), 0);
  queue_.Add("u", 20, Terms("urgent", 1), 0);
  std::vector<std::string> order;
  while (queue_.size() > 0) {
    for (const std::string& name : Take(2)) order.push_back(name);
  }
  EXPECT_THAT(order, ElementsAre("u", "a0", "a1", "b0", "b1", "a2", "a3", "b2", "b3"));
}

TEST_F(WorkQueueTest, BatchesAreAsSmallAsTheirItemsWish) {
  for (int i = 0; i < 3; ++i) queue_.Add(support::StrCat("n", i), i, Terms("j", 3, 2), 0);
  queue_.Add("big", 5, Terms("j", 3, 0), 0);
  EXPECT_THAT(Take(8), ElementsAre("n0", "n1"));
  EXPECT_THAT(Take(8), ElementsAre("n2", "big"));
}

TEST_F(WorkQueueTest, BatchesAreNotExpectedToTakeLongerThanTheQuantum) {
  for (int i = 0; i < 9; ++i) queue_.Add(support::StrCat("n", i), i, Terms("j"), 0);
  TakeRequest request;
  request.device_class = "board";
  request.matches = [](const std::string&) { return true; };
  request.quantum_s = 10;
  share_.Begin("board", {"user", "j"}, 1);
  share_.End("board", {"user", "j"}, 12, 4);  // three seconds each
  EXPECT_EQ(queue_.Take(request, &share_).names.size(), 3u);
  share_.Begin("board", {"user", "j"}, 1);
  share_.End("board", {"user", "j"}, 4000, 4);
  EXPECT_EQ(queue_.Take(request, &share_).names.size(), 1u) << "one always";
}

TEST_F(WorkQueueTest, WhoIsPassedOverRisesAClassEveryFiveMinutes) {
  queue_.Add("idle", 1, Terms("idle", 5), 0);
  for (int i = 0; i < 30; ++i) queue_.Add(support::StrCat("u", i), 2 + i, Terms("urgent", 2), 0);
  EXPECT_THAT(Take(1, 1), ElementsAre("u0"));
  EXPECT_THAT(Take(1, 300), ElementsAre("u1"));
  EXPECT_THAT(Take(1, 600), ElementsAre("u2"));
  EXPECT_THAT(Take(1, 850), ElementsAre("u3"));
  // Now as urgent as the other, and never served; a job that was served begins anew.
  EXPECT_THAT(Take(1, 900), ElementsAre("idle"));
  queue_.Add("idle2", 50, Terms("idle", 5), At(900).mono_ns);
  EXPECT_THAT(Take(1, 901), ElementsAre("u4"));
}

TEST_F(WorkQueueTest, RemovedItemsAreNotTaken) {
  queue_.Add("x", 1, Terms("j"), 0);
  queue_.Add("y", 2, Terms("j"), 0);
  EXPECT_TRUE(queue_.Remove(1, Terms("j")));
  EXPECT_FALSE(queue_.Remove(1, Terms("j")));
  EXPECT_THAT(Take(8), ElementsAre("y"));
  EXPECT_TRUE(Take(8).empty());
}

// --- the pool, with devices that take their time

struct Customer {
  std::string user;
  std::string job;
  double item_s = 0.1;  // what its items take, about
  int priority = 3;
  double weight = 0;
  bool streams = false;  // keeps few items in the queue, as a tuner does
};

// Devices of one class, each an agent of its own, and customers that never run out of work.
class BusyFleet {
 public:
  BusyFleet(PoolOptions options, int devices, std::vector<Customer> customers)
      : pool_(options, EmptySnapshot(), At(0)), customers_(std::move(customers)) {
    for (int i = 0; i < devices; ++i) Plan(0.01 * i, i);
    for (size_t i = 0; i < customers_.size(); ++i) Fill(i, 0);
  }

  void RunUntil(double end_s) {
    while (!plan_.empty() && plan_.top().at_s <= end_s) {
      const Step step = plan_.top();
      plan_.pop();
      Serve(step);
    }
    const absl::Status rules = pool_.CheckInvariants();
    EXPECT_TRUE(rules.ok()) << rules;
  }

  DevicePool& pool() { return pool_; }
  double used(const std::string& who) const {
    const auto it = used_.find(who);
    return it == used_.end() ? 0 : it->second;
  }
  const std::map<std::string, double>& used() const { return used_; }
  void Forget() { used_.clear(); }

 private:
  struct Step {
    double at_s = 0;
    int device = 0;
    bool operator<(const Step& other) const { return at_s > other.at_s; }  // earliest on top
  };
  struct Device {
    v1::Grant grant;
    int next = 0;
    double began_s = 0;
    uint64_t sequence = 0;
  };

  void Plan(double at_s, int device) { plan_.push({at_s, device}); }

  void Fill(size_t index, double at_s) {
    const Customer& customer = customers_[index];
    const int want = customer.streams ? 12 : 60;
    for (int& open = open_[index]; open < want; ++open) {
      v1::WorkItem item = Item(support::StrCat(customer.job, "/", ++items_), customer.job);
      item.set_user(customer.user);
      item.set_priority(customer.priority);
      item.set_share_weight(customer.weight);
      owner_[item.name()] = index;
      ASSERT_NE(pool_.Submit("tuner", item, At(at_s)).kind(), v1::SubmitOutcome::KIND_INVALID);
    }
  }

  // The device's current item is over; the next one, or the next grant.
  void Serve(const Step& step) {
    Device& device = devices_[step.device];
    if (device.grant.work_size() > 0) Finish(&device, step.at_s);
    if (device.next >= device.grant.work_size()) {
      const std::string agent = support::StrCat("agents/", step.device);
      const std::string name = support::StrCat("devices/", step.device);
      ASSERT_TRUE(pool_.Sync(SyncOf(agent, {name}, ++device.sequence), "", At(step.at_s)).ok());
      v1::SyncResponse answer;
      pool_.FillSyncResponse(agent, true, At(step.at_s), &answer);
      device.grant.Clear();
      device.next = 0;
      if (answer.grants_size() == 0) return Plan(step.at_s + 0.2, step.device);
      device.grant = answer.grants(0);
    }
    device.began_s = step.at_s;
    const Customer& customer = customers_[owner_.at(device.grant.work(device.next).work_item())];
    Plan(step.at_s + customer.item_s * (0.5 + rng_.UniformDouble()), step.device);
  }

  void Finish(Device* device, double at_s) {
    const size_t index = owner_.at(device->grant.work(device->next).work_item());
    ASSERT_EQ(pool_.Report(ResultOf(device->grant, device->next), "", At(at_s)).disposition(),
              v1::DISPOSITION_STORED);
    ++device->next;
    used_[customers_[index].job] += at_s - device->began_s;
    used_["user " + customers_[index].user] += at_s - device->began_s;
    --open_[index];
    Fill(index, at_s);
    pool_.TakeChanges();
    if (++served_ % 1000 == 0) AcknowledgeAll();
  }

  void AcknowledgeAll() {
    v1::PullResultsRequest pull;
    pull.set_consumer("tuner");
    pull.set_max_updates(1000);
    v1::PullResultsResponse page;
    pool_.Pull(pull, &page);
    v1::AckResultsRequest ack;
    ack.set_consumer("tuner");
    ack.set_cursor(page.cursor());
    ASSERT_TRUE(pool_.Acknowledge(ack).ok());
  }

  DevicePool pool_;
  std::vector<Customer> customers_;
  support::Rng rng_{11};
  std::priority_queue<Step> plan_;
  std::map<int, Device> devices_;
  std::map<size_t, int> open_;
  std::map<std::string, size_t> owner_;
  std::map<std::string, double> used_;
  int64_t items_ = 0;
  int64_t served_ = 0;
};

// How far the shares of the jobs are from equal, at worst.
double WorstShare(const BusyFleet& fleet, const std::vector<Customer>& customers) {
  double sum = 0;
  for (const Customer& one : customers) sum += fleet.used(one.job);
  const double fair = sum / static_cast<double>(customers.size());
  double worst = 0;
  for (const Customer& one : customers) {
    worst = std::max(worst, std::abs(fleet.used(one.job) / fair - 1));
  }
  return worst;
}

// The bar: 100 jobs, whose candidates differ thirtyfold in cost, within 10 % of each other.
TEST(DeviceShareTest, AHundredJobsGetEqualSecondsWithinTenPercent) {
  std::vector<Customer> customers;
  for (int i = 0; i < 100; ++i) {
    customers.push_back({"one", support::StrCat("job", i), 0.05 * (1 + i % 30), 3, 0, i % 3 == 0});
  }
  BusyFleet fleet(PoolOptions(), 40, customers);
  fleet.RunUntil(60);  // what items cost is learned
  fleet.Forget();
  fleet.RunUntil(360);
  const double worst = WorstShare(fleet, customers);
  std::printf("100 jobs, 40 devices, 300 s: shares within %.1f %%\n", worst * 100);
  EXPECT_LT(worst, 0.10);
}

TEST(DeviceShareTest, EqualUsersGetEqualSecondsOverAMinuteHoweverManyJobsTheyHave) {
  std::vector<Customer> customers;
  for (int user = 0; user < 5; ++user) {
    for (int job = 0; job <= user * 4; ++job) {
      customers.push_back({support::StrCat("u", user), support::StrCat("u", user, "j", job),
                           0.1 * (1 + user), 3, 0, false});
    }
  }
  BusyFleet fleet(PoolOptions(), 10, customers);
  fleet.RunUntil(30);
  fleet.Forget();
  fleet.RunUntil(90);
  double sum = 0;
  for (int user = 0; user < 5; ++user) sum += fleet.used(support::StrCat("user u", user));
  for (int user = 0; user < 5; ++user) {
    EXPECT_NEAR(fleet.used(support::StrCat("user u", user)) / sum, 0.2, 0.02) << user;
  }
}

TEST(DeviceShareTest, WeightsOfUsersAndJobsCount) {
  PoolOptions options;
  ASSERT_TRUE(AddUserPolicy("ann:weight=3", &options.share).ok());
  BusyFleet fleet(options, 10,
                  {{"ann", "a1", 0.2, 3, 1, false},
                   {"ann", "a2", 0.2, 3, 4, false},
                   {"bob", "b", 0.4, 3, 0, false}});
  fleet.RunUntil(30);
  fleet.Forget();
  fleet.RunUntil(330);
  const double all = fleet.used("user ann") + fleet.used("user bob");
  EXPECT_NEAR(fleet.used("user ann") / all, 0.75, 0.02);
  EXPECT_NEAR(fleet.used("a2") / fleet.used("user ann"), 0.8, 0.02);
}

TEST(DeviceShareTest, AnIdleJobIsServedWithinTheTimeOfItsClassesAndThenWaitsAgain) {
  PoolOptions options;
  options.age_class_ns = 20 * kSecondNs;
  BusyFleet fleet(options, 2,
                  {{"ann", "urgent", 0.2, 1, 0, false}, {"bob", "idle", 0.2, 4, 0, false}});
  fleet.RunUntil(58);
  EXPECT_EQ(fleet.used("idle"), 0);
  fleet.RunUntil(70);  // three classes, 60 s
  EXPECT_GT(fleet.used("idle"), 0);
  fleet.RunUntil(600);
  EXPECT_LT(fleet.used("idle"), 0.1 * fleet.used("urgent")) << "urgent stays urgent";
}

TEST(DeviceShareTest, QuotasOfDevicesAndSecondsHoldBackAndSaySo) {
  PoolOptions options;
  ASSERT_TRUE(AddUserPolicy("ann:devices=2", &options.share).ok());
  ASSERT_TRUE(AddUserPolicy("bob:seconds_per_day=30", &options.share).ok());
  BusyFleet fleet(options, 6, {{"ann", "a", 0.2, 3, 0, false}, {"bob", "b", 0.2, 3, 0, false}});
  std::map<std::string, v1::UserShare> shares;
  for (double at_s = 1; at_s < 120; at_s += 1) {
    fleet.RunUntil(at_s);
    for (const v1::UserShare& share : fleet.pool().Shares(At(at_s))) {
      shares[share.user()] = share;
      if (share.user() == "ann") {
        EXPECT_LE(share.devices(), 2);
      }
    }
  }
  EXPECT_NEAR(fleet.used("user ann"), 2 * 119, 6);
  // Never exceeded by more than a batch per device.
  EXPECT_GE(fleet.used("user bob"), 30);
  EXPECT_LT(fleet.used("user bob"), 30 + 4 * 8 * 0.3);
  EXPECT_EQ(shares["bob"].blocked(), "quota.user.device_seconds");
  EXPECT_NEAR(shares["bob"].device_seconds_today(), fleet.used("user bob"), 1e-3);
}

TEST(DeviceShareTest, ANewDayAndARestartKnowWhatWasUsed) {
  PoolOptions options;
  ASSERT_TRUE(AddUserPolicy("bob:seconds_per_day=30", &options.share).ok());
  Snapshot snapshot = EmptySnapshot();
  snapshot.usage.push_back({"bob", 19'000, 31});
  DevicePool pool(options, snapshot, {0, int64_t{19'000} * 86'400 * 1'000'000});
  v1::WorkItem item = Item("w");
  item.set_user("bob");
  const auto grants = [&](int64_t day, uint64_t sequence) {
    const Now now{At(static_cast<double>(sequence)).mono_ns, day * 86'400 * 1'000'000 + 5};
    EXPECT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/d"}, sequence), "", now).ok());
    v1::SyncResponse answer;
    pool.FillSyncResponse("agents/a", true, now, &answer);
    return answer.grants_size();
  };
  pool.Submit("tuner", item, {0, int64_t{19'000} * 86'400 * 1'000'000});
  EXPECT_EQ(grants(19'000, 1), 0);
  EXPECT_EQ(grants(19'001, 2), 1);
}

TEST(DeviceShareTest, FullQueuesAskTunersToComeBack) {
  PoolOptions options;
  options.max_open_items = 3;
  ASSERT_TRUE(AddUserPolicy("ann:items=2", &options.share).ok());
  DevicePool pool(options, EmptySnapshot(), At(0));
  const auto submit = [&](const std::string& name, const std::string& user) {
    v1::WorkItem item = Item(name);
    item.set_user(user);
    return pool.Submit("tuner", item, At(1));
  };
  EXPECT_EQ(submit("a1", "ann").kind(), v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  EXPECT_EQ(submit("a2", "ann").kind(), v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  EXPECT_EQ(submit("a3", "ann").kind(), v1::SubmitOutcome::KIND_RETRY_LATER);
  EXPECT_THAT(submit("a3", "ann").detail(), ::testing::HasSubstr("quota.user.items"));
  EXPECT_EQ(submit("a2", "ann").kind(), v1::SubmitOutcome::KIND_EXISTS) << "known already";
  EXPECT_EQ(submit("b1", "bob").kind(), v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  EXPECT_THAT(submit("b2", "bob").detail(), ::testing::HasSubstr("queue.items.full"));
  v1::CancelWorkRequest cancel;
  cancel.set_consumer("tuner");
  cancel.add_work_items("a1");
  pool.Cancel(cancel, At(2));
  EXPECT_EQ(submit("a3", "ann").kind(), v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

}  // namespace
}  // namespace tilewright::tracker::testing
