// The tracker's real binary is killed again and again while an agent and a consumer work through
// it: every acknowledged result is in its database, nothing counts twice, all work ends. The agent
// and the consumer live in this process and keep what a durable spool and a durable log would.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/mutex.h"
#include "deploy/support/process.h"
#include "deploy/support/rng.h"
#include "tests/support/patience.h"
#include "tests/support/test_seed.h"
#include "tests/unit/pool_fixture.h"
#include "tilewright/v1/agent.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tracker/tracker_store.h"

namespace tilewright::tracker::testing {
namespace {

constexpr int kItems = 300;
constexpr int64_t kDeadlineMs = 120'000;

// The tracker as a process that can be killed and started again at the same address.
class TrackerProcess {
 public:
  explicit TrackerProcess(std::string state_dir) : state_dir_(std::move(state_dir)) {}

  void Start() {
    const std::string port_file = support::PathJoin(state_dir_, "port");
    ASSERT_TRUE(support::RemoveTree(port_file).ok());
    support::ChildOptions options;
    options.program = support::FindSibling("tilewright-tracker").value();
    options.args = {"--state-dir",    state_dir_,
                    "--port-file",    port_file,
                    "--lease-ttl-ms", "2000",
                    "--recovery-ms",  "1000",
                    "--listen",       address_.empty() ? "127.0.0.1:0" : address_};
    auto child = support::Child::Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
    for (int i = 0; i < tests::Patiently(3000) && !support::FileExists(port_file); ++i) {
      if (child_->Wait(0).ok()) break;
      support::SleepMs(10);
    }
    const auto address = support::ReadFile(port_file, 100);
    ASSERT_TRUE(address.ok()) << child_->stderr_tail();
    address_ = std::string(support::Trim(*address));
  }

