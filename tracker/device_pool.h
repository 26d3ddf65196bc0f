// The tracker's state machine: agents, devices, leases, work items, the outbox of updates for
// consumers. Pure: no gRPC, threads, clock or I/O; every method takes `now`. What must survive a
// restart accumulates as Changes, which the caller commits *before* it sends any answer. A pool
// made from the Snapshot of the store continues from the last commit.
//
// Rules (the tests check them after every event):
//  I1  a device has at most one live lease
//  I2  a work item has at most one accepted result
//  I3  every item is in exactly one state; QUEUED items are in the queue or await their artifacts,
//      LEASED ones are in one lease
//  I4  no item is queued and leased
//  I5  the fencing token of a device's new leases rises
//  I6  a user has as many devices at work as leases, and open items as rows
//  I7  a device gets work only when it is online, in good health, idle and enabled; one that is
//      not trusted has nothing but its canary
//  I8  a device that is held or not trusted is watched (Tick)
//
// Not thread-safe: it belongs to the tracker's loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/agent.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tilewright/v1/fleet_admin.pb.h"
#include "tracker/device_health.h"
#include "tracker/device_match.h"
#include "tracker/fair_share.h"
#include "tracker/pool_rows.h"
#include "tracker/work_queue.h"

namespace tilewright::tracker {

inline constexpr int64_t kSecondNs = 1'000'000'000;

struct PoolOptions {
  int64_t lease_ttl_ns = 30 * kSecondNs;      // without a Sync that names the lease
  int64_t recovery_ns = 30 * kSecondNs;       // leases live at least this long after a restart
  int64_t suspect_after_ns = 30 * kSecondNs;  // longer than the longest long poll
  int64_t offline_after_ns = 60 * kSecondNs;
  int default_batch = 8;
  int max_batch = 64;
  int max_candidate_kills = 2;   // attempts that took a device down before an item is quarantined
  int max_infra_losses = 20;     // attempts lost for other reasons before an item fails
  int64_t max_outbox = 200'000;  // beyond so many unacknowledged updates nothing is granted
  // Work items that have ended and were acknowledged are kept for this long, and at most so many,
  // to recognise late results.
  int64_t keep_closed_ns = int64_t{15} * 60 * 1'000'000'000;
  size_t max_closed = 50'000;
  int max_devices_per_agent = 256;         // known ones, reported now or earlier
  int64_t max_open_items = 1'000'000;      // beyond so many queued or running, none is accepted
  double quantum_s = 10;                   // a batch is expected to take no longer
  int64_t age_class_ns = 300 * kSecondNs;  // time without service to move up a priority class
  SharePolicy share;
  HealthOptions health;
};

struct Now {
  int64_t mono_ns = 0;  // for every decision
  int64_t wall_us = 0;  // for people, and for the rest of a hold after a restart
};

// Counters since this pool was made, and levels; for metrics.
struct PoolStats {
  int64_t queued = 0;
  int64_t leased = 0;
  int64_t leases = 0;
  int64_t outbox = 0;
  int64_t devices_online = 0;
  int64_t devices_dispatchable = 0;
  int64_t devices_quarantined = 0;
  int64_t canaries_passed = 0;
  int64_t canaries_failed = 0;
  int64_t granted_items = 0;
  double device_seconds = 0;
  int64_t leases_expired = 0;
  int64_t leases_reactivated = 0;
  std::map<std::string, int64_t> results_by_disposition;
  std::map<std::string, int64_t> accepted_by_outcome;
  std::map<std::string, int64_t> closed_by_state;
};

class DevicePool {
 public:
  DevicePool(PoolOptions options, Snapshot snapshot, Now now);

  // --- agents ------------------------------------------------------------------------------------

  // Applies an agent's whole state. Returns false for an old message, which has no effect.
  // A device beyond the agent's limit is not taken in, with a warning. invalid_argument
  // (agent.sync.invalid, agent.name.unprintable), resource_exhausted (agent.devices.too_many),
  // aborted (agent.session.replaced), failed_precondition (agent.protocol.unsupported).
  // `credential` names the certificate that the agent showed; empty in plain text.
  absl::StatusOr<bool> Sync(const v1::SyncRequest& request, const std::string& address, Now now,
                            const std::string& credential = "");

