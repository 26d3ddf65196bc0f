// Random simulation of a small fleet around the tracker's state machine and its real store: agents
// that crash, pause and lose messages, a tracker that restarts and whose commits fail, a consumer
// that crashes. After every event the pool's rules hold; after healing everything ends, nothing is
// lost, nothing counts twice. A failure prints its seed; TILEWRIGHT_SEED replays it.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deploy/support/rng.h"
#include "tests/support/test_seed.h"
#include "tests/unit/pool_fixture.h"
#include "tracker/device_pool.h"
#include "tracker/tracker_store.h"

namespace tilewright::tracker::testing {
namespace {

PoolOptions SimOptions() {
  PoolOptions options;
  options.lease_ttl_ns = 3 * kSecondNs;
  options.recovery_ns = 3 * kSecondNs;
  options.suspect_after_ns = 5 * kSecondNs;
  options.offline_after_ns = 10 * kSecondNs;
  options.max_infra_losses = 1000;  // liveness is checked: only chaos may be the limit
  options.max_candidate_kills = 2;
  return options;
}

// An agent as the contract wants it: what it spooled survives its crashes.
struct SimAgent {
  struct HeldLease {
    v1::Grant grant;
    std::set<int> finished;  // indexes of work with a result in the spool
    std::set<int> revoked;
    int running = -1;
  };
  std::string name;
  std::vector<std::string> devices;
  int session = 0;
  uint64_t sequence = 0;
  bool up = true;
  std::map<std::string, HeldLease> leases;
  std::map<std::string, v1::MeasurementResult> spool;  // not acknowledged
  std::map<std::string, int64_t> highest_token;        // by device
};

class Fleet {
 public:
  explicit Fleet(uint64_t seed) : rng_(seed) {
    auto store = TrackerStore::Open(":memory:");
    TW_CHECK(store.ok()) << store.status();
    store_ = *std::move(store);
    Restart();
    const int agents = 1 + static_cast<int>(rng_.Uniform(3));
    for (int i = 0; i < agents; ++i) {
      SimAgent agent;
      agent.name = support::StrCat("agents/a", i);
      const int devices = 1 + static_cast<int>(rng_.Uniform(2));
      for (int d = 0; d < devices; ++d) {
        agent.devices.push_back(support::StrCat("devices/a", i, "d", d));
      }
      agents_.push_back(std::move(agent));
    }
  }

  void Chaos(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      now_.mono_ns += static_cast<int64_t>(rng_.Uniform(600'000'000));
      now_.wall_us = now_.mono_ns / 1000;
      Event();
      CheckRules();
    }
  }

  // No more faults: every open item must end within a bounded time.
  void Heal() {
    chaos_ = false;
    for (SimAgent& agent : agents_) {
      if (!agent.up) StartAgent(&agent);
    }
    for (int i = 0; i < 3000 && !AllClosed() && !::testing::Test::HasFailure(); ++i) {
      now_.mono_ns += 200'000'000;
      now_.wall_us = now_.mono_ns / 1000;
      for (SimAgent& agent : agents_) {
        Sync(&agent);
        Work(&agent);
        ReportSpool(&agent);
      }
      for (auto& [device, state] : admin_) {
        if (state != v1::ADMIN_STATE_ENABLED) SetAdmin(device, v1::ADMIN_STATE_ENABLED);
      }
      ResubmitAll();
      Consume();
      pool_->Tick(now_);
      Commit();
      CheckRules();
    }
    for (int i = 0; i < 100; ++i) Consume();
  }