  void Kill9() {
    child_->Kill(SIGKILL);
    (void)child_->Wait(tests::Patiently(10'000));
  }

  support::ExitStatus Terminate() {
    child_->Kill(SIGTERM);
    const auto status = child_->Wait(tests::Patiently(20'000));
    EXPECT_TRUE(status.ok()) << status.status();
    return status.value_or(support::ExitStatus());
  }

  const std::string& address() const { return address_; }

 private:
  std::string state_dir_;
  std::string address_;
  std::unique_ptr<support::Child> child_;
};

// An agent with one device that obeys the contract.
class TestAgent {
 public:
  explicit TestAgent(const std::string& address)
      : stub_(v1::AgentService::NewStub(daemon::MakeChannel(address, {true}))) {}

  void Run(const std::atomic<bool>& stop) {
    while (!stop.load()) {
      if (!Sync()) support::SleepMs(20);
      for (auto& [name, grant] : leases_) Measure(grant);
      Report();
    }
  }

  std::set<std::string> acked() const { return acked_; }
  const std::set<std::string>& produced() const { return produced_; }

 private:
  bool Sync() {
    v1::SyncRequest request = SyncOf("agents/a", {"devices/d"}, ++sequence_);
    for (const auto& [name, grant] : leases_) {
      v1::LeaseReport* lease = request.add_leases();
      lease->set_lease(name);
      lease->set_fencing_token(grant.fencing_token());
      lease->set_phase(v1::LEASE_PHASE_RUNNING);
    }
    if (!leases_.empty()) {
      request.mutable_devices(0)->set_activity(v1::ACTIVITY_MEASURING);
    } else {
      request.mutable_max_wait()->set_nanos(500'000'000);
    }
    v1::SyncResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(3000));
    if (!stub_->Sync(&context, request, &response).ok()) return false;
    for (const v1::Grant& grant : response.grants()) {
      if (leases_.count(grant.lease()) != 0 || grant.fencing_token() <= highest_token_) continue;
      highest_token_ = grant.fencing_token();
      leases_[grant.lease()] = grant;
    }
    for (const std::string& unknown : response.unknown_leases()) leases_.erase(unknown);
    return true;
  }

  void Measure(const v1::Grant& grant) {
    for (int i = 0; i < grant.work_size(); ++i) {
      const v1::MeasurementResult result = ResultOf(grant, i);
      if (!produced_.insert(result.measurement_id()).second) continue;
      spool_[result.measurement_id()] = result;
      support::SleepMs(1);
    }
  }

  void Report() {
    if (spool_.empty()) return;
    v1::ReportResultsRequest request;
    request.set_agent("agents/a");
    for (const auto& [id, result] : spool_) {
      if (request.results_size() < 3) *request.add_results() = result;
    }
    v1::ReportResultsResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(3000));
    if (!stub_->ReportResults(&context, request, &response).ok()) return;
    for (const v1::Ack& ack : response.acks()) {
      EXPECT_NE(ack.disposition(), v1::DISPOSITION_REJECTED) << ack.detail();
      acked_.insert(ack.measurement_id());
      spool_.erase(ack.measurement_id());
    }
    std::erase_if(leases_, [&](const auto& entry) {
      for (const v1::Work& work : entry.second.work()) {
        if (spool_.count(support::StrCat(work.work_item(), "/", work.attempt())) != 0) {
          return false;
        }
      }
      return true;
    });
  }

  std::unique_ptr<v1::AgentService::Stub> stub_;
  uint64_t sequence_ = 0;
  int64_t highest_token_ = 0;
  std::map<std::string, v1::Grant> leases_;
  std::map<std::string, v1::MeasurementResult> spool_;
  std::set<std::string> produced_;
  std::set<std::string> acked_;
};

// A tuner that submits everything and pulls until everything ended.
class TestConsumer {
 public:
  explicit TestConsumer(const std::string& address)
      : channel_(daemon::MakeChannel(address, {true})),
        stub_(v1::DispatchService::NewStub(channel_)),
        artifacts_(v1::ArtifactService::NewStub(channel_)) {}

  void Run(const std::atomic<bool>& stop) {
    while (!stop.load() && finals_.load() < kItems) {
      if (!Submit() || !Pull()) support::SleepMs(20);
    }
  }

  int finals() const { return finals_.load(); }
  const std::map<std::string, v1::WorkUpdate>& updates() const { return final_; }

 private:
  // A few items at a time, each until the tracker says that it has it.
  bool Submit() {
    if (next_ >= kItems) return true;
    v1::SubmitWorkRequest request;
    request.set_consumer("tuner");
    for (int i = next_; i < std::min(next_ + 10, kItems); ++i) {
      v1::WorkItem item = Item(support::StrCat("w", i));
      *item.mutable_work()->mutable_artifact() = DigestOf("artifact");
      item.set_max_batch(3);
      *request.add_work_items() = item;
    }
    v1::SubmitWorkResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(3000));
    if (!stub_->SubmitWork(&context, request, &response).ok()) return false;
    for (const v1::SubmitOutcome& outcome : response.outcomes()) {
      if (outcome.kind() == v1::SubmitOutcome::KIND_MISSING_ARTIFACT) {
        return daemon::UploadArtifact(artifacts_.get(), support::Sha256Hex("artifact"), "artifact",
                                      3000)
            .ok();
      }
      EXPECT_NE(outcome.kind(), v1::SubmitOutcome::KIND_INVALID) << outcome.detail();
    }
    next_ += response.outcomes_size();
    return true;
  }

  bool Pull() {
    v1::PullResultsRequest request;
    request.set_consumer("tuner");
    request.set_cursor(cursor_);
    request.mutable_max_wait()->set_nanos(next_ < kItems ? 0 : 200'000'000);
    v1::PullResultsResponse response;
    {
      grpc::ClientContext context;
      daemon::SetTimeout(&context, tests::Patiently(3000));
      if (!stub_->PullResults(&context, request, &response).ok()) return false;
    }
    for (const v1::WorkUpdate& update : response.updates()) {
      if (update.has_result()) {
        EXPECT_TRUE(recorded_.insert(update.result().measurement_id()).second)
            << update.result().measurement_id() << " came twice";
      }
      if (update.state() == v1::WORK_STATE_QUEUED) continue;
      EXPECT_TRUE(final_.emplace(update.work_item(), update).second)
          << update.work_item() << " ended twice";
    }
    finals_.store(static_cast<int>(final_.size()));
    cursor_ = response.cursor();
    v1::AckResultsRequest ack;
    ack.set_consumer("tuner");
    ack.set_cursor(cursor_);
    google::protobuf::Empty empty;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(3000));
    return stub_->AckResults(&context, ack, &empty).ok();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::DispatchService::Stub> stub_;
  std::unique_ptr<v1::ArtifactService::Stub> artifacts_;
  int next_ = 0;
  std::string cursor_;
  std::map<std::string, v1::WorkUpdate> final_;
  std::set<std::string> recorded_;
  std::atomic<int> finals_{0};
};

TEST(TrackerKillTest, KillingTheTrackerLosesNothingAndCountsNothingTwice) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  support::Rng rng(tests::TestSeed(1));
  const int64_t rounds = tests::TestRounds(20);
  TrackerProcess tracker(dir->path());
  ASSERT_NO_FATAL_FAILURE(tracker.Start());
  TestAgent agent(tracker.address());
  TestConsumer consumer(tracker.address());
  std::atomic<bool> stop{false};
  std::thread agent_thread([&] { agent.Run(stop); });
  std::thread consumer_thread([&] { consumer.Run(stop); });

  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + tests::Patiently(kDeadlineMs) * 1'000'000;
  const auto wait_for = [&](int finals) {
    while (consumer.finals() < finals && clock.NowNs() < end_ns) support::SleepMs(1);
  };
  for (int64_t round = 0; round < rounds; ++round) {
    // Each kill comes in the middle of traffic: a share of the work is done, more is on its way.
    wait_for(static_cast<int>(kItems * (round + 1) / (rounds + 2)));
    support::SleepMs(static_cast<int64_t>(rng.Uniform(15)));
    tracker.Kill9();
    tracker.Start();
    if (HasFatalFailure()) break;
  }
  wait_for(kItems);
  stop.store(true);
  agent_thread.join();
  consumer_thread.join();
  EXPECT_EQ(consumer.finals(), kItems);
  EXPECT_EQ(tracker.Terminate().exit_code, 0);

