#include "device_agent/supervisor.h"

#include <google/protobuf/util/time_util.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/protocol_revision.h"
#include "deploy/support/sanitizers.h"
#include "deploy/support/strings.h"
#include "device_agent/control_group.h"
#include "device_agent/fingerprint.h"
#include "device_agent/measure_names.h"
#include "device_agent/self_test.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr size_t kMaxReplyBytes = 8 << 20;
constexpr int64_t kStartTimeoutMs = 20'000;
constexpr int64_t kDeathTimeoutMs = 5'000;
constexpr int64_t kLastWordsMs = 200;
constexpr size_t kTailBytes = 4096;
constexpr char kCandidateSlot[] = "candidate";
constexpr char kBaselineSlot[] = "baseline";

v1::ModuleMeasured CancelledRun() {
  v1::ModuleMeasured measured;
  measured.set_outcome(v1::CANCELLED);
  measured.set_error_class("REVOKED");
  measured.set_error_detail(
      "the worker was stopped because the measurement is not wanted any more");
  return measured;
}

}  // namespace

void Supervisor::Abort() {
  support::MutexLock lock(mutex_);
  aborted_ = true;
  if (child_ != nullptr) child_->Kill(SIGKILL);
}

bool Supervisor::aborted() {
  support::MutexLock lock(mutex_);
  return aborted_;
}

void Supervisor::Stop() {
  std::shared_ptr<support::Child> child;
  {
    support::MutexLock lock(mutex_);
    child = std::exchange(child_, nullptr);
  }
  memory_limit_bytes_ = -1;
}

absl::StatusOr<v1::WorkerReply> Supervisor::Call(v1::WorkerRequest request, int64_t timeout_ms,
                                                 Exchange* exchange) {
  std::shared_ptr<support::Child> child;
  {
    support::MutexLock lock(mutex_);
    child = child_;
  }
  TW_CHECK(child != nullptr) << "a call needs a worker";
  request.set_id(++next_id_);
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + timeout_ms * 1'000'000;
  const auto left_ms = [&] { return std::max<int64_t>(0, (end_ns - clock.NowNs()) / 1'000'000); };
  absl::Status status =
      support::WriteFrame(child->stdin_fd(), request.SerializeAsString(), left_ms());
  exchange->sent = status.ok();
  while (status.ok()) {
    const auto frame = support::ReadFrame(child->stdout_fd(), kMaxReplyBytes, left_ms());
    if (!frame.ok()) {
      status = frame.status();
      break;
    }
    v1::WorkerReply reply;
    if (!reply.ParseFromString(*frame) || reply.id() != request.id()) {
      status = support::DataLoss("agent.worker.garbled", "expected an answer to the request");
      break;
    }
    if (!reply.has_phase()) return reply;
    exchange->phase = reply.phase().phase();
  }
  exchange->timed_out = absl::IsDeadlineExceeded(status);
  return status;
}

absl::StatusOr<v1::WorkerReady> Supervisor::Hello(int64_t memory_limit_bytes, bool describe) {
  v1::WorkerRequest request;
  v1::WorkerHello* hello = request.mutable_hello();
  hello->set_device_kind(options_.device_kind);
  hello->set_memory_limit_bytes(memory_limit_bytes);
  hello->set_threads(options_.threads);
  hello->set_describe(describe);
  hello->set_sandbox_profile(options_.sandbox_profile);
  hello->set_device_index(options_.device_index);
  for (const std::string& node : options_.device_nodes) hello->add_device_nodes(node);
  for (const int core : options_.cores) hello->add_cores(core);
  Exchange exchange;
  TW_ASSIGN(v1::WorkerReply reply, Call(std::move(request), kStartTimeoutMs, &exchange));
  if (reply.has_error()) {
    return support::FailedPrecondition("agent.worker.refused",
                                       reply.error().slug() + ": " + reply.error().detail());
  }
  if (reply.ready().protocol_revision() != support::kProtocolRevision) {
    return support::FailedPrecondition(
        "agent.worker.protocol",
        StrCat("expected a worker of protocol revision ", support::kProtocolRevision, ", found ",
               reply.ready().protocol_revision(), ": install the worker of this agent's version"));
  }
  const std::string fingerprint = DeviceFrom(reply.ready().attributes()).fingerprint();
  if (describe) fingerprint_ = fingerprint;
  if (!options_.bridge.empty() && !fingerprint_.empty() && fingerprint != fingerprint_) {
    return support::FailedPrecondition("agent.device.changed",
                                       "another device answers behind the bridge");
  }
  memory_limit_bytes_ = memory_limit_bytes;
  return std::move(*reply.mutable_ready());
}

