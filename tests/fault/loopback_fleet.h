// Real daemons on loopback that tests start, kill and start again, and a consumer that submits work
// items and pulls their results through it all. For single-threaded tests.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tests/support/host_faults.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/patience.h"
#include "tilewright/v1/artifact.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"

namespace tilewright::tests {

inline constexpr int64_t kDeadlineMs = 120'000;
inline constexpr char kConsumer[] = "test-tuner";

inline bool WaitFor(const std::function<bool()>& condition, int64_t timeout_ms = 30'000) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + Patiently(timeout_ms) * 1'000'000;
  while (!condition()) {
    if (clock.NowNs() > end_ns) return false;
    support::SleepMs(10);
  }
  return true;
}

// The time of day of the last line of a daemon's log, in seconds since 1970; 0 without one.
inline int64_t LastLogTime(const std::string& log) {
  const size_t at = log.rfind("{\"ts\":\"");
  tm parts{};
  if (at == std::string::npos) return 0;
  return strptime(log.c_str() + at + 7, "%Y-%m-%dT%H:%M:%S", &parts) == nullptr ? 0
                                                                                : timegm(&parts);
}

// A daemon that can be killed and started again with the same arguments.
class LoopbackDaemon {
 public:
  LoopbackDaemon(std::string binary, std::string state_dir, std::vector<std::string> args)
      : binary_(std::move(binary)), state_dir_(std::move(state_dir)), args_(std::move(args)) {}

  std::string port_file() const { return state_dir_ + ".port"; }

  // From the next start on its host can fail. As HostFaults::Create.
  absl::Status UseHostFaults() {
    TW_ASSIGN(host_, HostFaults::Create());
    return absl::OkStatus();
  }
  HostFaults* host() { return host_.get(); }