  // The agent's calls are refused from now on, since what it shows was revoked. Its devices say so
  // and its work goes elsewhere, until it is heard of again. Does nothing unless its last Sync came
  // with this credential: a stolen identity says nothing about the agent that has a new one.
  void RevokeAgent(const std::string& agent, const std::string& credential,
                   const std::string& reason, Now now);

  // Whether an idle device of the agent could take work, if there were any.
  bool CouldTakeWork(const std::string& agent, Now now) const;

  // Writes the agent's answer; grants work to its idle devices if `may_grant`. Returns true if the
  // answer has something new and should go out immediately.
  bool FillSyncResponse(const std::string& agent, bool may_grant, Now now,
                        v1::SyncResponse* response);

  // Applies one result. The Ack may go out only after the commit.
  v1::Ack Report(const v1::MeasurementResult& result, const std::string& address, Now now);

  // --- consumers ---------------------------------------------------------------------------------

  bool Knows(const std::string& work_item) const { return items_.count(work_item) != 0; }
  // Whether the item waits to be submitted again, because its artifacts are gone.
  bool AwaitsArtifacts(const std::string& work_item) const {
    return awaiting_.count(work_item) != 0;
  }
  v1::SubmitOutcome Submit(const std::string& consumer, const v1::WorkItem& item, Now now);
  v1::CancelWorkResponse Cancel(const v1::CancelWorkRequest& request, Now now);
  // Updates after the cursor; false when there is none.
  bool Pull(const v1::PullResultsRequest& request, v1::PullResultsResponse* response) const;
  // invalid_argument (cursor.parse.invalid) for a text that is no cursor.
  absl::Status Acknowledge(const v1::AckResultsRequest& request);
  v1::PoolLoad Load(const v1::GetPoolLoadRequest& request, Now now) const;
  // By user.
  std::vector<v1::UserShare> Shares(Now now) const;

  // Ended and acknowledged items that were submitted again since the last call: their consumer has
  // lost what it knew. Give each its stored results with DeliverAgain.
  std::set<std::string> TakeAskedAgain() { return std::exchange(asked_again_, {}); }
  // Puts what the item's consumer acknowledged into its outbox again: each stored result, and the
  // end. Does nothing for an item that is not ended and acknowledged any more.
  void DeliverAgain(const std::string& work_item, std::vector<ResultRow> results, Now now);

  // --- people ------------------------------------------------------------------------------------

  // By name, those after `after`, at most `limit`; `pool`: of this class only, empty = of all.
  std::vector<v1::Device> ListDevices(const std::string& pool, const std::string& after,
                                      size_t limit, Now now) const;
  // not_found (device.name.not_found).
  absl::StatusOr<v1::Device> GetDevice(const std::string& name, Now now) const;
  absl::StatusOr<v1::Device> SetAdminState(const v1::SetDeviceAdminStateRequest& request, Now now);
  // Forgets a device that is not in use. not_found (device.name.not_found), failed_precondition
  // (device.forget.in_use).
  absl::Status ForgetDevice(const std::string& name, Now now);
  // failed_precondition (device.hold.held) when another hold exists; invalid_argument
  // (device.hold.invalid).
  absl::StatusOr<v1::Hold> CreateHold(const v1::CreateHoldRequest& request, Now now);
  // The hold of that name, or of that device. not_found (device.hold.not_found).
  absl::Status ReleaseHold(const std::string& name);
  // failed_precondition (device.reset.impossible, device.reset.busy).
  absl::StatusOr<v1::Device> ResetDevice(const v1::ResetDeviceRequest& request, Now now);

  // --- time and storage --------------------------------------------------------------------------

  // Expires leases, holds and queue timeouts. Call at least once a second.
  void Tick(Now now);

