// The common frame of our daemons' main functions: flags, configuration file, log, state folder
// with its lock, metrics, signals, exit codes, systemd's readiness protocol. A daemon's own main
// adds its flags and a body.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/metrics.h"
#include "deploy/daemon/server_host.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

// The flags every daemon shares. `--config FILE` holds lines "flag = value" with the same names
// (without the dashes in front); the command line wins over the file.
struct DaemonFlags {
  std::string listen = "127.0.0.1:0";  // --listen HOST:PORT
  std::string tracker;                 // --tracker HOST:PORT
  std::string state_dir;               // --state-dir DIR, created if missing, locked while running
  std::string port_file;               // --port-file FILE
  std::vector<std::string> device;     // --device KIND[,KEY=VALUE...], one entry each
  std::string metrics;                 // --metrics HOST:PORT
  std::string metrics_identity;        // --metrics-identity DIR
  std::string metrics_token;           // --metrics-token FILE
  bool metrics_insecure = false;       // --metrics-insecure
  std::string identity;                // --identity DIR: TLS
  std::string tokens;                  // --tokens FILE: who may call a listener
  bool insecure = false;               // --insecure
  std::string log_level = "info";      // --log-level
  std::string test_failpoint;          // --test-failpoint NAME=N
};

// Which of the shared flags a daemon has; state_dir, metrics, identity, insecure, log-level, config
// and check-config are always there; tokens where it listens.
struct DaemonSpec {
  std::string name;         // "tilewright-tracker"
  std::string description;  // one line for --help
  bool has_listen = false;
  security::Listener listener = security::Listener::kTracker;  // whose rules hold where it listens
  bool has_tracker = false;
  bool has_device = false;
  // For daemons that can make their identity themselves: whether they still have to, with these
  // flags (what is not there is then not checked), and how; called once, before anything uses it.
  std::function<bool(const DaemonFlags&)> lacks_identity = nullptr;
  std::function<absl::Status(const DaemonFlags&)> make_identity = nullptr;
};

// Stops the process in an orderly way: SIGTERM, SIGINT, or a call from anywhere.
class StopSignal {
 public:
  // Catches SIGTERM and SIGINT from now on. One per process.
  static absl::StatusOr<std::unique_ptr<StopSignal>> Install();
  ~StopSignal();

  // True once a stop was asked for. Waits at most timeout_ms (negative: without end).
  bool Wait(int64_t timeout_ms);
  bool requested() const { return requested_.load(); }
  // Asks for a stop. Thread-safe.
  void Request();
  // Becomes readable when a stop is asked for; for poll loops. Do not read from it.
  int fd() const { return event_fd_; }

 private:
  StopSignal() = default;
  int event_fd_ = -1;
  std::atomic<bool> requested_{false};
};

struct DaemonContext {
  DaemonFlags flags;
  Metrics* metrics = nullptr;
  StopSignal* stop = nullptr;
  ServerSecurity* security = nullptr;  // of daemons that listen
  // For dialling the tracker; null = plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;

  // The host options that the flags ask for.
  HostOptions host_options() const;
};

// Sysexits. ok 0; invalid_argument 64 (usage); data_loss 65; not_found 66 (input missing);
// unavailable, deadline 69; internal 70; resource_exhausted 74 (input/output, disk full);
// aborted 75 (temporary); permission_denied 77; failed_precondition 78 (configuration).
int ExitCode(const absl::Status& status);

// Runs a daemon from main. Parses the command line: a mistake exits with 64, one in the
// configuration file with 78. Answers --help and --version. Checks flags and files, also those of
// `check`, and ends there with --check-config: nothing is started or written. Then sets up log,
// state folder, metrics and signals and calls `body`, which serves until context.stop says so. Its
// error is logged with slug and becomes the exit code. A state folder that another process holds
// exits with 75. REQUIRES: `check` refuses all flags and files that `body` would refuse.
int DaemonMain(int argc, const char* const* argv, const DaemonSpec& spec,
               const std::function<void(CLI::App&)>& add_flags,
               const std::function<absl::Status(const DaemonContext&)>& check,
               const std::function<absl::Status(DaemonContext&)>& body);

}  // namespace tilewright::daemon
