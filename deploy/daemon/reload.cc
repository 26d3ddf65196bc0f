#include "deploy/daemon/reload.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

// All that a signal handler can reach.
volatile sig_atomic_t g_reload_fd = -1;

extern "C" void OnReloadSignal(int) {
  const int saved = errno;
  const uint64_t one = 1;
  if (g_reload_fd >= 0) {
    [[maybe_unused]] const ssize_t written = write(g_reload_fd, &one, sizeof(one));
  }
  errno = saved;
}

}  // namespace

absl::StatusOr<LogLevel> LogLevelOfConfig(const std::string& path, LogLevel otherwise) {
  try {
    LogLevel level = otherwise;
    for (const CLI::ConfigItem& item : CLI::ConfigINI().from_file(path)) {
      if (item.name != "log-level" || item.inputs.empty()) continue;
      TW_ASSIGN(level, ParseLogLevel(item.inputs.front()));
    }
    return level;
  } catch (const CLI::Error& error) {
    return support::NotFound("daemon.config.unreadable", error.what());
  }
}

absl::StatusOr<std::unique_ptr<ReloadSignal>> ReloadSignal::Install(const std::string& config,
                                                                    LogLevel level) {
  TW_CHECK(g_reload_fd < 0) << "one ReloadSignal per process";
  std::unique_ptr<ReloadSignal> made(new ReloadSignal(config, level));
  made->event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  made->end_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made->event_fd_ < 0 || made->end_fd_ < 0) {
    return support::ErrnoError(errno, "daemon.signals.failed", "eventfd");
  }
  g_reload_fd = made->event_fd_;
  struct sigaction action{};
  action.sa_handler = OnReloadSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGHUP, &action, nullptr) != 0) {
    return support::ErrnoError(errno, "daemon.signals.failed", "sigaction");
  }
  made->thread_ = std::thread([raw = made.get()] { raw->Run(); });
  return made;
}

ReloadSignal::ReloadSignal(std::string config, LogLevel level)
    : config_(std::move(config)), level_(level) {}

ReloadSignal::~ReloadSignal() {
  signal(SIGHUP, SIG_DFL);
  g_reload_fd = -1;
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(end_fd_, &one, sizeof(one));
    thread_.join();
  }
  if (event_fd_ >= 0) close(event_fd_);
  if (end_fd_ >= 0) close(end_fd_);
}

void ReloadSignal::Run() {
  while (true) {
    pollfd waiting[2] = {{event_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    uint64_t count = 0;
    if (read(event_fd_, &count, sizeof(count)) < 0) continue;
    Reload();
    ++handled_;
  }
}

void ReloadSignal::Reload() {
  if (config_.empty()) {
    LogWarning("daemon.reload.nothing",
               {{"text", "no --config file, or --log-level is on the command line"}});
    return;
  }
  const auto level = LogLevelOfConfig(config_, level_);
  if (!level.ok()) {
    LogError("daemon.reload.failed", {{"error", support::StatusText(level.status())}});
    return;
  }
  SetLogLevel(*level);
  Log(*level, "daemon.reload.done", {{"config", config_}, {"log_level", LogLevelText(*level)}});
}

}  // namespace tilewright::daemon
