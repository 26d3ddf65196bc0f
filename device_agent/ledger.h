// What an agent remembers over a crash: granted work, started items, results that the tracker has
// not acknowledged. A pure value changed by records; spool.h makes the records durable. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tilewright/v1/agent.pb.h"

namespace tilewright::device_agent {

// "{work item}/{attempt}": the name of one attempt, end to end.
std::string MeasurementId(const v1::Work& work);

struct Record {
  enum class Kind : uint8_t {
    kGrant = 1,    // `grant` was received
    kStarted = 2,  // `result` names the item that goes to a worker now, and the kernel's boot
    kResult = 3,   // `result` is its result
    kAcked = 4,    // the tracker has taken the result of `result.measurement_id`
    kDropped = 5,  // `result` names an item that will not be measured here
    kToken = 6,    // `grant` holds a device and its highest fencing token; written by compaction
  };
  Kind kind = Kind::kGrant;
  v1::Grant grant;
  v1::MeasurementResult result;
};

enum class ItemState { kWaiting, kStarted, kReported, kAcked, kDropped };

struct LedgerItem {
  v1::Work work;
  ItemState state = ItemState::kWaiting;
  std::string boot_id;  // of the host when it was started
};

struct LedgerLease {
  std::string lease;
  std::string device;
  int64_t token = 0;
  std::vector<LedgerItem> items;

  bool ended() const;  // nothing waits or runs; results may be unacknowledged
};

class Ledger {
 public:
  // A record that does not fit (a repeated grant, an unknown item) changes nothing. So a log whose
  // end is repeated gives the same ledger.
  void Apply(const Record& record);

  // Leases with an item that is neither acknowledged nor dropped.
  const std::map<std::string, LedgerLease>& leases() const { return leases_; }
  // By measurement id.
  const std::map<std::string, v1::MeasurementResult>& unacked() const { return unacked_; }
  // Highest token granted for the device; 0 for none.
  int64_t last_token(const std::string& device) const;
  // Null when no live lease has it.
  const LedgerItem* FindItem(const std::string& measurement_id) const;

  // Records that make an equal ledger out of an empty one.
  std::vector<Record> Snapshot() const;

 private:
  void AddGrant(const v1::Grant& grant);
  LedgerItem* MutableItem(const std::string& measurement_id);
  void ForgetIfEnded(const std::string& lease);

  std::map<std::string, LedgerLease> leases_;
  std::map<std::string, std::string> lease_of_;  // measurement id -> live lease
  std::map<std::string, v1::MeasurementResult> unacked_;
  std::map<std::string, int64_t> tokens_;
};

}  // namespace tilewright::device_agent