  // Returns the names of agents and consumers with an event since the last call. For all others,
  // FillSyncResponse and Pull write what they wrote before, except for new grants (HasWork) and
  // repeated ones.
  std::set<std::string> TakeNews() { return std::exchange(news_, {}); }
  // Whether anything waits that could be granted.
  bool HasWork() const { return queue_.size() > 0 && outbox_size_ < options_.max_outbox; }

  // What changed since the last call; empty() when nothing did.
  Changes TakeChanges();

  // Whether an open work item names this artifact.
  bool References(const std::string& sha256_hex) const;

  // The agent that reported the device last ("agents/{agent}"); empty when none has since the
  // start.
  std::string OwnerOf(const std::string& device) const;

  PoolStats stats(Now now) const;
  // Seconds from submission to grant since the last call.
  std::vector<double> TakeWaits();

  uint64_t epoch() const { return epoch_; }

  // Ok, or internal with the first broken rule. For tests.
  absl::Status CheckInvariants() const;

 private:
  struct Device {
    v1::DeviceReport report;
    std::string agent;
    std::string address;
    int64_t last_seen_ns = 0;
    int64_t last_seen_us = 0;
    bool reported = false;  // since this pool was made
    std::string revoked;    // why its agent's calls are refused; empty = they are not
    std::string lease;      // the live one
    int64_t done = 0;
    DeviceRow row;
    int64_t hold_until_ns = 0;
    DeviceHealth health;
    int64_t next_probe_ns = 0;                // of one in quarantine
    v1::ResetOrder reset;                     // not answered yet; empty request = none
    std::string reset_told;                   // session that it was sent to
    std::string canary;                       // the open work item that decides; empty = none
    std::vector<double> baselines;            // of the lease that it holds
    std::map<std::string, bool> match_cache;  // by requirement key, for this report
  };
  struct Agent {
    std::string session;
    std::string credential;  // of the last Sync
    std::set<std::string> replaced_sessions;
    uint64_t sequence = 0;
    bool draining = false;
    std::vector<v1::LeaseReport> leases;
    std::vector<std::string> devices;
    std::vector<std::string> warnings;
    std::set<std::string> told_unknown;  // leases, in this session
    bool told_warnings = false;
  };
  // What a lease costs the job that it works for.
  struct LeaseCharge {
    Flow flow;
    std::string device_class;  // empty: nothing is charged
    int64_t since_ns = 0;      // charged for what was before
    double expected_item_s = 0;
    int expected_items = 0;  // charged in advance
    double used_s = 0;
    int ended_items = 0;
  };
  struct Lease {
    std::string name;
    std::string device;
    int64_t token = 0;
    std::vector<std::string> items;  // still open
    bool seen = false;               // an agent named it since this pool was made
    std::string offered_session;
    int64_t offered_ns = 0;
    int64_t expires_ns = 0;
    LeaseCharge charge;
  };
  struct ExpiredLease {
    Lease lease;
    int64_t expired_ns = 0;
  };
  struct Revocation {
    std::string device;
    v1::Revoke revoke;
    std::string delivered_session;
    int64_t until_ns = 0;
  };

  // device_pool.cc: devices, leases, time
  // An open item of the snapshot, but for the queue.
  void RestoreOpen(WorkRow* row, Now now);
  bool Matches(Device* device, const std::string& requirement);
  v1::Reachability ReachabilityOf(const Device& device, Now now) const;
  bool IsReachable(const Device& device, Now now) const;
  // Ok, or the first reason why the device gets no work.
  absl::Status Dispatchable(const Device& device, Now now) const;
  // Ok, or the first reason but the tracker's own verdict why the device gets no work.
  absl::Status Usable(const Device& device, Now now) const;
  Batch TakeBatch(Device* device, Now now);
  bool GrantWork(Device* device, Now now, v1::Grant* grant);
  // Ends a lease; its items go back to the queue (counted as infrastructure losses when `loss`).
  void DropLease(const std::string& name, std::string_view reason, bool loss, Now now);
  // `until_ns`: the device worked for it until then.
  void EndLease(const std::string& name, int64_t until_ns, Now now);
  void RemoveFromLease(WorkRow* row, Now now);
  void Revoke(const Lease& lease, const std::vector<std::string>& items, std::string_view reason,
              bool kill, Now now);
  void ExpireLeases(Now now);
  void ExpireHolds(Now now);
  static bool NeedsWatching(const Device& device);
  void UnwatchDevices();
  absl::Status CheckAccounts() const;