  void CheckEnd() {
    EXPECT_TRUE(AllClosed());
    int64_t accepted = 0;
    for (const auto& [name, item] : submitted_) {
      const auto it = final_updates_.find(name);
      ASSERT_NE(it, final_updates_.end()) << name << " has no final update";
      if (it->second.state() == v1::WORK_STATE_DONE) {
        ++accepted;
        EXPECT_TRUE(produced_.count(it->second.result().measurement_id()))
            << "a result nobody made: " << it->second.result().measurement_id();
      }
    }
    // Acknowledged means durable: every result that an agent was told to forget is in the store or
    // was refused for a reason.
    const auto snapshot = store_->Load();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    std::set<std::string> stored;
    for (const WorkRow& row : snapshot->items) {
      for (const Attempt& attempt : row.attempts) {
        if (attempt.disposition != v1::DISPOSITION_UNSPECIFIED) {
          stored.insert(support::StrCat(row.item.name(), "/", attempt.number));
        }
      }
    }
    for (const std::string& id : acked_) EXPECT_TRUE(stored.count(id)) << id << " was lost";
    EXPECT_GT(accepted, 0);
    EXPECT_EQ(snapshot->outbox.size(), 0u);
    done_ += accepted;
  }

  int64_t done() const { return done_; }
  int64_t restarts() const { return restarts_; }
  int64_t failed_commits() const { return failed_commits_; }

 private:
  bool Roll(double probability) { return chaos_ && rng_.Bernoulli(probability); }

  void Restart() {
    auto snapshot = store_->Load();
    TW_CHECK(snapshot.ok()) << snapshot.status();
    pool_ = std::make_unique<DevicePool>(SimOptions(), *std::move(snapshot), now_);
    ++restarts_;
  }

  // What the loop does after applying calls: answers may go out only when this returns true.
  bool Commit() {
    const Changes changes = pool_->TakeChanges();
    if (changes.empty()) return true;
    if (Roll(0.05)) {
      ++failed_commits_;
      Restart();
      return false;
    }
    const absl::Status status = store_->Commit(changes);
    EXPECT_TRUE(status.ok()) << status;
    return status.ok();
  }

  void Event() {
    SimAgent& agent = agents_[rng_.Uniform(agents_.size())];
    switch (rng_.Uniform(14)) {
      case 0:
      case 1:
        SubmitNew();
        break;
      case 2:
        ResubmitAll();
        break;
      case 3:
      case 4:
      case 5:
        Sync(&agent);
        break;
      case 6:
      case 7:
        Work(&agent);
        break;
      case 8:
      case 9:
        ReportSpool(&agent);
        break;
      case 10:
        Consume();
        break;
      case 11:
        if (rng_.Bernoulli(0.3)) Crash(&agent);
        break;
      case 12:
        if (rng_.Bernoulli(0.3)) Restart();
        break;
      case 13:
        Rare();
        break;
    }
    pool_->Tick(now_);
    Commit();
  }

  void Rare() {
    const int what = static_cast<int>(rng_.Uniform(4));
    if (what == 0) now_.mono_ns += 4 * kSecondNs;  // everybody was paused beyond a lease
    if (what == 1 && !submitted_.empty() && rng_.Bernoulli(0.3)) CancelOne();
    if (what == 2) {
      const SimAgent& agent = agents_[rng_.Uniform(agents_.size())];
      SetAdmin(agent.devices[0],
               rng_.Bernoulli(0.5) ? v1::ADMIN_STATE_DRAINING : v1::ADMIN_STATE_ENABLED);
    }
  }

  void SetAdmin(const std::string& device, v1::AdminState state) {
    v1::SetDeviceAdminStateRequest request;
    request.set_name(device);
    request.set_admin_state(state);
    request.set_kill_running(rng_.Bernoulli(0.5));
    if (!pool_->SetAdminState(request, now_).ok()) return;  // never seen yet
    if (Commit()) admin_[device] = state;
  }

  void CancelOne() {
    const auto it =
        std::next(submitted_.begin(), static_cast<int64_t>(rng_.Uniform(submitted_.size())));
    v1::CancelWorkRequest request;
    request.set_consumer("tuner");
    request.add_work_items(it->first);
    request.set_kill_running(rng_.Bernoulli(0.5));
    pool_->Cancel(request, now_);
    Commit();
  }

