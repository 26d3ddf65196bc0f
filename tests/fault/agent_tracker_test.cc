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
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/process.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "device_agent/test_faults.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/test_seed.h"
#include "tilewright/v1/artifact.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr int64_t kDeadlineMs = 120'000;
constexpr char kConsumer[] = "test-tuner";

bool WaitFor(const std::function<bool()>& condition, int64_t timeout_ms = 30'000) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + timeout_ms * 1'000'000;
  while (!condition()) {
    if (clock.NowNs() > end_ns) return false;
    support::SleepMs(10);
  }
  return true;
}

// A daemon that can be killed and started again with the same arguments.
class Daemon {
 public:
  Daemon(std::string binary, std::string state_dir, std::vector<std::string> args)
      : binary_(std::move(binary)), state_dir_(std::move(state_dir)), args_(std::move(args)) {}

  std::string port_file() const { return state_dir_ + ".port"; }

  void Start(const std::vector<std::string>& more = {}) {
    ASSERT_TRUE(support::RemoveTree(port_file()).ok());
    support::ChildOptions options;
    options.program = support::FindSibling(binary_).value();
    options.args = {"--state-dir", state_dir_, "--port-file", port_file()};
    options.args.insert(options.args.end(), args_.begin(), args_.end());
    options.args.insert(options.args.end(), more.begin(), more.end());
    auto child = support::Child::Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
  }

  // True once its port file is there; false when it ended before.
  bool Ready() {
    const bool there = WaitFor([&] {
      return child_->Wait(0).ok() ||
             support::ReadFile(port_file(), 100).value_or("").find('\n') != std::string::npos;
    });
    return there && !child_->Wait(0).ok();
  }

  std::string Address() {
    return std::string(support::Trim(support::ReadFile(port_file(), 100).value_or("")));
  }