  // device_pool_sync.cc: what agents report, and what they are answered
  absl::Status CheckSync(const v1::SyncRequest& request) const;
  void UpdateDevice(Agent* agent, const std::string& agent_name, const v1::DeviceReport& report,
                    const std::string& address, Now now);
  // Whether the agent may have one device more.
  bool HasRoomFor(const std::string& agent_name) const;
  void ReconcileLeases(const std::string& agent_name, Agent* agent, Now now);
  bool Reactivate(const std::string& lease_name, int64_t token, const std::string& agent_name,
                  const std::string& session, Now now);
  void WriteGrant(const Lease& lease, v1::Grant* grant) const;
  bool FillUnknownLeases(Agent* agent, v1::SyncResponse* response);
  bool FillRevokes(Agent* agent, v1::SyncResponse* response);
  bool FillResets(Agent* agent, v1::SyncResponse* response);

  // device_pool_share.cc: what devices are used for
  void BeginCharge(Lease* lease, const Flow& flow, double weight, double item_seconds, Now now);
  // One more of its items is over.
  void ChargeItem(Lease* lease, Now now);
  void EndCharge(Lease* lease, int64_t until_ns, Now now);
  void ChargeSeconds(LeaseCharge* charge, int64_t until_ns, Now now);
  // Empty, or the slug of the quota that keeps the user from one more device.
  std::string_view Blocked(const std::string& user, Now now) const;
  double UsedToday(const std::string& user, Now now) const;
  // Empty, or why no more work of the user is taken in now.
  std::string NoRoom(const std::string& user) const;

  // device_pool_health.cc: canaries, quarantine, resets
  // A candidate that measured well on a device of the class, to tell broken devices by.
  struct CanaryKernel {
    StoredItem item;     // pins its artifacts
    double best_ns = 0;  // the least time that it took
  };
  static bool IsCanary(const WorkRow& row);
  static std::string CanaryDevice(const StoredItem& item);
  void ObserveResult(const std::string& device, const WorkRow& row,
                     const v1::MeasurementResult& result, Now now);
  // Keeps the baselines for the end of the batch.
  void NoteBaselines(const Attempt& attempt, const WorkRow& row,
                     const v1::MeasurementResult& result);
  void KeepAsCanary(const WorkRow& row, const v1::MeasurementResult& result);
  void TakeCanaryResult(WorkRow* row, Attempt* attempt, const v1::MeasurementResult& result,
                        Now now);
  // The verdict has changed: what follows from it.
  void ActOnVerdict(Device* device, Now now);
  bool StartCanary(Device* device, Now now);
  void EndCanary(Device* device, Now now);
  // Its artifacts are gone: the class needs another one.
  void LoseCanary(WorkRow* row, Now now);
  void ProbeDevices(Now now);
  v1::Health HealthOf(const Device& device) const;
  v1::Quarantine QuarantineOf(const Device& device, Now now) const;
  // Asks the device's agent for a reset, where it can.
  void OrderReset(Device* device, const std::string& reason);
  absl::Status CheckQuarantine() const;

  // device_pool_work.cc: work items
  absl::Status CheckItem(const v1::WorkItem& item) const;
  void Enqueue(WorkRow* row, Now now);
  void Close(WorkRow* row, v1::WorkState state, std::string_view reason,
             const std::string& measurement_id, Now now);
  void AddUpdate(const WorkRow& row, std::string_view reason, const std::string& measurement_id,
                 Now now);
  // `result`: null without one.
  void AppendUpdate(const WorkRow& row, v1::WorkState state, std::string_view reason,
                    const v1::MeasurementResult* result, Now now);
  void CancelItem(WorkRow* row, bool kill, v1::CancelWorkResponse* response, Now now);
  // Keeps account of what open items need, and whose they are.
  void CountOpen(const StoredItem& item, int delta);
  void CountReferences(const StoredItem& item, int delta);