absl::StatusOr<v1::WorkerReady> Supervisor::StartWorker(bool describe) {
  Stop();
  SweepWorkerGroups();
  support::ChildOptions options;
  options.program = options_.worker_path;
  if (!options_.bridge.empty()) {
    options.program = "/bin/sh";
    options.args = {"-c", options_.bridge};
    options.env = {{"DEVICE", options_.device}};
  }
  options.stdin_mode = support::Stdio::kPipe;
  options.stdout_mode = support::Stdio::kPipe;
  TW_ASSIGN(std::shared_ptr<support::Child> child, support::Child::Start(options));
  ++starts_;
  {
    support::MutexLock lock(mutex_);
    child_ = std::move(child);
  }
  auto ready = Hello(options_.memory_limit_bytes, describe);
  const absl::Status error = ready.ok() ? CheckSandbox(*ready) : StartupError(ready.status());
  if (error.ok()) return ready;
  Stop();
  return error;
}

absl::Status Supervisor::CheckSandbox(const v1::WorkerReady& ready) const {
  // A sanitizer's build has no sandbox anywhere, and measures nothing that counts.
  if (ready.sandbox_full() || options_.allow_weak_sandbox || support::kSanitizerBuild) {
    return absl::OkStatus();
  }
  return support::FailedPrecondition(
      "agent.sandbox.weak",
      StrCat("a candidate's code could reach more than its own process: the sandbox lacks ",
             ready.sandbox_missing().empty() ? "what an older worker does not have"
                                             : ready.sandbox_missing(),
             ". Let the kernel permit it (user namespaces, Landlock), or start the agent with "
             "--allow-weak-sandbox if you trust everyone who submits work"));
}

// A bridge that fails says why on its standard error, or prints a greeting where frames are
// expected.
absl::Status Supervisor::StartupError(const absl::Status& why) {
  std::shared_ptr<support::Child> child;
  {
    support::MutexLock lock(mutex_);
    child = child_;
  }
  std::string detail = support::StatusText(why);
  const auto ended = child->Wait(kLastWordsMs);
  if (ended.ok())
    detail += StrCat("; ", options_.bridge.empty() ? "the worker" : "the bridge", " ended with ",
                     ended->ToString());
  const std::string said(support::Trim(child->stderr_tail()));
  if (!said.empty()) detail += "; stderr: " + support::Quote(said, kTailBytes);
  if (!options_.bridge.empty() && (absl::IsResourceExhausted(why) || absl::IsDataLoss(why))) {
    return support::Unavailable(
        "agent.bridge.garbled",
        "the bridge must carry the worker's bytes and nothing else (no greeting, no terminal): " +
            detail);
  }
  return support::Unavailable(
      options_.bridge.empty() ? "agent.worker.failed" : "agent.bridge.failed", detail);
}

absl::StatusOr<v1::WorkerReady> Supervisor::Start() {
  TW_ASSIGN(v1::WorkerReady ready, StartWorker(true));
  const auto form = ready.attributes().find(kSelfTestAttribute);
  const bool whole = form != ready.attributes().end() && form->second.s() == kWholeNumbers;
  const absl::Status tested = SelfTest(whole);
  if (tested.ok()) return ready;
  Stop();
  return tested;
}

absl::Status Supervisor::SelfTest(bool whole) {
  v1::WorkerRequest request;
  TW_ASSIGN(*request.mutable_measure(), SelfTestRequest(whole));
  if (self_tests_++ < options_.failing_self_tests) {
    request.mutable_measure()->set_fault(v1::INJECTED_FAULT_WRONG);
  }
  const int64_t limit_ms = support::DurationMs(request.measure().wall_limit()) + options_.grace_ms;
  Exchange exchange;
  const auto reply = Call(std::move(request), limit_ms, &exchange);
  if (!reply.ok()) return SelfTestVerdict(Died(exchange, reply.status()));
  if (reply->has_measured()) return SelfTestVerdict(reply->measured());
  return support::FailedPrecondition("agent.self_test.failed",
                                     reply->error().slug() + ": " + reply->error().detail() +
                                         ": install the worker of this agent's version");
}

absl::Status Supervisor::Ensure(const v1::Work& work) {
  {
    support::MutexLock lock(mutex_);
    if (aborted_) return support::Cancelled("agent.worker.aborted", "not wanted any more");
  }
  const int64_t memory =
      work.memory_limit_bytes() > 0 ? work.memory_limit_bytes() : options_.memory_limit_bytes;
  bool running = false;
  {
    support::MutexLock lock(mutex_);
    running = child_ != nullptr && !child_->Wait(0).ok();
  }
  if (!running) TW_TRY(StartWorker(false).status());
  if (memory_limit_bytes_ != memory) TW_TRY(Hello(memory, false).status());
  return absl::OkStatus();
}