  void SubmitNew() {
    for (uint64_t i = 0, n = 1 + rng_.Uniform(4); i < n; ++i) {
      v1::WorkItem item =
          Item(support::StrCat("w", next_item_++), support::StrCat("job", rng_.Uniform(3)));
      item.set_priority(static_cast<int>(rng_.Uniform(6)));
      item.set_max_batch(static_cast<int>(rng_.Uniform(4)));
      item.set_invalid_retries(static_cast<int>(rng_.Uniform(2)));
      submitted_[item.name()] = item;
      pool_->Submit("tuner", item, now_);
    }
    Commit();  // when it fails the consumer does not know; ResubmitAll repeats
  }

  void ResubmitAll() {
    for (const auto& [name, item] : submitted_) {
      if (final_updates_.count(name) != 0) continue;
      const v1::SubmitOutcome outcome = pool_->Submit("tuner", item, now_);
      EXPECT_NE(outcome.kind(), v1::SubmitOutcome::KIND_INVALID) << outcome.detail();
    }
    Commit();
  }

  void StartAgent(SimAgent* agent) {
    agent->up = true;
    ++agent->session;
    agent->sequence = 0;
    // What ran when the process died is lost with it; the spool knows that it had started.
    for (auto& [name, lease] : agent->leases) {
      if (lease.running < 0) continue;
      v1::MeasurementResult lost = ResultOf(lease.grant, lease.running, v1::DEVICE_LOST);
      if (rng_.Bernoulli(0.3)) lost.set_phase("timed");
      Spool(agent, &lease, lease.running, lost);
      lease.running = -1;
    }
  }

  void Crash(SimAgent* agent) {
    if (!agent->up) {
      StartAgent(agent);
      return;
    }
    agent->up = false;
    // Now and then the spool is gone as well: leases and unreported results are lost.
    if (rng_.Bernoulli(0.05)) {
      agent->leases.clear();
      agent->spool.clear();
    }
  }

  void Spool(SimAgent* agent, SimAgent::HeldLease* lease, int index,
             const v1::MeasurementResult& result) {
    lease->finished.insert(index);
    produced_.insert(result.measurement_id());
    agent->spool[result.measurement_id()] = result;
  }

  bool Busy(const SimAgent& agent, const std::string& device) const {
    for (const auto& [name, lease] : agent.leases) {
      if (lease.grant.device() == device && lease.finished.size() + lease.revoked.size() <
                                                static_cast<size_t>(lease.grant.work_size())) {
        return true;
      }
    }
    return false;
  }

  void Sync(SimAgent* agent) {
    if (!agent->up) return;
    v1::SyncRequest request = SyncOf(agent->name, agent->devices, ++agent->sequence,
                                     support::StrCat("s", agent->session));
    for (v1::DeviceReport& device : *request.mutable_devices()) {
      if (Busy(*agent, device.device())) device.set_activity(v1::ACTIVITY_MEASURING);
      if (Roll(0.05)) device.set_health(v1::HEALTH_COOLING);
    }
    for (const auto& [name, lease] : agent->leases) {
      v1::LeaseReport* report = request.add_leases();
      report->set_lease(name);
      report->set_fencing_token(lease.grant.fencing_token());
      report->set_phase(v1::LEASE_PHASE_RUNNING);
    }
    if (Roll(0.1)) return;  // the request is lost
    const auto taken = pool_->Sync(request, "10.0.0.1", now_);
    EXPECT_TRUE(taken.ok()) << taken.status();
    v1::SyncResponse response;
    pool_->FillSyncResponse(agent->name, true, now_, &response);
    for (const v1::Grant& grant : response.grants()) CheckGrant(grant, request);
    if (!Commit()) return;
    if (Roll(0.1)) return;  // the answer is lost
    Obey(agent, response);
  }

