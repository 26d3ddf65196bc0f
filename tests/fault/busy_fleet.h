// A fleet of real processes that is always at work while a test hurts it: tracker, agents, and a
// consumer on a thread of its own that keeps some items open. Collects, per measurement id, what
// the agents measured, what the tracker acknowledged to them and what reached the consumer, and
// compares the three. Belongs to one thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "deploy/support/file.h"
#include "tests/fault/loopback_fleet.h"

namespace tilewright::tests {

// From the agents' logs, which survive their deaths.
class MeasurementEvidence {
 public:
  // Reads what is new in the tail of a log; call it often enough that nothing falls out of the
  // tail.
  void Read(const std::string& log_tail);

  const std::map<std::string, std::string>& measured() const { return measured_; }  // id, outcome
  // Id, and what the tracker said when it took it (an agent that heard nothing asks again).
  const std::map<std::string, std::string>& acked() const { return acked_; }

 private:
  std::map<std::string, std::string> measured_;
  std::map<std::string, std::string> acked_;
};

struct BusyFleetOptions {
  int agents = 2;
  size_t open_items = 10;
  int64_t lease_ttl_ms = 1500;
  std::string state_dir = {};  // for all daemons; empty = a temporary folder
  bool host_faults = false;    // the daemons' LoopbackDaemon::host
};

class BusyFleet {
 public:
  explicit BusyFleet(const BusyFleetOptions& options = {}) : options_(options) {}
  ~BusyFleet();

  void StartTracker();
  const std::string& address() const { return address_; }
  // The agents at `agents_dial`, the consumer at `consumer_dials`: the tracker or what stands
  // before it. The consumer's thread begins to submit.
  void StartWork(const std::string& agents_dial, const std::string& consumer_dials);

  // Of the tracker, or of "agent0" and so on.
  std::string StateDir(const std::string& daemon) const {
    return support::PathJoin(state_dir_, daemon);
  }
  LoopbackDaemon* tracker() { return tracker_.get(); }
  LoopbackDaemon* agent(size_t i) { return agents_[i].get(); }
  size_t agents() const { return agents_.size(); }

  // kill -9, and the same again on its state.
  void KillAndRestart(LoopbackDaemon* daemon);
  // Lets it work, and reads the evidence.
  void RunFor(int64_t ms);
  // Items that have ended so far.
  size_t finals() const { return finals_.load(); }

  // No more new items: true when all have ended within the time.
  bool Finish(int64_t patience_ms);
  // After Finish: every item was measured, in both directions nothing is lost and nothing counts
  // twice, per measurement id.
  void CheckEveryMeasurement() const;
  size_t items() const { return items_; }  // after Finish
  // Why items were queued again; after Finish.
  const std::vector<std::string>& again() const { return consumer_.again(); }
  size_t measurements() const { return evidence_.measured().size(); }
  std::string Logs() const;

 private:
  void ConsumeLoop();
  void AddItems(std::vector<v1::WorkItem>* open);
  void ReadEvidence();

  const BusyFleetOptions options_;
  std::unique_ptr<support::TempDir> dir_;
  std::string state_dir_;
  std::string address_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  std::vector<std::unique_ptr<LoopbackDaemon>> agents_;
  MeasurementEvidence evidence_;
  LoopbackConsumer consumer_;  // of the thread while that runs
  std::vector<v1::WorkItem> models_;
  size_t items_ = 0;  // of the thread while that runs
  std::atomic<size_t> finals_{0};
  std::atomic<bool> finishing_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace tilewright::tests
