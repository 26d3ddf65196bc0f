#include "tuner_server/cli/embedded.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "compiler/target/target.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/open_device.h"
#include "deploy/support/clock.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/process.h"
#include "deploy/support/state_folder.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::cli {
namespace {

using support::PathJoin;
using support::StrCat;

constexpr int64_t kReadyMs = 30'000;
constexpr int64_t kPollMs = 20;
constexpr int64_t kStopMs = 8'000;
constexpr int kMaxRestarts = 5;  // of one service

absl::StatusOr<std::string> AbsolutePath(const std::string& path) {
  if (path.starts_with("/")) return path;
  char buffer[4096];
  if (getcwd(buffer, sizeof buffer) == nullptr) {
    return support::ErrnoError(errno, "cli.embedded.folder", "current folder");
  }
  return PathJoin(buffer, path);
}

// One daemon and what it takes to start it again at the same address.
class Service {
 public:
  Service(std::string name, const std::string& state_dir, std::vector<std::string> args)
      : name_(std::move(name)), args_(std::move(args)) {
    port_file_ = PathJoin(state_dir, name_ + ".port");
    log_file_ = PathJoin(state_dir, name_ + ".log");
    args_.insert(args_.end(),
                 {"--state-dir", PathJoin(state_dir, name_), "--port-file", port_file_});
  }

  // Until it is ready, with `wait`; else Supervise will see to it.
  absl::Status Start(bool wait) {
    TW_TRY(Launch());
    ready_by_ns_ = clock_.NowNs() + kReadyMs * 1'000'000;
    while (wait && address_.empty()) TW_TRY(AwaitReady(kPollMs));
    return absl::OkStatus();
  }

  // Starts it again if it has ended; an error when that happened too often, or before it was ready
  // for the first time. `listen` = it serves.
  absl::Status Supervise(bool listen) {
    if (address_.empty()) return AwaitReady(0);
    const auto ended = child_->Wait(0);
    if (!ended.ok()) return absl::OkStatus();
    WriteLog();
    if (++restarts_ > kMaxRestarts) return Failed(ended->ToString() + " again and again");
    std::fprintf(stderr, "tilewright-%s ended (%s): starting it again\n", name_.c_str(),
                 ended->ToString().c_str());
    if (listen && !address_.empty()) listen_args_ = {"--listen", address_};
    return Launch();
  }

  void Stop() {
    if (child_ == nullptr) return;
    child_->Kill(SIGTERM);
    if (!child_->Wait(kStopMs).ok()) {
      child_->Kill(SIGKILL);
      (void)child_->Wait(kStopMs);
    }
    WriteLog();
    child_.reset();
  }

  const std::string& address() const { return address_; }

 private:
  // A daemon writes its port when it is ready.
  absl::Status AwaitReady(int64_t wait_ms) {
    if (auto text = support::ReadFile(port_file_, 4096); text.ok() && !text->empty()) {
      address_ = support::Trim(*text);
      return absl::OkStatus();
    }
    const auto ended = child_->Wait(wait_ms);
    if (ended.ok()) return Failed(ended->ToString());
    return clock_.NowNs() > ready_by_ns_ ? Failed("not ready in time") : absl::OkStatus();
  }

  absl::Status Launch() {
    (void)support::RemoveFile(port_file_);
    support::ChildOptions options;
    TW_ASSIGN(options.program, support::FindSibling("tilewright-" + name_));
    options.args = args_;
    options.args.insert(options.args.end(), listen_args_.begin(), listen_args_.end());
    options.stdout_mode = support::Stdio::kNull;
    TW_ASSIGN(child_, support::Child::Start(options));
    return absl::OkStatus();
  }

  absl::Status Failed(const std::string& why) {
    WriteLog();
    const std::string tail = child_->stderr_tail();
    const size_t last = tail.find_last_not_of('\n');
    const size_t line = last == std::string::npos ? 0 : tail.rfind('\n', last) + 1;
    return support::Unavailable(
        "cli.embedded.start",
        StrCat("tilewright-", name_, ": ", why, "; log ", log_file_, "; ", tail.substr(line)));
  }

