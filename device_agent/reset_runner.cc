#include "device_agent/reset_runner.h"

#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr int64_t kLookMs = 100;
constexpr size_t kTailBytes = 1000;
constexpr uint64_t kMaxHistoryBytes = 64 << 10;

}  // namespace

std::string ResetRunner::PathOf(const std::string& device) const {
  return support::PathJoin(state_dir_, "resets-" + device.substr(device.rfind('/') + 1));
}

absl::StatusOr<std::unique_ptr<ResetRunner>> ResetRunner::Create(
    const ResetOptions& options, const std::vector<std::string>& devices,
    const std::string& state_dir, support::Clock* clock, Sink sink) {
  auto runner = std::unique_ptr<ResetRunner>(new ResetRunner(state_dir, clock, std::move(sink)));
  for (const std::string& device : devices) {
    std::vector<ResetRun> history;
    const std::string path = runner->PathOf(device);
    if (support::FileExists(path)) {
      TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxHistoryBytes));
      TW_ASSIGN(history, ResetHook::FromText(text));
    }
    v1::ResetReport report;
    {
      support::MutexLock lock(runner->mutex_);
      const auto hook = runner->hooks_.try_emplace(device, options, std::move(history)).first;
      report = hook->second.report();
    }
    if (!report.request().empty()) runner->sink_(device, report);
  }
  runner->thread_ = std::thread([runner = runner.get()] { runner->Run(); });
  return runner;
}

ResetRunner::~ResetRunner() {
  {
    support::MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void ResetRunner::Order(const v1::ResetOrder& order) {
  v1::ResetReport report;
  {
    support::MutexLock lock(mutex_);
    const auto hook = hooks_.find(order.device());
    if (hook == hooks_.end()) return;
    const std::string before = hook->second.report().request();
    if (hook->second.OnOrder(order, clock_->WallMicros())) {
      // Written down first: an agent that dies under the command must not run it again.
      const absl::Status written = support::WriteFileAtomic(
          PathOf(order.device()), ResetHook::ToText(hook->second.history()));
      if (written.ok()) {
        to_run_.push_back(order);
      } else {
        hook->second.OnEnd(written, "");
      }
    }
    report = hook->second.report();
    if (report.request() == before) return;
  }
  daemon::LogWarning("device.reset.ordered", {{"device", order.device()},
                                              {"request", order.request()},
                                              {"reason", order.reason()},
                                              {"state", v1::ResetState_Name(report.state())},
                                              {"detail", report.detail()}});
  changed_.NotifyAll();
  sink_(order.device(), report);
}

void ResetRunner::Run() {
  while (true) {
    v1::ResetOrder order;
    {
      support::MutexLock lock(mutex_);
      while (!stopping_ && to_run_.empty()) changed_.Wait(mutex_);
      if (stopping_) return;
      order = to_run_.front();
      to_run_.pop_front();
    }
    RunOne(order);
  }
}

void ResetRunner::RunOne(const v1::ResetOrder& order) {
  ResetOptions options;
  {
    support::MutexLock lock(mutex_);
    options = hooks_.at(order.device()).options();
  }
  std::string tail;
  const absl::Status ended = Execute(order, options, &tail);
  v1::ResetReport report;
  {
    support::MutexLock lock(mutex_);
    ResetHook& hook = hooks_.at(order.device());
    hook.OnEnd(ended, tail);
    report = hook.report();
  }
  daemon::LogWarning("device.reset.ended", {{"device", order.device()},
                                            {"request", order.request()},
                                            {"state", v1::ResetState_Name(report.state())},
                                            {"detail", report.detail()}});
  sink_(order.device(), report);
}

absl::Status ResetRunner::Execute(const v1::ResetOrder& order, const ResetOptions& options,
                                  std::string* tail) {
  support::ChildOptions child_options;
  child_options.program = "/bin/sh";
  child_options.args = {"-c", "exec 1>&2; " + options.command};
  child_options.env = {{"DEVICE", order.device()}, {"REASON", order.reason()}};
  TW_ASSIGN(const std::unique_ptr<support::Child> child, support::Child::Start(child_options));
  absl::Status ended;
  for (int64_t waited_ms = 0;; waited_ms += kLookMs) {
    const auto status = child->Wait(kLookMs);
    if (status.ok()) {
      if (!status->ok()) ended = support::Internal("agent.reset.failed", status->ToString());
      break;
    }
    support::MutexLock lock(mutex_);
    if (stopping_) ended = support::Cancelled("agent.reset.stopped", "the agent ends");
    if (waited_ms >= options.timeout_ms) {
      ended = support::DeadlineExceeded(
          "agent.reset.timeout", support::StrCat("killed after ", options.timeout_ms, " ms"));
    }
    if (ended.ok()) continue;
    child->Kill(9);
    break;
  }
  const std::string text = child->stderr_tail();
  *tail = text.size() > kTailBytes ? text.substr(text.size() - kTailBytes) : text;
  return ended;
}

}  // namespace tilewright::device_agent