  void Kill9() {
    child_->Kill(SIGKILL);
    ASSERT_TRUE(child_->Wait(10'000).ok());
  }

  // The exit status after SIGTERM, or of a process that ends by itself.
  support::ExitStatus End(int signal = SIGTERM) {
    if (signal != 0) kill(child_->pid(), signal);
    const auto status = child_->Wait(60'000);
    EXPECT_TRUE(status.ok()) << status.status() << "\n" << child_->stderr_tail();
    return status.value_or(support::ExitStatus());
  }

  std::string log() const { return child_->stderr_tail(); }

 private:
  std::string binary_;
  std::string state_dir_;
  std::vector<std::string> args_;
  std::unique_ptr<support::Child> child_;
};

// Submits, pulls and acknowledges; goes on through restarts of the tracker.
class Consumer {
 public:
  void Connect(const std::string& address) {
    channel_ = daemon::MakeChannel(address, {true});
    dispatch_ = v1::DispatchService::NewStub(channel_);
    artifacts_ = v1::ArtifactService::NewStub(channel_);
    admin_ = v1::FleetAdminService::NewStub(channel_);
  }

  v1::Digest Upload(const std::string& bytes) {
    const std::string hex = support::Sha256Hex(bytes);
    const absl::Status sent = daemon::UploadArtifact(artifacts_.get(), hex, bytes, 10'000);
    EXPECT_TRUE(sent.ok()) << sent;
    return daemon::MakeDigest(hex, static_cast<int64_t>(bytes.size()));
  }

  v1::WorkItem Item(const std::string& name, const std::string& kernel, int threads = 1) {
    tests::KernelOptions options;
    options.threads = threads;
    v1::WorkItem item;
    item.set_name(name);
    item.set_target(StrCat("cpu,arch=x86_64,cpu=x86-64,threads=", threads));
    item.set_job("job");
    v1::Work* work = item.mutable_work();
    work->set_work_item(name);
    *work->mutable_artifact() = Upload(tests::KernelModule(kernel, options));
    *work->mutable_expected_output() = Upload(tests::KernelExpected());
    *work->mutable_inputs() = tests::KernelInputs();
    work->mutable_tolerance()->set_rel(1e-6);
    work->mutable_wall_limit()->set_seconds(30);
    v1::MeasurementPlan* plan = work->mutable_plan();
    plan->set_min_repeats(3);
    plan->set_max_repeats(4);
    plan->mutable_min_repeat_time()->set_nanos(100'000);
    plan->mutable_warmup()->set_nanos(100'000);
    return item;
  }

  void Submit(const std::vector<v1::WorkItem>& items, bool known = false) {
    v1::SubmitWorkRequest request;
    request.set_consumer(kConsumer);
    for (const v1::WorkItem& item : items) *request.add_work_items() = item;
    v1::SubmitWorkResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 10'000);
    const grpc::Status status = dispatch_->SubmitWork(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const v1::SubmitOutcome& outcome : response.outcomes()) {
      EXPECT_TRUE(outcome.kind() == v1::SubmitOutcome::KIND_ACCEPTED ||
                  outcome.kind() == v1::SubmitOutcome::KIND_NO_DEVICE_NOW ||
                  (known && outcome.kind() == v1::SubmitOutcome::KIND_EXISTS))
          << outcome.DebugString();
    }
  }

  // One round; a tracker that is away is no error.
  void Pull() {
    v1::PullResultsRequest request;
    request.set_consumer(kConsumer);
    request.set_cursor(cursor_);
    request.mutable_max_wait()->set_nanos(100'000'000);
    v1::PullResultsResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 2'000);
    if (!dispatch_->PullResults(&context, request, &response).ok()) {
      support::SleepMs(20);
      return;
    }
    for (const v1::WorkUpdate& update : response.updates()) {
      if (!cursors_.insert(update.cursor()).second) continue;
      if (update.has_result()) ++results_by_id_[update.result().measurement_id()];
      if (update.state() == v1::WORK_STATE_QUEUED) {
        again_.push_back(update.reason());
        continue;
      }
      EXPECT_TRUE(finals_.emplace(update.work_item(), update).second)
          << update.work_item() << " ended twice";
    }
    cursor_ = response.cursor();
    v1::AckResultsRequest ack;
    ack.set_consumer(kConsumer);
    ack.set_cursor(cursor_);
    google::protobuf::Empty empty;
    grpc::ClientContext ack_context;
    daemon::SetTimeout(&ack_context, 2'000);
    (void)dispatch_->AckResults(&ack_context, ack, &empty);
  }

  bool PullUntil(size_t finals, int64_t timeout_ms = kDeadlineMs) {
    support::SystemClock clock;
    const int64_t end_ns = clock.NowNs() + timeout_ms * 1'000'000;
    while (finals_.size() < finals && clock.NowNs() < end_ns) Pull();
    return finals_.size() >= finals;
  }

  void Cancel(const std::string& work_item) {
    v1::CancelWorkRequest request;
    request.set_consumer(kConsumer);
    request.add_work_items(work_item);
    request.set_kill_running(true);
    v1::CancelWorkResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 10'000);
    ASSERT_TRUE(dispatch_->CancelWork(&context, request, &response).ok());
  }

  absl::Status Reset(const std::string& device) {
    v1::ResetDeviceRequest request;
    request.set_name(device);
    request.set_reason("a test");
    v1::Device answer;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 10'000);
    return daemon::FromGrpc(admin_->ResetDevice(&context, request, &answer));
  }

  v1::Device Device(const std::string& name) {
    v1::GetDeviceRequest request;
    request.set_name(name);
    v1::Device device;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 10'000);
    (void)admin_->GetDevice(&context, request, &device);
    return device;
  }

  v1::PoolLoad Load() {
    v1::GetPoolLoadRequest request;
    v1::PoolLoad load;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 2'000);
    (void)dispatch_->GetPoolLoad(&context, request, &load);
    return load;
  }

  const std::map<std::string, v1::WorkUpdate>& finals() const { return finals_; }
  const std::map<std::string, int>& results_by_id() const { return results_by_id_; }
  // Why items were queued again.
  const std::vector<std::string>& again() const { return again_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::DispatchService::Stub> dispatch_;
  std::unique_ptr<v1::ArtifactService::Stub> artifacts_;
  std::unique_ptr<v1::FleetAdminService::Stub> admin_;
  std::string cursor_;
  std::set<std::string> cursors_;
  std::map<std::string, v1::WorkUpdate> finals_;
  std::map<std::string, int> results_by_id_;
  std::vector<std::string> again_;
};

class AgentTrackerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("agent_tracker");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    tracker_ = std::make_unique<Daemon>(
        "tilewright-tracker", dir_->File("tracker"),
        std::vector<std::string>{"--lease-ttl-ms", "3000", "--recovery-ms", "1000"});
    tracker_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    address_ = tracker_->Address();
    consumer_.Connect(address_);
  }

  std::unique_ptr<Daemon> MakeAgent(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"--tracker", address_, "--device",       "cpu",
                                     "--name",    name,     "--sync-hold-ms", "1000"};
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<Daemon>("tilewright-agent", dir_->File(name), args);
  }

  void RestartTracker() {
    tracker_->Start({"--listen", address_});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<Daemon> tracker_;
  std::string address_;
  Consumer consumer_;
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
    EXPECT_EQ(result.measurement_id(), "w-" + kernel + "/1");
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
  const int items_wanted = static_cast<int>(40 * tests::TestRounds(1));
  auto agent = MakeAgent("victim");
  agent->Start();
  std::vector<v1::WorkItem> items;
  for (int i = 0; i < items_wanted; ++i) {
    items.push_back(consumer_.Item(StrCat("w", i), i % 4 == 3 ? "wrong" : "honest"));
    items.back().set_max_batch(4);
  }
  consumer_.Submit(items);
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + kDeadlineMs * 1'000'000;
  int kills = 0;
  int64_t next_kill_ns = clock.NowNs();
  size_t progress = 0;
  while (consumer_.finals().size() < items.size() && clock.NowNs() < end_ns) {
    consumer_.Pull();
    // A kill after some progress, so that the test ends; at any moment, so that it means something.
    if (consumer_.finals().size() <= progress || clock.NowNs() < next_kill_ns) continue;
    progress = consumer_.finals().size();
    next_kill_ns = clock.NowNs() + rng.UniformInt(50, 400) * 1'000'000;
    ++kills;
    if (rng.Bernoulli(0.6)) {
      agent->Kill9();
      agent->Start();
    } else {
      tracker_->Kill9();
      RestartTracker();
    }
  }
  ASSERT_EQ(consumer_.finals().size(), items.size()) << "seed " << seed << "\n" << agent->log();
  EXPECT_GE(kills, 5);
  std::set<std::string> accepted;
  for (int i = 0; i < items_wanted; ++i) {
    const v1::WorkUpdate& update = consumer_.finals().at(StrCat("w", i));
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

TEST_F(AgentTrackerTest, ADrainFinishesWhatRunsAndReturnsTheRest) {
  auto first = MakeAgent("first");
  first->Start();
  ASSERT_TRUE(first->Ready()) << first->log();
  std::vector<v1::WorkItem> items;
  for (int i = 0; i < 8; ++i) {
    items.push_back(consumer_.Item(StrCat("w", i), "slow"));
    items.back().mutable_work()->mutable_plan()->mutable_warmup()->set_nanos(200'000'000);
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
  EXPECT_EQ(consumer_.finals().at("w").result().attempt(), 2);
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
  Daemon new_one(
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