  void WriteLog() { (void)support::WriteFileAtomic(log_file_, child_->stderr_tail(), 0600); }

  std::string name_;
  std::vector<std::string> args_;
  std::vector<std::string> listen_args_;  // after the first start: the same address again
  std::string port_file_;
  std::string log_file_;
  std::string address_;
  std::unique_ptr<support::Child> child_;
  support::SystemClock clock_;
  int64_t ready_by_ns_ = 0;
  int restarts_ = 0;
};

// A folder that other users can write to stays as it is: the daemons say so in their logs.
absl::Status PrepareFolder(const std::string& path) {
  const absl::Status made = support::MakeStateFolder(path).status();
  return absl::IsFailedPrecondition(made) ? absl::OkStatus() : made;
}

// Makes the tuner's log the file that the user named.
absl::Status LinkLog(const std::string& state_dir, const std::string& log_path) {
  if (log_path.empty()) return absl::OkStatus();
  TW_ASSIGN(const std::string wanted, AbsolutePath(log_path));
  const std::string link = EmbeddedLog(state_dir);
  TW_TRY(PrepareFolder(support::DirName(link)));
  char present[4096];
  const ssize_t length = readlink(link.c_str(), present, sizeof present);
  if (length > 0 && std::string_view(present, static_cast<size_t>(length)) == wanted) {
    return absl::OkStatus();
  }
  if (symlink(wanted.c_str(), link.c_str()) != 0) {
    return support::ErrnoError(errno, "cli.embedded.log",
                               StrCat("the state folder ", state_dir, " has another log"));
  }
  return absl::OkStatus();
}

// The agent's flag for a device of the target's kind.
absl::StatusOr<std::string> AgentDevice(const target::Target& target, const std::string& device,
                                        const std::string& bridge) {
  if (!bridge.empty()) return StrCat(target.kind, ",bridge=", bridge);
  if (device.empty()) return target.kind;
  if (!target.arch.empty()) {
    return support::InvalidArgument(
        "cli.usage.device", StrCat("--device chooses among the devices of a driver; target ",
                                   target.kind, " has the processor only: leave it out"));
  }
  TW_ASSIGN(const std::string path, runtime::FindDevicePlugin(target.kind));
  TW_ASSIGN(const runtime::DevicePlugin plugin, runtime::DevicePlugin::Open(path));
  TW_ASSIGN(const int32_t index, runtime::FindDevice(plugin.table(), device));
  return StrCat(target.kind, ",index=", index);
}

}  // namespace

absl::StatusOr<std::string> EmbeddedStateDir(const std::string& log_path) {
  std::string root = support::GetEnv("XDG_STATE_HOME").value_or("");
  if (root.empty()) {
    const std::string home = support::GetEnv("HOME").value_or("");
    if (home.empty()) {
      return support::InvalidArgument("cli.usage.state_dir",
                                      "expected --state-dir DIR, or HOME or XDG_STATE_HOME in the "
                                      "environment, found none");
    }
    root = PathJoin(home, ".local/state");
  }
  std::string name = "tilewright/embedded";
  if (!log_path.empty()) {
    TW_ASSIGN(const std::string absolute, AbsolutePath(log_path));
    name += "-" + support::Sha256Hex(absolute).substr(0, 12);
  }
  return PathJoin(root, name);
}

std::string EmbeddedLog(const std::string& state_dir) {
  return PathJoin(state_dir, "tuner/tuner.db");
}

absl::Status CheckRunsHere(const std::string& target) {
  TW_ASSIGN(const target::Target parsed, target::ParseTarget(target));
  const runtime::CpuInfo cpu = runtime::DetectCpu();
  std::string why;
  if (parsed.arch.empty()) {
    // Whether there is a device is for the agent's worker to find out: only that loads drivers.
    const auto plugin = runtime::FindDevicePlugin(parsed.kind);
    if (!plugin.ok()) why = support::Detail(plugin.status());
  } else if (parsed.arch != cpu.arch) {
    why = "this machine is cpu,arch=" + cpu.arch;
  } else if (const auto missing = runtime::MissingFeatures(cpu, parsed.machine.FeatureList());
             !missing.empty()) {
    why = "this CPU lacks " + support::Join(missing, ", ");
  } else if (parsed.threads > cpu.cores_usable) {
    why = StrCat("this process may use ", cpu.cores_usable, " cores");
  }
  if (why.empty()) return absl::OkStatus();
  return support::InvalidArgument("cli.embedded.target",
                                  StrCat("cannot measure ", target, " here: ", why));
}