absl::Status Supervisor::Load(const std::string& slot, const std::string& module) {
  v1::WorkerRequest request;
  request.mutable_load()->set_slot(slot);
  request.mutable_load()->set_module(module);
  Exchange exchange;
  TW_ASSIGN(const v1::WorkerReply reply, Call(std::move(request), kStartTimeoutMs, &exchange));
  if (reply.has_loaded()) return absl::OkStatus();
  return support::Internal("agent.worker.refused",
                           reply.error().slug() + ": " + reply.error().detail());
}

// The worker itself ended or hangs; its children, the candidates, end with it.
v1::ModuleMeasured Supervisor::Died(const Exchange& exchange, const absl::Status& why) {
  std::shared_ptr<support::Child> child;
  {
    support::MutexLock lock(mutex_);
    child = child_;
  }
  std::string detail = support::StatusText(why);
  v1::ModuleMeasured measured;
  if (child != nullptr) {
    // Time for the worker's own end to be seen, before it becomes ours.
    auto status = child->Wait(exchange.timed_out ? 0 : kLastWordsMs);
    const bool ours = !status.ok();
    child->Kill(SIGKILL);
    if (ours) status = child->Wait(kDeathTimeoutMs);
    if (status.ok()) {
      measured.set_signal(status->signal);
      measured.set_exit_code(status->exit_code);
      const char* who = options_.bridge.empty() ? "the worker" : "the bridge";
      if (!ours) detail = StrCat(who, " ended: ", status->ToString());
    }
    const std::string tail = child->stderr_tail();
    const size_t start = tail.size() > kTailBytes ? tail.size() - kTailBytes : 0;
    if (!tail.empty()) detail += "; stderr: " + support::Quote(tail.substr(start), kTailBytes);
  }
  Stop();
  measured.set_phase(exchange.phase);
  measured.set_error_class("WORKER");
  measured.set_error_detail(detail);
  if (exchange.phase == v1::WORKER_PHASE_UNSPECIFIED) {
    v1::ModuleMeasured lost = NotMeasured(detail);
    // A worker can be killed before it passes on that the candidate was loaded.
    if (exchange.sent && options_.bridge.empty()) lost.set_phase(v1::WORKER_PHASE_LOAD);
    return lost;
  }
  if (!options_.bridge.empty()) {
    // The cable, the other machine or the worker there: the phase says that a candidate ran, which
    // may or may not have taken it down.
    measured.set_outcome(v1::DEVICE_LOST);
    measured.set_error_class("BRIDGE");
    return measured;
  }
  const bool killed = !exchange.timed_out && measured.signal() == SIGKILL;
  measured.set_outcome(exchange.timed_out ? v1::RUN_TIMEOUT
                       : killed           ? v1::OUT_OF_MEMORY
                                          : v1::RUN_CRASH);
  return measured;
}

v1::ModuleMeasured Supervisor::Measure(const MeasureInput& input) {
  v1::ModuleMeasured measured = MeasureOnce(input);
  trouble_ = absl::OkStatus();
  if (measured.outcome() == v1::DEVICE_LOST) {
    trouble_ = support::Unavailable(
        options_.bridge.empty() ? "agent.worker.failed" : "agent.bridge.failed",
        measured.error_detail());
  }
  // Cleared at the end, so that an Abort between the decision to measure and this call counts.
  support::MutexLock lock(mutex_);
  aborted_ = false;
  return measured;
}

v1::ModuleMeasured Supervisor::MeasureOnce(const MeasureInput& input) {
  absl::Status status = Ensure(input.work);
  if (status.ok()) status = Load(kCandidateSlot, input.module);
  if (status.ok() && !input.baseline.empty()) status = Load(kBaselineSlot, input.baseline);
  if (!status.ok()) {
    Stop();
    return aborted() ? CancelledRun() : NotMeasured(support::StatusText(status));
  }
  v1::WorkerRequest request;
  v1::MeasureModule* measure = request.mutable_measure();
  measure->set_slot(kCandidateSlot);
  if (!input.baseline.empty()) measure->set_baseline_slot(kBaselineSlot);
  measure->set_entry_point(input.work.entry_point());
  *measure->mutable_inputs() = input.work.inputs();
  measure->set_expected_output(input.expected);
  *measure->mutable_tolerance() = input.work.tolerance();
  *measure->mutable_plan() = input.work.plan();
  measure->set_fault(input.fault);
  int64_t wall_ms = support::DurationMs(input.work.wall_limit());
  if (wall_ms <= 0) wall_ms = options_.default_wall_ms;
  *measure->mutable_wall_limit() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(wall_ms);
  Exchange exchange;
  const auto reply = Call(std::move(request), wall_ms + options_.grace_ms, &exchange);
  if (reply.ok() && reply->has_measured()) return reply->measured();
  if (aborted()) {
    Stop();
    return CancelledRun();
  }
  if (reply.ok()) {
    Stop();
    return NotMeasured(reply->error().slug() + ": " + reply->error().detail());
  }
  return Died(exchange, reply.status());
}

}  // namespace tilewright::device_agent
