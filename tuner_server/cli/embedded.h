// The fleet on one machine: `tilewright tune` without a server starts tilewright-tracker, -tuner
// and -agent as children on loopback with a state folder of their own, restarts one that dies, and
// stops them at the end. They end with this process, however it ends. Used from one thread; Healthy
// may be called from any.
#pragma once

#include <memory>
#include <string>

#include "deploy/support/status.h"

namespace tilewright::cli {

struct EmbeddedOptions {
  std::string state_dir;    // empty: EmbeddedStateDir(log_path)
  std::string log_path;     // where the tuner keeps its log; empty: inside the state folder
  std::string target;       // canonical; the fleet's one device is of its kind
  std::string device;       // which of that kind: its index or name; empty: the first
  std::string bridge = {};  // shell command whose worker measures; empty: one of this machine
};

// $XDG_STATE_HOME/tilewright/embedded (or ~/.local/state/...); one of its own per log file.
absl::StatusOr<std::string> EmbeddedStateDir(const std::string& log_path);
// The log of that state folder.
std::string EmbeddedLog(const std::string& state_dir);

// Whether this machine can run code for the (canonical) target: cli.embedded.target if not.
absl::Status CheckRunsHere(const std::string& target);

class EmbeddedFleet {
 public:
  // Returns when the tuner answers. unavailable cli.embedded.locked: another process uses the
  // folder; cli.embedded.start: a service did not start. invalid_argument cli.usage.device: the
  // processor has no devices to choose from; not_found runtime.device.name: no such device.
  static absl::StatusOr<std::unique_ptr<EmbeddedFleet>> Start(const EmbeddedOptions& options);
  // Stops the services: SIGTERM, then SIGKILL for one that does not end.
  ~EmbeddedFleet();

  const std::string& address() const;    // of the tuner
  const std::string& state_dir() const;  // with NAME.log of each service that has ended
  // An error once a service has died too often.
  absl::Status Healthy() const;

 private:
  class Impl;
  explicit EmbeddedFleet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::cli