class EmbeddedFleet::Impl {
 public:
  Impl(std::string state_dir, support::FileLock lock)
      : state_dir_(std::move(state_dir)), lock_(std::move(lock)) {}

  ~Impl() {
    supervisor_ = std::jthread();  // asks it to stop and waits
    for (auto service = services_.rbegin(); service != services_.rend(); ++service) {
      (*service)->Stop();
    }
  }

  absl::Status Start(const std::string& device) {
    TW_TRY(Add("tracker", {}, true));
    const std::string tracker = services_[0]->address();
    TW_TRY(Add("tuner", {"--tracker", tracker}, true));
    // It tests itself first; jobs can be submitted meanwhile.
    // The candidates are this user's own; a container may permit a part of the sandbox only.
    TW_TRY(Add("agent", {"--tracker", tracker, "--device", device, "--allow-weak-sandbox"}, false));
    supervisor_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        for (size_t i = 0; i < services_.size(); ++i) {
          const absl::Status status = services_[i]->Supervise(/*listen=*/i < 2);
          const std::lock_guard guard(mutex_);
          if (healthy_.ok()) healthy_ = status;
        }
        if (!Healthy().ok()) return;
        support::SleepMs(kPollMs);
      }
    });
    return absl::OkStatus();
  }

  const std::string& tuner_address() const { return services_[1]->address(); }
  const std::string& state_dir() const { return state_dir_; }
  absl::Status Healthy() const {
    const std::lock_guard guard(mutex_);
    return healthy_;
  }

 private:
  absl::Status Add(const std::string& name, std::vector<std::string> args, bool wait) {
    services_.push_back(std::make_unique<Service>(name, state_dir_, std::move(args)));
    return services_.back()->Start(wait);
  }

  std::string state_dir_;
  support::FileLock lock_;
  std::vector<std::unique_ptr<Service>> services_;  // tracker, tuner, agent
  mutable std::mutex mutex_;
  absl::Status healthy_;
  std::jthread supervisor_;
};

absl::StatusOr<std::unique_ptr<EmbeddedFleet>> EmbeddedFleet::Start(
    const EmbeddedOptions& options) {
  std::string state_dir = options.state_dir;
  if (state_dir.empty()) {
    TW_ASSIGN(state_dir, EmbeddedStateDir(options.log_path));
  }
  TW_TRY(PrepareFolder(state_dir));
  auto lock = support::FileLock::TryLock(PathJoin(state_dir, "embedded.lock"));
  if (!lock.ok()) {
    if (lock.status().code() != absl::StatusCode::kUnavailable) return lock.status();
    return support::Unavailable("cli.embedded.locked", support::StatusText(lock.status()));
  }
  TW_TRY(LinkLog(state_dir, options.log_path));
  // The tuner would find out by itself, but its words are in a log file.
  if (!options.log_path.empty()) TW_TRY(log::CheckLogIsFree(options.log_path));
  TW_ASSIGN(const target::Target target, target::ParseTarget(options.target));
  TW_ASSIGN(const std::string device, AgentDevice(target, options.device, options.bridge));
  auto impl = std::make_unique<Impl>(state_dir, *std::move(lock));
  TW_TRY(impl->Start(device));
  return std::unique_ptr<EmbeddedFleet>(new EmbeddedFleet(std::move(impl)));
}

EmbeddedFleet::EmbeddedFleet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmbeddedFleet::~EmbeddedFleet() = default;
const std::string& EmbeddedFleet::address() const { return impl_->tuner_address(); }
const std::string& EmbeddedFleet::state_dir() const { return impl_->state_dir(); }
absl::Status EmbeddedFleet::Healthy() const { return impl_->Healthy(); }

}  // namespace tilewright::cli