  // device_pool_results.cc: results of attempts, and attempts without one
  void TakeResult(WorkRow* row, Attempt* attempt, const v1::MeasurementResult& result, Now now);
  void LoseAttempt(WorkRow* row, std::string_view reason, bool loss, Now now);
  void TakeLostAttempt(WorkRow* row, const v1::MeasurementResult& result, bool current, Now now);
  // When the item is with a device, but not under the attempt that just ended it: stop that.
  void StopOtherAttempt(const WorkRow& row, bool current, Now now);
  // An agent found that an artifact of the item is gone.
  void AwaitArtifacts(WorkRow* row, const v1::MeasurementResult& result, Now now);

  // device_pool_outbox.cc: what consumers pull and acknowledge; forgetting what has ended
  int64_t CursorSeq(const std::string& cursor) const;
  std::string CursorText(int64_t seq) const;
  void FailOverdueWork(Now now);
  // From now on only a late agent may ask for it.
  void MayForget(const std::string& work_item);
  void ForgetClosedWork(Now now);

  // device_pool_admin.cc: people
  v1::Device DeviceMessage(const Device& device, Now now) const;
  absl::Status Holdable(const Device& device, Now now) const;
  bool AnyDeviceMatches(const Requirement& requirement, Now now) const;

  void Touch(const WorkRow& row) { dirty_items_.insert(row.item.name()); }
  void Touch(const Device& device) {
    dirty_devices_.insert(device.row.name);
    watched_devices_.insert(device.row.name);
    Tell(device);
  }
  // Counts as an event for its agent.
  void Tell(const Device& device) { news_.insert(device.agent); }

  const PoolOptions options_;
  const std::string store_id_;
  const uint64_t epoch_;
  int64_t next_work_seq_;
  int64_t next_outbox_seq_;

  std::map<std::string, WorkRow> items_;
  StoredItem::SharedTerms last_terms_;  // of the newest item
  WorkQueue queue_;
  std::set<std::string> awaiting_;  // QUEUED items that are not in the queue: see AwaitsArtifacts
  FairShare share_;
  std::map<std::string, int> devices_of_user_;         // that work for the user
  std::map<std::string, int64_t> open_items_of_user_;  // users without any have no row
  std::map<std::string, UsageRow> usage_;              // by user
  std::map<std::string, CanaryKernel> canaries_;       // by device class
  std::map<std::string, Device> devices_;
  std::map<std::string, Agent> agents_;
  std::map<std::string, Lease> leases_;
  std::map<std::string, ExpiredLease> expired_;
  std::map<std::string, Revocation> revocations_;               // by lease
  std::map<std::string, std::map<int64_t, OutboxRow>> outbox_;  // consumer -> seq -> update
  int64_t outbox_size_ = 0;
  std::unordered_map<std::string, int64_t> references_;    // artifact -> open items that name it
  std::set<std::pair<int64_t, std::string>> deadlines_;    // queue timeouts of open items
  std::set<std::pair<int64_t, std::string>> forgettable_;  // closed and acknowledged, by time
  std::set<std::string> asked_again_;                      // of those, see TakeAskedAgain

  std::set<std::string> news_;  // names of agents and consumers
  std::set<std::string> dirty_items_;
  std::set<std::string> dirty_devices_;
  // All that are held or not trusted, and those that have just changed: what Tick looks at.
  std::set<std::string> watched_devices_;
  std::set<std::string> dirty_usage_;  // users
  Changes changes_;
  PoolStats counters_;
  std::vector<double> waits_;
  std::vector<double> recent_waits_;  // ring of the last grants, for GetPoolLoad
  size_t recent_wait_next_ = 0;
};

}  // namespace tilewright::tracker