  for (const auto& [name, update] : consumer.updates()) {
    EXPECT_EQ(update.state(), v1::WORK_STATE_DONE) << name;
    EXPECT_TRUE(agent.produced().count(update.result().measurement_id())) << name;
  }
  auto store = TrackerStore::Open(dir->File("tracker.db"));
  ASSERT_TRUE(store.ok()) << store.status();
  const auto snapshot = (*store)->Load();
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->items.size(), static_cast<size_t>(kItems));
  std::set<std::string> stored;
  for (const WorkRow& row : snapshot->items) {
    for (const Attempt& attempt : row.attempts) {
      if (attempt.disposition != v1::DISPOSITION_UNSPECIFIED) {
        stored.insert(support::StrCat(row.item.name(), "/", attempt.number));
      }
    }
  }
  for (const std::string& id : agent.acked()) EXPECT_TRUE(stored.count(id)) << id << " was lost";
  std::printf("%lld kills, %zu results acknowledged, %zu measured\n",
              static_cast<long long>(rounds), agent.acked().size(), agent.produced().size());
}

TEST(TrackerProcessTest, BadFlagsAndFilesGetTheirExitCodes) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  std::string program = "tilewright-tracker";
  const auto run = [&](const std::vector<std::string>& args) {
    support::ChildOptions options;
    options.program = support::FindSibling(program).value();
    options.args = args;
    const auto result = support::RunCommand(options, "", tests::Patiently(20'000));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->status.exit_code : -1;
  };
  const std::string state = dir->File("state");
  EXPECT_EQ(run({"--no-such-flag"}), 64);
  const std::string good_token = dir->File("token");
  ASSERT_TRUE(support::WriteFileAtomic(good_token, "0123456789abcdef\n", 0600).ok());
  // A start and --check-config refuse the same: there is one check.
  const auto refused = [&](std::vector<std::string> args, int code) {
    EXPECT_EQ(run(args), code) << support::Join(args, " ");
    args.push_back("--check-config");
    EXPECT_EQ(run(args), code) << support::Join(args, " ");
  };
  refused({}, 64);                                      // no state folder
  refused({"--state-dir", good_token + "/state"}, 77);  // below a file
  refused({"--state-dir", state, "--lease-ttl-ms", "1"}, 64);
  refused({"--state-dir", state, "--log-level", "loud"}, 64);
  refused({"--state-dir", state, "--listen", "nowhere"}, 64);
  refused({"--state-dir", state, "--listen", "0.0.0.0:0"}, 78);
  refused({"--state-dir", state, "--metrics", "nowhere"}, 64);
  refused({"--state-dir", state, "--metrics", "0.0.0.0:0"}, 78);
  refused({"--state-dir", state, "--metrics-token", good_token}, 78);
  refused({"--state-dir", state, "--identity", state}, 66);
  refused({"--state-dir", state, "--enrol-listen", "127.0.0.1:0"}, 64);
  program = "tilewright-agent";
  const std::vector<std::string> agent = {"--state-dir", state, "--tracker", "127.0.0.1:1"};
  const auto agent_refused = [&](std::vector<std::string> more, int code) {
    more.insert(more.begin(), agent.begin(), agent.end());
    refused(std::move(more), code);
  };
  refused({"--state-dir", state}, 64);  // no tracker
  agent_refused({"--device", "abacus"}, 64);
  agent_refused({"--device", "cpu,cores=0", "--device", "cpu,name=b,cores=0"}, 64);
  agent_refused({"--name", "a b"}, 64);
  agent_refused({"--metrics", "0.0.0.0:0"}, 78);
  agent_refused({"--identity", state}, 66);
  program = "tilewright-tracker";
  const std::string good = dir->File("good.conf");
  ASSERT_TRUE(support::WriteFileAtomic(good, "lease-ttl-ms = 5000\nlisten = 127.0.0.1:0\n").ok());
  EXPECT_EQ(run({"--check-config", "--state-dir", state, "--config", good}), 0);
  const std::string bad = dir->File("bad.conf");
  ASSERT_TRUE(support::WriteFileAtomic(bad, "no-such-flag = 1\n").ok());
  EXPECT_EQ(run({"--check-config", "--config", bad}), 78);
  EXPECT_EQ(run({"--check-config", "--config", dir->File("absent.conf")}), 78);
  EXPECT_EQ(run({"--version"}), 0);
  // Damaged: refused and left alone.
  const std::string damaged = dir->File("damaged");
  ASSERT_TRUE(support::MakeDirs(damaged).ok());
  const std::string database = support::PathJoin(damaged, "tracker.db");
  ASSERT_TRUE(support::WriteFileAtomic(database, "this is no database, but long enough").ok());
  EXPECT_EQ(run({"--state-dir", damaged}), 65);
  EXPECT_EQ(*support::ReadFile(database, 100), "this is no database, but long enough");
  // Only one tracker per state folder.
  TrackerProcess tracker(dir->File("shared"));
  ASSERT_TRUE(support::MakeDirs(dir->File("shared")).ok());
  ASSERT_NO_FATAL_FAILURE(tracker.Start());
  EXPECT_EQ(run({"--state-dir", dir->File("shared")}), 75);
  EXPECT_EQ(tracker.Terminate().exit_code, 0);
  EXPECT_FALSE(support::FileExists(dir->File("shared/port")));
}

}  // namespace
}  // namespace tilewright::tracker::testing