  // I5 and I7, seen from outside.
  void CheckGrant(const v1::Grant& grant, const v1::SyncRequest& request) {
    const auto [it, first] = lease_tokens_.emplace(grant.lease(), grant.fencing_token());
    EXPECT_EQ(it->second, grant.fencing_token());
    if (!first) return;
    // Tokens of grants that were never committed may be used again: they never went out.
    for (const v1::DeviceReport& device : request.devices()) {
      if (device.device() != grant.device()) continue;
      EXPECT_EQ(device.activity(), v1::ACTIVITY_IDLE);
      EXPECT_EQ(device.health(), v1::HEALTH_GOOD);
    }
    EXPECT_NE(admin_[grant.device()], v1::ADMIN_STATE_DRAINING);
  }

  void Obey(SimAgent* agent, const v1::SyncResponse& response) {
    for (const v1::Grant& grant : response.grants()) {
      int64_t& highest = agent->highest_token[grant.device()];
      if (agent->leases.count(grant.lease()) != 0) continue;
      // I5: the tokens that an agent sees of a device rise.
      if (grant.fencing_token() == highest) continue;  // repeated after the spool forgot it
      EXPECT_GT(grant.fencing_token(), highest) << grant.lease();
      highest = std::max(highest, grant.fencing_token());
      agent->leases[grant.lease()].grant = grant;
    }
    for (const v1::Revoke& revoke : response.revokes()) {
      const auto it = agent->leases.find(revoke.lease());
      if (it == agent->leases.end()) continue;
      std::set<std::string> named(revoke.work_items().begin(), revoke.work_items().end());
      for (int i = 0; i < it->second.grant.work_size(); ++i) {
        if (!named.empty() && named.count(it->second.grant.work(i).work_item()) == 0) continue;
        if (it->second.finished.count(i) == 0) it->second.revoked.insert(i);
      }
    }
    for (const std::string& unknown : response.unknown_leases()) {
      const auto it = agent->leases.find(unknown);
      if (it == agent->leases.end()) continue;
      for (int i = 0; i < it->second.grant.work_size(); ++i) {
        if (it->second.finished.count(i) == 0) it->second.revoked.insert(i);
      }
    }
    ForgetEndedLeases(agent);
  }

  void ForgetEndedLeases(SimAgent* agent) {
    std::erase_if(agent->leases, [&](const auto& entry) {
      const SimAgent::HeldLease& lease = entry.second;
      if (lease.finished.size() + lease.revoked.size() <
          static_cast<size_t>(lease.grant.work_size())) {
        return false;
      }
      for (int i : lease.finished) {
        const v1::Work& work = lease.grant.work(i);
        if (agent->spool.count(support::StrCat(work.work_item(), "/", work.attempt())) != 0) {
          return false;
        }
      }
      return true;
    });
  }

  void Work(SimAgent* agent) {
    if (!agent->up) return;
    for (auto& [name, lease] : agent->leases) {
      if (lease.running >= 0) {
        const double luck = rng_.UniformDouble();
        v1::MeasurementResult result = ResultOf(lease.grant, lease.running);
        if (chaos_ && luck < 0.08) result.set_outcome(v1::WRONG_RESULT);
        if (chaos_ && luck > 0.92) result.set_outcome(v1::DEVICE_LOST);
        if (chaos_ && luck > 0.97) result.set_phase("first_run");
        if (chaos_ && luck > 0.8 && luck < 0.9) result.set_valid(false);
        Spool(agent, &lease, lease.running, result);
        lease.running = -1;
        return;
      }
      for (int i = 0; i < lease.grant.work_size(); ++i) {
        if (lease.finished.count(i) != 0 || lease.revoked.count(i) != 0) continue;
        lease.running = i;
        return;
      }
    }
  }

  void ReportSpool(SimAgent* agent) {
    if (!agent->up || agent->spool.empty()) return;
    std::vector<v1::MeasurementResult> batch;
    for (const auto& [id, result] : agent->spool) {
      if (batch.size() < 3) batch.push_back(result);
    }
    if (Roll(0.1)) return;
    std::vector<v1::Ack> acks;
    for (const v1::MeasurementResult& result : batch) {
      acks.push_back(pool_->Report(result, "10.0.0.1", now_));
    }
    if (!Commit()) return;
    if (Roll(0.15)) return;  // the acks are lost: the agent reports again
    for (const v1::Ack& ack : acks) {
      if (ack.disposition() != v1::DISPOSITION_REJECTED) acked_.insert(ack.measurement_id());
      agent->spool.erase(ack.measurement_id());
    }
    ForgetEndedLeases(agent);
  }

