// A real tracker with mutual TLS and tokens, durable as always, under many agents (agent_swarm.h)
// and steady work (steady_work.h), all in one folder: what the load harness and its small test in
// CI share. Belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "tests/support/agent_swarm.h"
#include "tests/support/steady_work.h"

namespace tilewright::tests {

struct SwarmFleetOptions {
  int agents = 50;  // each a connection and a certificate of its own, with one device
  double items_per_s = 100;
  int64_t measure_ms = 500;
  std::string state_dir = {};  // of the tracker; empty = beside the rest, in a temporary folder
  std::vector<std::string> tracker_args = {};
};

class SwarmFleet {
 public:
  // Makes authority, certificates and tokens, and starts the tracker.
  static absl::StatusOr<std::unique_ptr<SwarmFleet>> Create(const SwarmFleetOptions& options);
  ~SwarmFleet();

  // All agents dial at once. deadline_exceeded when not all are known within the time.
  absl::Status ConnectAgents(int64_t patience_ms);
  // The work begins.
  void StartWork() { work_->Start(); }
  // kill -9.
  absl::Status KillTracker();
  // The same again on its state and port; returns when it listens.
  absl::Status RestartTracker();
  // Waits until every agent has an answer of a tracker newer than `epoch`.
  absl::Status WaitUntilSynced(uint64_t epoch, int64_t patience_ms);

  AgentSwarm* swarm() { return swarm_.get(); }
  SteadyWork* work() { return work_.get(); }
  // Of the tracker: resident memory, and processor time so far.
  double RssKb() const;
  double CpuSeconds() const;

 private:
  explicit SwarmFleet(const SwarmFleetOptions& options) : options_(options) {}
  absl::Status MakeIdentities();
  absl::Status StartTracker(const std::string& listen);
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(
      const std::string& name) const;

  const SwarmFleetOptions options_;
  support::SystemClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<support::Child> tracker_;
  std::string address_;
  std::unique_ptr<SteadyWork> work_;  // goes after the agents that tell it
  std::unique_ptr<AgentSwarm> swarm_;
};

}  // namespace tilewright::tests