  void Start(const std::vector<std::string>& more = {}) {
    ASSERT_TRUE(support::RemoveTree(port_file()).ok());
    support::ChildOptions options;
    options.program = support::FindSibling(binary_).value();
    options.args = {"--state-dir", state_dir_, "--port-file", port_file()};
    // Where tests run (a container), the kernel may permit a part of the sandbox only.
    if (binary_ == "tilewright-agent") options.args.push_back("--allow-weak-sandbox");
    options.args.insert(options.args.end(), args_.begin(), args_.end());
    options.args.insert(options.args.end(), more.begin(), more.end());
    if (host_ != nullptr) options.env = host_->env();
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

  // It has ended, or does so within the time.
  bool Dead(int64_t wait_ms = 0) { return child_->Wait(wait_ms).ok(); }

  void Kill9() {
    if (Dead()) return;
    child_->Kill(SIGKILL);
    ASSERT_TRUE(child_->Wait(Patiently(10'000)).ok());
  }

  // To the process alone, not to its children. False when it has ended.
  bool Signal(int signal) { return !Dead() && kill(child_->pid(), signal) == 0; }

  // The exit status after SIGTERM, or of a process that ends by itself.
  support::ExitStatus End(int signal = SIGTERM) {
    if (signal != 0) kill(child_->pid(), signal);
    const auto status = child_->Wait(Patiently(60'000));
    EXPECT_TRUE(status.ok()) << status.status() << "\n" << child_->stderr_tail();
    return status.value_or(support::ExitStatus());
  }

  std::string log() const { return child_->stderr_tail(); }
  pid_t pid() const { return child_->pid(); }

 private:
  std::string binary_;
  std::string state_dir_;
  std::vector<std::string> args_;
  std::unique_ptr<HostFaults> host_;
  std::unique_ptr<support::Child> child_;
};

// The last line of the daemon's log was written by a clock that is `ms` off ours, give or take some
// minutes.
inline bool SeesOffset(const LoopbackDaemon& daemon, int64_t ms) {
  constexpr int64_t kToleranceMs = 360'000;
  const int64_t seen_ms = (LastLogTime(daemon.log()) - time(nullptr)) * 1000;
  return std::abs(seen_ms - ms) < kToleranceMs;
}

// Submits, pulls and acknowledges; goes on through restarts of the tracker.
class LoopbackConsumer {
 public:
  void Connect(const std::string& address) {
    channel_ = daemon::MakeChannel(address, {true});
    dispatch_ = v1::DispatchService::NewStub(channel_);
    artifacts_ = v1::ArtifactService::NewStub(channel_);
    admin_ = v1::FleetAdminService::NewStub(channel_);
  }

  v1::Digest Upload(const std::string& bytes) {
    const std::string hex = support::Sha256Hex(bytes);
    const absl::Status sent =
        daemon::UploadArtifact(artifacts_.get(), hex, bytes, Patiently(10'000));
    EXPECT_TRUE(sent.ok()) << sent;
    return daemon::MakeDigest(hex, static_cast<int64_t>(bytes.size()));
  }

  // The tracker may be away, or die under it.
  bool TryUpload(const std::string& bytes) {
    const std::string hex = support::Sha256Hex(bytes);
    return daemon::UploadArtifact(artifacts_.get(), hex, bytes, Patiently(5'000)).ok();
  }

  v1::WorkItem Item(const std::string& name, const std::string& kernel, int threads = 1) {
    KernelOptions options;
    options.threads = threads;
    v1::WorkItem item;
    item.set_name(name);
    item.set_target(support::StrCat("cpu,arch=x86_64,cpu=x86-64,threads=", threads));
    item.set_job("job");
    v1::Work* work = item.mutable_work();
    work->set_work_item(name);
    *work->mutable_artifact() = Upload(KernelModule(kernel, options));
    *work->mutable_expected_output() = Upload(KernelExpected());
    *work->mutable_inputs() = KernelInputs();
    work->mutable_tolerance()->set_rel(1e-6);
    work->mutable_wall_limit()->set_seconds(30);
    *work->mutable_plan() = ShortPlan();
    return item;
  }

  void Submit(const std::vector<v1::WorkItem>& items, bool known = false) {
    v1::SubmitWorkRequest request;
    request.set_consumer(kConsumer);
    for (const v1::WorkItem& item : items) *request.add_work_items() = item;
    v1::SubmitWorkResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(10'000));
    const grpc::Status status = dispatch_->SubmitWork(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const v1::SubmitOutcome& outcome : response.outcomes()) {
      EXPECT_TRUE(outcome.kind() == v1::SubmitOutcome::KIND_ACCEPTED ||
                  outcome.kind() == v1::SubmitOutcome::KIND_NO_DEVICE_NOW ||
                  (known && outcome.kind() == v1::SubmitOutcome::KIND_EXISTS))
          << outcome.DebugString();
    }
  }

  // The same, but the tracker may be away, or know some of them already.
  void TrySubmit(const std::vector<v1::WorkItem>& items) {
    v1::SubmitWorkRequest request;
    request.set_consumer(kConsumer);
    for (const v1::WorkItem& item : items) {
      *request.add_work_items() = item;
      asked_again_.insert(item.name());
    }
    v1::SubmitWorkResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(5'000));
    (void)dispatch_->SubmitWork(&context, request, &response);
    for (const v1::SubmitOutcome& outcome : response.outcomes()) {
      EXPECT_NE(outcome.kind(), v1::SubmitOutcome::KIND_INVALID) << outcome.DebugString();
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
    daemon::SetTimeout(&context, Patiently(2'000));
    if (!dispatch_->PullResults(&context, request, &response).ok()) {
      support::SleepMs(20);
      return;
    }
    for (const v1::WorkUpdate& update : response.updates()) {
      if (!cursors_.insert(update.cursor()).second || IsRepeated(update)) continue;
      if (update.has_result()) ++results_by_id_[update.result().measurement_id()];
      if (update.state() == v1::WORK_STATE_QUEUED) {
        again_.push_back(update.reason());
        given_back_.push_back(update.result());
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
    daemon::SetTimeout(&ack_context, Patiently(2'000));
    (void)dispatch_->AckResults(&ack_context, ack, &empty);
  }

  bool PullUntil(size_t finals, int64_t timeout_ms = kDeadlineMs) {
    support::SystemClock clock;
    const int64_t end_ns = clock.NowNs() + Patiently(timeout_ms) * 1'000'000;
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
    daemon::SetTimeout(&context, Patiently(10'000));
    ASSERT_TRUE(dispatch_->CancelWork(&context, request, &response).ok());
  }

  absl::Status Reset(const std::string& device) {
    v1::ResetDeviceRequest request;
    request.set_name(device);
    request.set_reason("a test");
    v1::Device answer;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(10'000));
    return daemon::FromGrpc(admin_->ResetDevice(&context, request, &answer));
  }

  v1::Device Device(const std::string& name) {
    v1::GetDeviceRequest request;
    request.set_name(name);
    v1::Device device;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(10'000));
    (void)admin_->GetDevice(&context, request, &device);
    return device;
  }

  v1::PoolLoad Load() {
    v1::GetPoolLoadRequest request;
    v1::PoolLoad load;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(2'000));
    (void)dispatch_->GetPoolLoad(&context, request, &load);
    return load;
  }

  const std::map<std::string, v1::WorkUpdate>& finals() const { return finals_; }
  const std::map<std::string, int>& results_by_id() const { return results_by_id_; }
  // Why items were queued again.
  const std::vector<std::string>& again() const { return again_; }
  // Their results, empty ones where there was none.
  const std::vector<v1::MeasurementResult>& given_back() const { return given_back_; }

 private:
  // Whether it is the end of an item that is known already, delivered again because the item was
  // submitted again: of the same measurement.
  bool IsRepeated(const v1::WorkUpdate& update) const {
    const auto known = finals_.find(update.work_item());
    return known != finals_.end() && asked_again_.count(update.work_item()) != 0 &&
           update.state() == known->second.state() &&
           update.result().measurement_id() == known->second.result().measurement_id();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::DispatchService::Stub> dispatch_;
  std::unique_ptr<v1::ArtifactService::Stub> artifacts_;
  std::unique_ptr<v1::FleetAdminService::Stub> admin_;
  std::string cursor_;
  std::set<std::string> cursors_;
  std::map<std::string, v1::WorkUpdate> finals_;
  std::map<std::string, int> results_by_id_;
  std::vector<std::string> again_;
  std::vector<v1::MeasurementResult> given_back_;
  std::set<std::string> asked_again_;  // work items that were submitted by TrySubmit
};

}  // namespace tilewright::tests
