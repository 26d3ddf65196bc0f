// The agent's decisions: what to send to the tracker; which work to take, drop, start and report. A
// state machine without gRPC, threads, files or clocks. It never changes by itself what must
// survive a crash: it returns records; the caller makes them durable and passes them to Apply. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device_agent/ledger.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::device_agent {

struct AgentIdentity {
  std::string agent;       // agents/{agent}
  std::string session_id;  // new at each start
  std::string boot_id;
  std::string version;
};

// One work item to measure now.
struct WorkOrder {
  std::string lease;
  int64_t token = 0;
  std::string device;
  v1::Work work;
};

class AgentCore {
 public:
  AgentCore(AgentIdentity identity, Ledger recovered);

  // Adds or replaces a device's report; the core itself sets the activity.
  void SetDevice(const v1::DeviceReport& report);

  // Returns the records for what a crash interrupted: an item that was started and has no result
  // ends as DEVICE_LOST (class AGENT). Its phase says whether the whole host went down or only this
  // process: either way the item may be the cause.
  std::vector<Record> Recover() const;

  void Apply(const Record& record);
  const Ledger& ledger() const { return ledger_; }

  // The whole state, with the next sequence number.
  v1::SyncRequest MakeSync(int64_t max_wait_ms);

  struct SyncActions {
    std::vector<Record> records;    // to make durable and Apply
    std::vector<std::string> kill;  // devices whose worker is to be killed now
    std::vector<std::string> warnings;
  };
  SyncActions OnSync(const v1::SyncResponse& response);

  // The next item for an idle device; none while it is busy or the agent drains. A suspect waits
  // while another one runs, on any device of this agent: if the agent dies, only one of the two can
  // be to blame.
  std::optional<WorkOrder> Next(const std::string& device) const;
  // From Hold to LetGo the order counts as running when suspects are kept apart: others learn of it
  // before its start is recorded.
  void Hold(const WorkOrder& order) { held_[order.device] = MeasurementId(order.work); }
  void LetGo(const std::string& device) { held_.erase(device); }
  // Returns false if the item was revoked or the agent drains: then do not start it.
  bool StillWanted(const WorkOrder& order) const;
  Record StartedRecord(const WorkOrder& order) const;
  // Adds device, lease and work item to `result`, which has the outcome.
  Record ResultRecord(const WorkOrder& order, v1::MeasurementResult result) const;

  // Oldest unacknowledged results, at most `limit`, and together no more than a message may hold.
  std::vector<v1::MeasurementResult> Unacked(size_t limit) const;
  size_t unacked_count() const { return ledger_.unacked().size(); }
  // Records for the results that need not be sent again.
  std::vector<Record> OnAcks(const v1::ReportResultsResponse& response) const;

  // From now on nothing is started; waiting items go back to the tracker. Returns the records.
  std::vector<Record> Drain();
  bool draining() const { return draining_; }
  bool busy(const std::string& device) const { return running_.count(device) != 0; }
  // True when no device works and no lease is held.
  bool quiet() const { return running_.empty() && ledger_.leases().empty(); }

 private:
  bool OtherSuspect(const std::string& device) const;
  bool TakesGrant(const v1::Grant& grant, SyncActions* actions) const;
  void DropWaiting(const LedgerLease& lease, const v1::Revoke* revoke, SyncActions* actions) const;
  v1::Activity ActivityOf(const std::string& device) const;

  const AgentIdentity identity_;
  Ledger ledger_;
  std::map<std::string, v1::DeviceReport> devices_;
  std::map<std::string, std::string> running_;  // device -> measurement id
  std::map<std::string, std::string> held_;     // likewise
  uint64_t sequence_ = 0;
  uint64_t tracker_epoch_ = 0;
  bool draining_ = false;
};

}  // namespace tilewright::device_agent
