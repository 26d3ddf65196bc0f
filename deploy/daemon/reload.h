// On SIGHUP (`systemctl reload`) a daemon takes over the log level of its configuration file. Files
// of identities, tokens and revocations need no signal: they are watched.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "deploy/daemon/daemon_log.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

// The value of `log-level` in a configuration file; `otherwise` where the file does not say.
// not_found or invalid_argument (daemon.config.unreadable, daemon.log_level.invalid).
absl::StatusOr<LogLevel> LogLevelOfConfig(const std::string& path, LogLevel otherwise);

// Catches SIGHUP while it lives. One per process.
class ReloadSignal {
 public:
  // `config` is the file to read again; empty = there is none, or the command line fixed the level:
  // the signal is then logged and changes nothing.
  static absl::StatusOr<std::unique_ptr<ReloadSignal>> Install(const std::string& config,
                                                               LogLevel level);
  ~ReloadSignal();

  // Signals that were acted upon, for tests.
  int64_t handled() const { return handled_.load(); }

 private:
  ReloadSignal(std::string config, LogLevel level);
  void Run();
  void Reload();

  const std::string config_;
  const LogLevel level_;  // of the start, where the file says nothing
  int event_fd_ = -1;     // readable on a signal
  int end_fd_ = -1;
  std::atomic<int64_t> handled_{0};
  std::thread thread_;
};

}  // namespace tilewright::daemon