  // A consumer that commits updates and cursor together, then acknowledges.
  void Consume() {
    v1::PullResultsRequest request;
    request.set_consumer("tuner");
    request.set_cursor(cursor_);
    request.set_max_updates(1 + static_cast<int>(rng_.Uniform(5)));
    v1::PullResultsResponse response;
    const bool news = pool_->Pull(request, &response);
    if (!Commit()) return;
    if (!news || Roll(0.1)) return;
    for (const v1::WorkUpdate& update : response.updates()) {
      if (update.has_result()) {
        EXPECT_TRUE(recorded_.insert(update.result().measurement_id()).second)
            << update.result().measurement_id() << " came twice";
      }
      if (update.state() == v1::WORK_STATE_QUEUED) continue;
      const auto [it, first] = final_updates_.emplace(update.work_item(), update);
      EXPECT_TRUE(first) << update.work_item() << " ended twice: " << it->second.ShortDebugString()
                         << "\n and " << update.ShortDebugString() << "\nwith cursor " << cursor_;
    }
    cursor_ = response.cursor();
    if (Roll(0.2)) return;
    v1::AckResultsRequest ack;
    ack.set_consumer("tuner");
    ack.set_cursor(cursor_);
    EXPECT_TRUE(pool_->Acknowledge(ack).ok());
    Commit();
  }

  bool AllClosed() const { return final_updates_.size() == submitted_.size(); }

  void CheckRules() {
    const absl::Status status = pool_->CheckInvariants();
    EXPECT_TRUE(status.ok()) << status;
  }

  support::Rng rng_;
  std::unique_ptr<TrackerStore> store_;
  std::unique_ptr<DevicePool> pool_;
  Now now_{kSecondNs, 1'000'000};
  bool chaos_ = true;
  std::vector<SimAgent> agents_;
  std::map<std::string, v1::WorkItem> submitted_;
  std::map<std::string, v1::WorkUpdate> final_updates_;
  std::map<std::string, v1::AdminState> admin_;
  std::map<std::string, int64_t> lease_tokens_;
  std::set<std::string> produced_;
  std::set<std::string> acked_;
  std::set<std::string> recorded_;
  std::string cursor_;
  int next_item_ = 0;
  int64_t done_ = 0;
  int64_t restarts_ = 0;
  int64_t failed_commits_ = 0;
};

TEST(DevicePoolSimTest, RulesHoldUnderChaosAndEverythingEndsAfterHealing) {
  const uint64_t first = tests::TestSeed(1);
  const int64_t rounds = tests::TestRounds(40);
  int64_t done = 0;
  int64_t restarts = 0;
  int64_t failed_commits = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SCOPED_TRACE(support::StrCat("TILEWRIGHT_SEED=", seed));
    Fleet fleet(seed);
    fleet.Chaos(400);
    fleet.Heal();
    fleet.CheckEnd();
    done += fleet.done();
    restarts += fleet.restarts();
    failed_commits += fleet.failed_commits();
    if (HasFailure()) {
      std::printf("failing seed: TILEWRIGHT_SEED=%llu TILEWRIGHT_ROUNDS=1\n",
                  static_cast<unsigned long long>(seed));
      return;
    }
  }
  std::printf("%lld fleets, %lld results accepted, %lld restarts, %lld failed commits\n",
              static_cast<long long>(rounds), static_cast<long long>(done),
              static_cast<long long>(restarts), static_cast<long long>(failed_commits));
  // A run that exercised nothing proves nothing.
  EXPECT_GT(done, rounds * 10);
  EXPECT_GT(restarts, rounds * 2);
  EXPECT_GT(failed_commits, rounds);
}

}  // namespace
}  // namespace tilewright::tracker::testing
